"""What do models of other tokens cost, and what is lost where token sequences are dropped?

``widths``: an n-gram model over pieces, read byte by byte with `bytes`: bits per byte of some text, the probability
that was lost, and the rows that the model was asked for, by `width`. Without a limit, elements with the same n-gram
history are merged, so that exact sums are affordable; the other lines have no keys, as neural models have none.

    python benchmarks/other_tokens.py widths --lm pieces.arpa --tokenizer pieces.spm --text TEXT [--lines 40]

``pair``: two models with different tokenizers, alone and as ``topk:NAME,aligned:NAME``: beam 5, 64 sentences in
flight, CPU time of one thread, medians of rounds that alternate. Checkpoints of `sgdec train` translate the lines;
folders of `hf` with a causal model continue their first three words by up to 20 tokens.

    python benchmarks/other_tokens.py pair --leader A/best --follower B/best --text TEXT [--lines 64] [--k 20]
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from sgdec_decoders.beam import BeamDecoder
from sgdec_predictors.aligned import Aligned
from sgdec_predictors.bytes import Bytes
from sgdec_predictors.hf import HfPredictor
from sgdec_predictors.ngram import NGram
from sgdec_predictors.nmt import NmtPredictor
from sgdec_predictors.topk import TopTokens

from sgdec import EOS, BatchPredictor, Source
from sgdec.collector import collector_spared
from sgdec.context import Context, Vocabularies, Vocabulary
from sgdec.files import read_lines
from sgdec.search.constellation import Constellation
from sgdec.search.scheduler import Scheduler
from sgdec.vocabularies import ByteVocabulary, load_vocabulary
from sgdec.wrapping import Wrapper

WIDTHS = (1, 2, 4, 8, 16)
WORDS, LENGTH = 3, 20


class Counted(Wrapper):
    """Counts the rows that are asked for."""

    rows = 0

    def predict_batch(self, states: Sequence[Any], candidates: Any = None) -> Any:
        self.rows += len(states)
        return super().predict_batch(states, candidates)


class Keyless(Counted):
    """Does not say which prefixes have the same future."""

    forwards = ()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measure", choices=["widths", "pair"])
    parser.add_argument("--text", required=True)
    parser.add_argument("--lines", type=int, default=40)
    parser.add_argument("--lm", help="ARPA file, for widths")
    parser.add_argument("--tokenizer", help="of its pieces")
    parser.add_argument("--leader", help="checkpoint, for pair")
    parser.add_argument("--follower", help="checkpoint with another tokenizer")
    parser.add_argument("--k", type=int, default=20)
    parser.add_argument("--min-share", type=float, default=0.01)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    lines = list(read_lines(given.text))[: given.lines]
    {"widths": widths, "pair": pair}[given.measure](given, lines)


def widths(given: argparse.Namespace, lines: Sequence[str]) -> None:
    vocabulary = load_vocabulary(given.tokenizer)
    texts = [vocabulary.decode(vocabulary.encode(line)) for line in lines]
    context = Context(vocabularies=Vocabularies(None, vocabulary), vocab_size=vocabulary.size)
    model = NGram(given.lm, context=context)
    size = sum(len(text.encode()) + 1 for text in texts)
    cases: list[tuple[type[Counted], int]] = [(Counted, 0), *((Keyless, width) for width in WIDTHS)]
    for kind, width in cases:
        inner = kind(model)
        inner.vocabularies = Vocabularies(None, vocabulary)
        predictor = Bytes(inner, width=width)
        began = time.process_time()
        bits = -sum(totals(predictor, texts)) / size / math.log(2)
        spent = time.process_time() - began
        print(f"width {width or 'unlimited'}: {bits:.6f} bits per byte, {inner.rows / size:.2f} inner rows per byte, "
              f"{spent / size * 1e3:.2f} ms; {predictor.summary()}", flush=True)  # fmt: skip


def totals(predictor: BatchPredictor, texts: Sequence[str]) -> list[float]:
    """The log-probabilities of texts, all of which are read together."""
    own = ByteVocabulary()
    tokens = [(*own.encode(text), EOS) for text in texts]
    states = predictor.initialize_batch([Source(number, ()) for number in range(1, len(texts) + 1)])
    found = [0.0] * len(texts)
    for place in range(max(map(len, tokens))):
        going = [row for row, own_tokens in enumerate(tokens) if len(own_tokens) > place]
        rows = predictor.predict_batch([states[row] for row in going]).values
        assert rows is not None
        for scores, row in zip(rows, going, strict=True):
            found[row] += float(scores[tokens[row][place]])
        longer = [row for row in going if len(tokens[row]) > place + 1]
        after = predictor.consume_batch([states[row] for row in longer], [tokens[row][place] for row in longer])
        for row, state in zip(longer, after, strict=True):
            states[row] = state
    return found


def pair(given: argparse.Namespace, lines: Sequence[str]) -> None:
    leader, follower = model(given.leader), model(given.follower)
    target = required(leader.vocabularies.target)
    run = Context(vocabularies=leader.vocabularies, vocab_size=target.size)
    inside = Context(vocabularies=Vocabularies(leader.vocabularies.source, None))
    inner = Counted(model(given.follower, inside))
    inner.vocabularies = inner.inner.vocabularies
    aligned = Aligned(inner, min_share=given.min_share, context=run)
    limited = TopTokens(leader, given.k)
    sources = {"leader": sources_of(lines, leader), "follower": sources_of(lines, follower)}
    spent: dict[str, list[float]] = {"leader": [], "follower": [], "both": []}
    for _ in range(given.rounds + 1):
        spent["leader"].append(search({"a": leader}, sources["leader"])[0])
        spent["follower"].append(search({"b": follower}, sources["follower"])[0])
        inner.rows = 0
        seconds, expansions = search({"a": limited, "b": aligned}, sources["leader"])
        spent["both"].append(seconds)
    medians = {name: statistics.median(times[1:]) for name, times in spent.items()}
    ratio = medians["both"] / (medians["leader"] + medians["follower"])
    shown = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in medians.items())
    print(f"{shown}: {ratio:.2f} of the sum of both alone; {inner.rows / expansions:.2f} rows of the follower for an "
          f"expansion; {limited.summary()}; {aligned.summary()}")  # fmt: skip


def model(folder: str, context: Context | None = None) -> BatchPredictor:
    """One of `hf` if the folder has a configuration of transformers, or one of `nmt`."""
    if (Path(folder) / "config.json").exists():
        return HfPredictor(folder, context=context)
    return NmtPredictor(folder, context)


def sources_of(lines: Sequence[str], predictor: BatchPredictor) -> list[Source]:
    vocabulary = required(predictor.vocabularies.source)
    causal = isinstance(predictor, HfPredictor)
    read = [" ".join(line.split()[:WORDS]) for line in lines] if causal else lines
    encoded = list(map(vocabulary.encode, read))
    return [
        Source(number, tokens, text, max_length=LENGTH if causal else 2 * len(tokens))
        for number, (tokens, text) in enumerate(zip(encoded, read, strict=True), 1)
    ]


def search(predictors: dict[str, Any], sources: Sequence[Source]) -> tuple[float, int]:
    """CPU seconds, and the number of expansions."""
    constellation = Constellation.of(predictors, weights=[1 / len(predictors)] * len(predictors))
    began, expansions = time.process_time(), 0
    with collector_spared():
        for outcome in Scheduler(constellation, BeamDecoder(size=5)).run(sources):
            if outcome.error is not None:
                raise outcome.error
            expansions += outcome.result.expansions
    return time.process_time() - began, expansions


def required(vocabulary: Vocabulary | None) -> Vocabulary:
    assert vocabulary is not None
    return vocabulary


if __name__ == "__main__":
    main()
