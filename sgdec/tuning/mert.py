"""Minimum error rate training: exact line search for any corpus metric (Och 2003).

Along a line w + gamma d, each hypothesis of a sentence has a score that is linear in gamma. The best ones form the
upper envelope of these lines, which changes only where two of them cross. So the metric of the whole set is constant
between neighbouring crossings of all sentences, and its maximum over gamma is found by looking at each interval once
(Och 2003, "Minimum Error Rate Training in Statistical Machine Translation").
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sgdec.arrays import Floats
from sgdec.tuning.lists import FeatureLists

NARROW = 1e-9
"""An interval that is relatively narrower comes from rounding: of three lines through one point, pairs meet apart."""
STEP = 1.0
"""The distance of a point from the last crossing, if the best interval has no end."""


def line_search(
    lists: FeatureLists, weights: Floats, direction: Floats, low: float = -np.inf, high: float = np.inf
) -> tuple[float, float]:
    """The gamma in [low, high] with the best metric, and the metric, higher = better.

    ``low`` <= 0 <= ``high``. The widest of equally good intervals is taken, and the first of equally wide ones;
    gamma is its middle.
    """
    crossings, changes, first = envelopes(lists, weights, direction)
    order = np.argsort(crossings, kind="stable")
    gammas, place = np.unique(crossings[order], return_index=True)
    steps = np.add.reduceat(changes[order], place, axis=0) if len(place) else changes
    sums = np.cumsum(np.concatenate([first[None], steps]), axis=0)
    scores = lists.metric.sign * lists.metric.scores(sums)  # [intervals]
    left = np.clip(np.concatenate([[-np.inf], gammas]), low, high)
    right = np.clip(np.concatenate([gammas, [np.inf]]), low, high)
    width = right - left
    with np.errstate(invalid="ignore"):  # two infinite ends
        narrow = width <= NARROW * np.maximum(1.0, np.minimum(np.abs(left), np.abs(right)))
    scores = np.where(narrow, -np.inf, scores)
    if not np.isfinite(scores).any():
        return 0.0, lists.score(weights)
    best = np.flatnonzero(scores == scores.max())
    at = int(best[np.argmax(width[best])])
    return _middle(float(left[at]), float(right[at])), float(scores[at])


def envelopes(lists: FeatureLists, weights: Floats, direction: Floats) -> tuple[Floats, Floats, Floats]:
    """The upper envelopes of all sentences: where they change, how statistics change there, and where they begin.

    Returns gammas ``[C]``, differences ``[C, D]``, and the sums ``[D]`` for gamma = -inf. All sentences walk along
    their envelopes together: the next line is the steeper one that crosses the present one first, of several the
    steepest.
    """
    offset, slope = lists.padded @ weights, lists.padded @ direction  # [S, L]
    least = np.where(lists.there, slope, np.inf).min(axis=1, keepdims=True)
    current = np.argmax(np.where(lists.there & (slope == least), offset, -np.inf), axis=1)  # ties: the first
    rows = np.arange(lists.sentences)
    first = lists.statistics[lists.starts[:-1] + current].sum(axis=0)
    crossings: list[Floats] = []
    changes: list[Floats] = []
    while len(rows):
        here = current[rows, None]
        own, rise = np.take_along_axis(offset[rows], here, 1), slope[rows] - np.take_along_axis(slope[rows], here, 1)
        steeper = lists.there[rows] & (rise > 0)
        gamma = np.divide(own - offset[rows], rise, out=np.full(rise.shape, np.inf), where=steeper)
        nearest = gamma.min(axis=1)
        goes_on = nearest < np.inf
        rows, nearest, gamma, rise = rows[goes_on], nearest[goes_on], gamma[goes_on], rise[goes_on]
        meets = gamma == nearest[:, None]
        highest = np.where(meets, rise, -np.inf).max(axis=1, keepdims=True)
        steepest = meets & (rise == highest)
        after = np.argmax(np.where(steepest, offset[rows], -np.inf), axis=1)  # equal lines: the first
        start = lists.starts[rows]
        crossings.append(nearest)
        changes.append(lists.statistics[start + after] - lists.statistics[start + current[rows]])
        current[rows] = after
    return np.concatenate(crossings), np.concatenate(changes), first


def _middle(left: float, right: float) -> float:
    if left == -np.inf and right == np.inf:
        return 0.0
    if left == -np.inf:
        return right - STEP
    return left + STEP if right == np.inf else left + (right - left) / 2


def mert(
    lists: FeatureLists,
    weights: Floats,
    bounds: Floats,
    *,
    restarts: int = 20,
    directions: int = 20,
    generator: np.random.Generator,
) -> Floats:
    """The weights ``[F]`` with the best metric on the lists; the first one keeps its value.

    ``bounds`` ``[F, 2]``: the lowest and highest value of each weight. The first start is ``weights``; the
    ``restarts`` others are random. From each start, searches along each axis and along ``directions`` random lines
    follow each other until none of them finds anything better. The first of equally good results is returned.
    """
    starts = [weights, *(_random_start(weights, bounds, generator) for _ in range(restarts))]
    return max((_climbed(lists, start, bounds, directions, generator) for start in starts), key=lists.score)


def _climbed(
    lists: FeatureLists, weights: Floats, bounds: Floats, directions: int, generator: np.random.Generator
) -> Floats:
    """A point from which no line leads to a better one."""
    score, size = lists.score(weights), len(weights)
    fixed = bounds[:, 0] == bounds[:, 1]
    fixed[0] = True
    while True:
        lines = np.concatenate([np.eye(size), generator.normal(size=(directions, size))])
        lines[:, fixed] = 0.0
        before = score
        for line in lines[lines.any(axis=1)]:
            gamma, expected = line_search(lists, weights, line, *_range(weights, line, bounds))
            if expected > score:
                moved = weights + gamma * line
                reached = lists.score(moved)  # rounding can lose what a very narrow interval promises
                if reached > score:
                    weights, score = moved, reached
        if score == before:
            return weights


def _range(weights: Floats, line: Floats, bounds: Floats) -> tuple[float, float]:
    """The gammas for which the weights are within their bounds."""
    moving = np.flatnonzero(line)
    with np.errstate(invalid="ignore"):
        ends = np.sort((bounds[moving] - weights[moving, None]) / line[moving, None], axis=1)
    return min(0.0, float(ends[:, 0].max(initial=-np.inf))), max(0.0, float(ends[:, 1].min(initial=np.inf)))


def _random_start(weights: Floats, bounds: Floats, generator: np.random.Generator) -> Floats:
    """Weights whose sizes relative to the first one are drawn from a wide distribution, within the bounds."""
    scale = abs(weights[0]) or 1.0
    drawn = scale * generator.standard_cauchy(len(weights))
    found: Floats = np.clip(drawn, bounds[:, 0], bounds[:, 1])
    found[0] = weights[0]
    return found


def grid(lists: FeatureLists, points: Sequence[Sequence[float]]) -> Floats:
    """The best of some weights ``[P, F]``; of equally good ones the first."""
    return max((np.array(point, np.float64) for point in points), key=lists.score)

