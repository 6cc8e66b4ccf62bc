"""Do the optimisers of weights find the best ones?

``lines``: exact line searches on random sets of lists beside brute force over all intervals. ``planted``: sets of 50
sentences with 20 hypotheses and 5 features, whose references are the best hypotheses under hidden weights, so that
BLEU can be 100. How often does `mert` reach the maximum, and how near does `mira` come, on average and at worst?

    python benchmarks/tuning.py [--lines 1000] [--planted 100]
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from sgdec.tuning.mert import line_search, mert
from sgdec.tuning.mira import mira
from tests.helpers.tuning_lists import planted, random_lists
from tests.tuning.test_mert import by_brute_force


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--planted", type=int, default=100)
    given = parser.parse_args()
    equal = 0
    for seed in range(given.lines):
        rng = np.random.default_rng(seed)
        features, metric, coarse = 2 + seed % 7, ("bleu", "chrf", "ter")[seed % 3], bool(seed % 2)
        lists = random_lists(rng, metric, features=features, coarse=coarse)
        weights, direction = rng.normal(size=(2, features))
        gamma, score = line_search(lists, weights, direction, -1e4, 1e4)
        best = by_brute_force(lists, weights, direction, -1e4, 1e4)
        equal += score == best == lists.score(weights + gamma * direction)
    print(f"line searches equal to brute force: {equal} of {given.lines}", flush=True)
    scores: dict[str, list[float]] = {"mert": [], "mira": []}
    seconds = dict.fromkeys(scores, 0.0)
    for seed in range(given.planted):
        rng = np.random.default_rng(seed)
        lists, _ = planted(rng)
        bounds = np.array([[0.0, np.inf]] * len(lists.names))
        for name, optimise in (("mert", mert), ("mira", mira)):
            began = time.process_time()
            found = optimise(lists, np.ones(len(lists.names)), bounds, generator=rng)
            seconds[name] += time.process_time() - began
            scores[name].append(lists.score(found))
    for name, reached in scores.items():
        exact = sum(score >= 100.0 - 1e-9 for score in reached)
        print(
            f"{name}: the maximum in {exact} of {given.planted}; mean {np.mean(reached):.2f}, lowest "
            f"{min(reached):.2f}; {seconds[name] / given.planted:.2f} s each"
        )


if __name__ == "__main__":
    main()
