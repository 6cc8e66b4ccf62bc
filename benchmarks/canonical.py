"""What do `canonical` and renormalised scores cost? Beam search with a random GNMT model, with and without, in turn.

The vocabulary is a BPE model of made-up words. Renormalised scores need one more pass over what the others allow:
over lists of tokens beside a pattern that allows few of them, over whole rows beside `canonical` and a pattern that
allows most. CPU times of one thread; medians of the ratios of the times per expansion, because outputs differ in
length:

    python benchmarks/canonical.py [--layers 2] [--width 512] [--vocabulary 32000] [--sentences 8] [--runs 5]
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

from common import frozen, nmt, random_gnmt, sentences, settle
from constraints import processor
from regexes import SHARES
from sgdec_decoders.beam import BeamDecoder
from sgdec_predictors.canonical import Canonical
from sgdec_predictors.regex import RegexPredictor

from sgdec.context import Context, Vocabularies
from sgdec.protocol import BatchPredictor
from sgdec.search.combination.renormalizing import Renormalized
from sgdec.search.constellation import Constellation
from sgdec.search.scheduler import Scheduler
from sgdec.text.sentencepiece import SentencePieceVocabulary, train_vocabulary


def pieces(size: int) -> SentencePieceVocabulary:
    """BPE of words of one to five syllables."""
    draw = random.Random(1)

    def word() -> str:
        return "".join(draw.choice("bdfgklmnprst") + draw.choice("aeiou") for _ in range(draw.randint(1, 5)))

    lines = (" ".join(word() for _ in range(10)) for _ in range(size))
    return train_vocabulary(lines, size, kind="bpe")


def per_expansion(constellation: Constellation, number: int, size: int) -> float:
    """CPU seconds per expansion, over ``number`` sentences."""
    settle()
    began = time.process_time()
    outcomes = list(Scheduler(constellation, BeamDecoder(5)).run(sentences([20] * number, size)))
    return (time.process_time() - began) / sum(each.result.expansions for each in outcomes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--vocabulary", type=int, default=32_000)
    parser.add_argument("--sentences", type=int, default=8)
    parser.add_argument("--runs", type=int, default=5)
    given = parser.parse_args()
    vocabulary = pieces(given.vocabulary)
    size = vocabulary.size
    context = Context(vocabularies=Vocabularies(vocabulary, vocabulary), vocab_size=size)
    model = nmt(frozen(random_gnmt(given.layers, given.width, size)))

    def beside(constraint: BatchPredictor | None, renormalized: bool = False) -> Constellation:
        predictors: dict[str, BatchPredictor] = {"nmt": Renormalized(model) if renormalized else model}
        if constraint is not None:
            predictors["constraint"] = constraint
        return Constellation.of(predictors, vocab_size=size)

    constraints: dict[str, BatchPredictor] = {"canonical": Canonical(context)}
    for share in ("few", "most"):
        constraints[f"regex ({share} tokens)"] = RegexPredictor(SHARES[share], cache="none", context=context)
    pairs = {"nmt,canonical / nmt": (beside(constraints["canonical"]), beside(None))}
    for name, constraint in constraints.items():
        pairs[f"nmt,{name}, renormalised / not"] = beside(constraint, True), beside(constraint)
    print(f"{processor()}, GNMT {given.layers} x {given.width}, V = {size:,}, beam 5, {given.sentences} sentences")
    for name, sides in pairs.items():
        ratios = []
        for turn in range(given.runs + 1):
            first, second = (per_expansion(side, given.sentences, size) for side in sides)
            ratios += [first / second] if turn else []  # the first turn warms up
        print(f"{name}: {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f}) per expansion")


if __name__ == "__main__":
    main()
