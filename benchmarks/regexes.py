"""What does `regex` cost? The time to build ten patterns of growing size, and beam search with and without patterns.

A build takes until the first row is known: the pattern is compiled in a process of its own and joined with the
vocabulary of `constraints.py`, or both are read from the disk. Then a random GNMT model is searched by beams of 5,
with and without patterns that allow few, half and most of the tokens, in turn: CPU time per expansion of one thread.

    python benchmarks/regexes.py [--sizes 32000,128000] [--sentences 8] [--runs 5]
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Sequence

os.environ.setdefault("OMP_NUM_THREADS", "1")

from common import frozen, nmt, random_gnmt, sentences, settle
from constraints import Pieces, processor
from sgdec_decoders.beam import BeamDecoder
from sgdec_predictors.regex import RegexPredictor

from sgdec.context import Context, Vocabularies
from sgdec.protocol import Source
from sgdec.search.constellation import Constellation
from sgdec.search.scheduler import Scheduler

DATE = r"(19|20)\d\d-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])"
GROWING = {
    "two words": "yes|no",
    "year": r"(19|20)\d\d",
    "date": DATE,
    "amount": r"[1-9]\d{0,2}(,\d{3})*(\.\d\d)? (USD|EUR|GBP)",
    "name": r"[A-Z][a-z]+( [A-Z][a-z]+){0,3}",
    "e-mail": r"[a-z0-9._]{1,20}@[a-z0-9]{1,20}(\.[a-z]{2,6}){1,2}",
    "three dates": rf"{DATE}(, {DATE}){{2}}",
    "sentence of 20 words": r"[A-Z][a-z]*(,? [a-z]{1,12}){0,19}[.?!]",
    "record": rf'\{{"name":"[^"]{{1,20}}","born":"{DATE}","tags":\["[a-z]{{1,9}}"(,"[a-z]{{1,9}}"){{0,3}}\]\}}',
    "any characters": r"[^\n]{1,60}",
}
SHARES = {"few": f"({DATE}, )*", "half": r"[b-m][a-m]*( [b-m][a-m]*)*", "most": r'[^"]*'}


def context_of(size: int) -> Context:
    vocabulary = Pieces(size)
    return Context(vocabularies=Vocabularies(vocabulary, vocabulary), vocab_size=size)


def first_row(pattern: str, context: Context, folder: str) -> float:
    """Seconds until the tokens that can begin an output are known."""
    began = time.perf_counter()
    predictor = RegexPredictor(pattern, cache=folder, context=context)
    predictor.predict_batch(predictor.initialize_batch([Source(1, ())]))
    return time.perf_counter() - began


def building(size: int) -> None:
    context = context_of(size)
    with tempfile.TemporaryDirectory() as folder:
        print(f"V = {size:,}: {first_row('a', context, 'none'):.2f} s for `a`, with the spelling of the vocabulary")
        for name, pattern in GROWING.items():
            built = first_row(pattern, context, folder)
            kept = statistics.median(first_row(pattern, context, folder) for _ in range(3))
            letters = RegexPredictor(pattern, cache=folder, context=context).automaton_of(1).letters
            print(f"  {name}: {letters.states} states, {built:.2f} s, from the disk {kept:.2f} s")


def price(
    patterns: Sequence[str], layers: int, width: int, size: int, number: int, runs: int, beam: int = 5
) -> list[list[float]]:
    """For each pattern the ratios of the CPU times per expansion: with it, and without."""
    context = context_of(size)
    model = nmt(frozen(random_gnmt(layers, width, size)))
    sources = sentences([20] * number, size)
    alone = Constellation.of({"nmt": model}, vocab_size=size)
    with_regex = [
        Constellation.of({"nmt": model, "regex": predictor}, vocab_size=size)
        for predictor in (RegexPredictor(each, cache="none", context=context) for each in patterns)
    ]

    def per_expansion(constellation: Constellation) -> float:
        settle()
        began = time.process_time()
        outcomes = list(Scheduler(constellation, BeamDecoder(size=beam)).run(sources))
        return (time.process_time() - began) / sum(each.result.expansions for each in outcomes)

    found = []
    for constellation in with_regex:
        per_expansion(constellation)
        found.append([per_expansion(constellation) / per_expansion(alone) for _ in range(runs)])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="32000,128000")
    parser.add_argument("--sentences", type=int, default=8)
    parser.add_argument("--runs", type=int, default=5)
    given = parser.parse_args()
    print(processor())
    for size in map(int, given.sizes.split(",")):
        building(size)
        ratios = price(list(SHARES.values()), 2, 512, size, given.sentences, given.runs)
        for name, each in zip(SHARES, ratios, strict=True):
            median, range_ = statistics.median(each), f"{min(each):.3f} to {max(each):.3f}"
            print(f"  nmt,regex / nmt, {name} of the tokens: {median:.3f} ({range_})")


if __name__ == "__main__":
    main()
