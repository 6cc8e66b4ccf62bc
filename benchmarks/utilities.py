"""What does it cost to compare all pairs of hypotheses of a sentence? Utilities by counts beside fastchrf, in turn.

The texts are random edits of one sentence, as samples of a translation are: a word in three is replaced, left out or
doubled. First equal results are asserted: pairs with sacreBLEU (on the first 16) and, where it is installed, pairs
and means with fastchrf. Then CPU times: medians, with the range. The utilities use one thread, fastchrf one for each
core, whose times are added:

    pip install fastchrf
    python benchmarks/utilities.py [--texts 256] [--words 20] [--runs 5] [--lines FILE]
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from itertools import islice

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

import sgdec
from sgdec.text.lines import read_lines
from sgdec.utility import aggregated, pairwise

try:
    import fastchrf
except ImportError:
    fastchrf = None


def samples(number: int, words: int, lines: str | None) -> list[str]:
    """Edits of a sentence: one of made-up words, or the longest of the first hundred lines of a file."""
    draw = random.Random(1)

    def word() -> str:
        return "".join(draw.choice("bdfgklmnprst") + draw.choice("aeiou") for _ in range(draw.randint(1, 4)))

    sentence = [word() for _ in range(words)]
    if lines is not None:
        sentence = max((line.split() for line in islice(read_lines(lines), 100)), key=len)
    others = [word() for _ in range(50)]

    def edited() -> str:
        found = [draw.choice([[each]] * 6 + [[draw.choice(others)], [], [each, each]]) for each in sentence]
        return " ".join(part for parts in found for part in parts)

    return [edited() for _ in range(number)]


def seconds(function: Callable[[], object], runs: int) -> list[float]:
    """CPU time of all threads, of each run after the first."""
    times = []
    for _ in range(runs + 1):
        began = time.process_time()
        function()
        times.append(time.process_time() - began)
    return times[1:]


def require_equal(texts: Sequence[str]) -> None:
    for name, metric in (("chrf", CHRF()), ("bleu", BLEU(effective_order=True))):
        expected = [[metric.sentence_score(own, [other]).score for other in texts[:16]] for own in texts[:16]]
        np.testing.assert_allclose(pairwise(sgdec.load_utility(name), texts[:16], texts[:16]), expected)
    if fastchrf is not None:
        chrf = sgdec.load_utility("chrf")
        np.testing.assert_allclose(pairwise(chrf, texts, texts), fastchrf.pairwise_chrf([texts], [texts])[0])
        np.testing.assert_allclose(
            aggregated(chrf, texts, texts)[:, 0], fastchrf.aggregate_chrf([texts], [texts])[0]
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--texts", type=int, default=256)
    parser.add_argument("--words", type=int, default=20)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--lines", help="a file of sentences; the default are made-up words")
    given = parser.parse_args()
    texts = samples(given.texts, given.words, given.lines)
    require_equal(texts)
    chrf, bleu = sgdec.load_utility("chrf"), sgdec.load_utility("bleu")
    words = sgdec.load_utility("chrf", word_order=2)
    timed: dict[str, Callable[[], object]] = {
        "chrf": lambda: pairwise(chrf, texts, texts),
        "chrf, words": lambda: pairwise(words, texts, texts),
        "bleu": lambda: pairwise(bleu, texts, texts),
        "chrf, mean": lambda: aggregated(chrf, texts, texts),
        "bleu, mean": lambda: aggregated(bleu, texts, texts),
    }
    if fastchrf is not None:
        timed["fastchrf"] = lambda: fastchrf.pairwise_chrf([texts], [texts])
        timed["fastchrf, mean"] = lambda: fastchrf.aggregate_chrf([texts], [texts])
    packages = ["sgdec", "numpy", "sacrebleu"] + ["fastchrf"] * (fastchrf is not None)
    print(", ".join(f"{name} {version(name)}" for name in packages))
    size, length = len(texts), statistics.mean(map(len, texts))
    print(f"{size} x {size} texts of {length:.0f} characters; CPU ms, median (least-most) of {given.runs} runs")
    found: dict[str, list[float]] = {name: [] for name in timed}
    for _ in range(given.runs):  # in turn
        for name, function in timed.items():
            found[name] += seconds(function, 1)
    for name, times in found.items():
        least, median, most = (1000 * each for each in (min(times), statistics.median(times), max(times)))
        print(f"{name:15} {median:8.1f} ({least:.1f}-{most:.1f})")
    if fastchrf is not None:
        for name in ("chrf", "chrf, mean"):
            other = name.replace("chrf", "fastchrf")
            print(f"{name} / {other}: {statistics.median(found[name]) / statistics.median(found[other]):.2f}")


if __name__ == "__main__":
    main()
