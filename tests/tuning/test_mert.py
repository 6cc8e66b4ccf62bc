"""The promise: no point of a line has a better metric than the one that the line search finds."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sgdec.arrays import Floats
from sgdec.tuning.lists import FeatureLists
from sgdec.tuning.mert import grid, line_search, mert
from sgdec.tuning.mira import mira
from tests.helpers.breadth import examples
from tests.helpers.tuning_lists import planted, random_lists

METRIC = st.sampled_from(["bleu", "chrf", "ter"])


def by_brute_force(lists: FeatureLists, weights: Floats, direction: Floats, low: float, high: float) -> float:
    """The best metric of all intervals between any two crossings of lines of a sentence."""
    crossings = set()
    for first, last in zip(lists.starts[:-1].tolist(), lists.starts[1:].tolist(), strict=True):
        offset, slope = lists.features[first:last] @ weights, lists.features[first:last] @ direction
        for i in range(last - first):
            for j in range(i):
                if slope[i] != slope[j]:
                    crossings.add(float((offset[j] - offset[i]) / (slope[i] - slope[j])))
    ends = sorted({low, high, *(each for each in crossings if low < each < high)})
    wide = (each for each in pairwise(ends) if each[1] - each[0] > 1e-9 * max(1.0, min(map(abs, each))))
    points = [(one + other) / 2 for one, other in wide]
    return max(lists.score(weights + point * direction) for point in points)


@settings(max_examples=examples(300), deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 8), st.booleans(), METRIC, st.booleans())
def test_the_line_search_is_a_search_of_all_intervals(
    seed: int, features: int, coarse: bool, metric: str, bounded: bool
) -> None:
    rng = np.random.default_rng(seed)
    lists = random_lists(rng, metric, features=features, coarse=coarse)
    weights, direction = rng.normal(size=(2, features))
    if coarse:
        weights, direction = np.round(weights), np.round(2 * direction)
    low, high = (-rng.random(), rng.random()) if bounded else (-1e4, 1e4)
    gamma, score = line_search(lists, weights, direction, low, high)
    assert low <= gamma <= high
    assert score == by_brute_force(lists, weights, direction, low, high)
    assert lists.score(weights + gamma * direction) == score


def test_of_equally_good_intervals_the_widest_is_taken_and_its_middle() -> None:
    lists = random_lists(np.random.default_rng(0), sentences=1)
    # Three lines, of which the first and the last are equally good: -inf to 0, 0 to 4, 4 to 14 of [-20, 14].
    features = np.array([[0.0, -1.0], [0.0, 0.0], [-4.0, 1.0]])
    statistics = np.repeat(lists.statistics[:1], 3, axis=0)
    statistics[:, 2] = [3, 0, 3]
    statistics[:, [0, 1, 6]] = 5
    lists = FeatureLists(("a", "b"), features, statistics, np.array([0, 3]), lists.metric)
    weights, direction = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    assert line_search(lists, weights, direction, -20.0, 14.0)[0] == -10.0
    assert line_search(lists, weights, direction, -2.0, 14.0)[0] == 9.0
    assert line_search(lists, weights, direction)[0] == -1.0  # of two endless ones the first
    assert line_search(lists, weights, direction, 0.0, 0.0) == (0.0, lists.score(weights))


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(0, 2**32), METRIC)
def test_no_optimiser_makes_the_lists_worse_or_leaves_the_bounds(seed: int, metric: str) -> None:
    rng = np.random.default_rng(seed)
    lists = random_lists(rng, metric, sentences=12)
    weights = np.array([1.0, 0.5, 0.5, 0.5])
    bounds = np.array([[-np.inf, np.inf], [0.0, 2.0], [0.5, 0.5], [0.0, np.inf]])
    for found in (
        mert(lists, weights, bounds, restarts=2, directions=3, generator=rng),
        mira(lists, weights, bounds, epochs=5, generator=rng),
    ):
        assert lists.score(found) >= lists.score(weights)
        assert found[0] == 1.0
        assert np.all((bounds[:, 0] <= found) & (found <= bounds[:, 1]))


@pytest.mark.parametrize("seed", range(6))
def test_an_epoch_of_mira_is_a_plain_loop(seed: int) -> None:
    """Hope and fear of each sentence in turn, with a document that fades; the mean, scaled to the first weight."""
    lists, _ = planted(np.random.default_rng(seed), sentences=15)
    start, free = np.array([1.0, 0.1, 0.1, 0.1, 0.1]), np.array([[-np.inf, np.inf]] * 5)
    order = np.random.default_rng([seed, 1]).permutation(15)
    w, document, size, visited = start.copy(), np.zeros(10), 0.0, []
    for sentence in order.tolist():
        own = range(lists.starts[sentence], lists.starts[sentence + 1])
        gain = {h: float(lists.metric.scores(document + lists.statistics[h])) / 100 * (size + 1) for h in own}
        hope = max(own, key=lambda h: float(lists.features[h] @ w) + gain[h])
        fear = max(own, key=lambda h: float(lists.features[h] @ w) - gain[h])
        apart = lists.features[hope] - lists.features[fear]
        missing = gain[hope] - gain[fear] - float(apart @ w)
        if missing > 0:
            w = w + min(0.05, missing / float(apart @ apart)) * apart
        document, size = 0.999 * (document + lists.statistics[hope]), 0.999 * (size + 1)
        visited.append(w)
    mean = np.sum(visited, axis=0)
    mean /= mean[0]
    assert lists.score(mean) > lists.score(start)
    found = mira(lists, start, free, epochs=1, generator=np.random.default_rng([seed, 1]))
    np.testing.assert_allclose(found, mean, rtol=1e-12)


def test_planted_weights_are_found() -> None:
    rng = np.random.default_rng(3)
    exact, share = 0, []
    for _ in range(5):
        lists, hidden = planted(rng)
        assert lists.score(hidden) == pytest.approx(100.0)
        bounds = np.array([[0.0, np.inf]] * 5)
        exact += lists.score(mert(lists, np.ones(5), bounds, generator=rng)) >= 100.0 - 1e-9
        share.append(lists.score(mira(lists, np.ones(5), bounds, generator=rng)))
    assert exact >= 4
    assert np.mean(share) > 98.0


def test_a_grid_returns_the_first_of_the_best_points() -> None:
    lists, hidden = planted(np.random.default_rng(1))
    assert np.array_equal(grid(lists, [np.ones(5), hidden, 2 * hidden]), hidden)
