"""What do models of other tokens cost, and what is lost where token sequences are dropped?

``widths``: an n-gram model over pieces, read byte by byte with `bytes`: bits per byte of some text, the probability
that was lost, and the rows that the model was asked for, by `width`. Without a limit, elements with the same n-gram
history are merged, so that exact sums are affordable; the other lines have no keys, as neural models have none.

    python benchmarks/other_tokens.py widths --lm pieces.arpa --tokenizer pieces.spm --text TEXT [--lines 40]

``pair``: two models with different tokenizers, alone and as ``topk:NAME,aligned:NAME``: beam 5, 64 sentences in
flight, CPU time of one thread, medians of rounds that alternate. Checkpoints of `sgdec train` translate the lines;
folders of `hf` with a causal model continue their first three words by up to 20 tokens.

    python benchmarks/other_tokens.py pair --leader A/best --follower B/best --text TEXT [--lines 64] [--k 20]

``losses``: the log-probability of references as `aligned` computes it, less than the best estimate, by ``min_share``.

    python benchmarks/other_tokens.py losses --leader A/best --follower B/best --text TEXT --reference TEXT
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import time
from collections.abc import Sequence
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
from sgdec.text.model_folder import is_checkpoint
from sgdec.vocabularies import ByteVocabulary, load_vocabulary
from sgdec.wrapping import Wrapper

WIDTHS = (1, 2, 4, 8, 16)
WORDS, LENGTH = 3, 20
SHARES = (0.1, 0.01, 0.001, 0.0001)


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
    parser.add_argument("measure", choices=["widths", "pair", "losses"])
    parser.add_argument("--text", required=True)
    parser.add_argument("--lines", type=int, default=40)
    parser.add_argument("--lm", help="ARPA file, for widths")
    parser.add_argument("--tokenizer", help="of its pieces")
    parser.add_argument("--leader", help="checkpoint, for pair")
    parser.add_argument("--follower", help="checkpoint with another tokenizer")
    parser.add_argument("--reference", help="outputs, for losses")
    parser.add_argument("--k", type=int, default=20)
    parser.add_argument("--min-share", type=float, default=0.01)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    lines = list(read_lines(given.text))[: given.lines]
    {"widths": widths, "pair": pair, "losses": losses}[given.measure](given, lines)


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
        own = ByteVocabulary()
        sources = [Source(number, ()) for number in range(1, len(texts) + 1)]
        bits = -sum(totals(predictor, sources, [(*own.encode(text), EOS) for text in texts])) / size / math.log(2)
        spent = time.process_time() - began
        print(f"width {width or 'unlimited'}: {bits:.6f} bits per byte, {inner.rows / size:.2f} inner rows per byte, "
              f"{spent / size * 1e3:.2f} ms; {predictor.summary()}", flush=True)  # fmt: skip


def totals(predictor: BatchPredictor, sources: Sequence[Source], outputs: Sequence[Sequence[int]]) -> list[float]:
    """The log-probabilities of outputs, all of which are read together."""
    states = predictor.initialize_batch(sources)
    found = [0.0] * len(outputs)
    for place in range(max(map(len, outputs))):
        going = [row for row, tokens in enumerate(outputs) if len(tokens) > place]
        tokens = [outputs[row][place] for row in going]
        scores = predictor.predict_batch([states[row] for row in going], [[token] for token in tokens])
        for i, (row, token) in enumerate(zip(going, tokens, strict=True)):
            found[row] += float(scores.rows[i].get(token) if scores.values is None else scores.values[i, token])
        longer = [row for row in going if len(outputs[row]) > place + 1]
        after = predictor.consume_batch([states[row] for row in longer], [outputs[row][place] for row in longer])
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
    cases = {
        "leader": ({"a": leader}, sources["leader"]),
        "follower": ({"b": follower}, sources["follower"]),
        "both": ({"a": limited, "b": aligned}, sources["leader"]),
    }
    spent: dict[str, list[float]] = {name: [] for name in cases}
    expansions = {}
    for _ in range(given.rounds + 1):
        inner.rows = 0
        for name, (predictors, read) in cases.items():
            seconds, expansions[name] = search(predictors, read)
            spent[name].append(seconds)
    medians = {name: statistics.median(times[1:]) for name, times in spent.items()}
    each = {name: medians[name] / expansions[name] for name in cases}
    ratio = medians["both"] / (medians["leader"] + medians["follower"])
    for_each = each["both"] / (each["leader"] + each["follower"])
    shown = ", ".join(f"{name} {seconds:.2f} s for {expansions[name]:,}" for name, seconds in medians.items())
    print(f"{shown} expansions: {ratio:.2f} of the sum of both alone, {for_each:.2f} for an expansion; "
          f"{inner.rows / expansions['both']:.2f} rows of the follower for an expansion; {limited.summary()}; "
          f"{aligned.summary()}")  # fmt: skip


def losses(given: argparse.Namespace, lines: Sequence[str]) -> None:
    leader = model(given.leader)
    target = required(leader.vocabularies.target)
    run = Context(vocabularies=leader.vocabularies, vocab_size=target.size)
    references = list(read_lines(given.reference))[: given.lines]
    outputs = [(*target.encode(line), EOS) for line in references]
    size, best = sum(map(len, outputs)), []
    for width, share in ((32, 1e-5), *((4, share) for share in SHARES)):
        inner = Counted(model(given.follower, Context(vocabularies=Vocabularies(leader.vocabularies.source, None))))
        inner.vocabularies = inner.inner.vocabularies
        aligned = Aligned(inner, width=width, min_share=share, context=run)
        found = totals(aligned, sources_of(lines, leader), outputs)
        best = best or found
        lost = [most - total for most, total in zip(best, found, strict=True) if total > -math.inf]
        forbidden, mean = len(found) - len(lost), sum(lost) / size
        print(f"width {width}, min_share {share:g}: {inner.rows / size:.2f} rows for a token; {forbidden} forbidden; "
              f"{mean:.4f} nats less for a token, at most {max(lost):.2f} for an output", flush=True)  # fmt: skip


def model(folder: str, context: Context | None = None) -> BatchPredictor:
    """One of `nmt` for a checkpoint, otherwise one of `hf`."""
    return NmtPredictor(folder, context) if is_checkpoint(folder) else HfPredictor(folder, context=context)


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
