"""The best cells of a matrix of scores, of several rows together.

A plain sort of all sums of a beam would cost more than everything else in a step. As in `sgdec.topk`, each row is
first reduced to the maxima of interleaved blocks, which is one vectorised pass. The k-th highest of all maxima is no
higher than the k-th best cell, so the few cells that reach it include the k best. The matrix can be on any device;
only the maxima and the chosen blocks are copied to the host.
"""

from __future__ import annotations

import math
import sys
from itertools import pairwise

import numpy as np

from sgdec import arrays
from sgdec.arrays import Array, Floats, Ints
from sgdec.protocol import FORBIDDEN
from sgdec.topk import BLOCK

EXACT = 1e-12
"""A relative error that a few additions in float64 stay below."""
LEAST = -sys.float_info.max
"""The lowest finite number: only -inf is below it."""


def best_cells(
    values: Array,
    before: Floats,
    groups: Ints,
    k: int,
    *,
    end: int,
    width: float = math.inf,
    rounding: float = 0.0,
    beside: Floats | float = 0.0,
) -> tuple[Ints, Ints]:
    """Rows and tokens of the cells with the k best totals of each group of rows, and of a few others; not sorted.

    ``values [R, V]``; ``before [R]``: added to each row; ``groups [R]``: the group of each row, ascending. The token
    ``end`` is left out, and so are cells more than ``width`` below the best cell of their row, which can be that of
    ``end``. A value v has an error of at most ``rounding * (|v| + beside)``; ``beside [R]``. The result includes all
    cells that can tie with the k-th best if errors are taken into account, and every NaN, but no cell of -inf.
    """
    rows, tokens = values.shape
    blocks = tokens // BLOCK  # block b: tokens b, b + blocks, b + 2 * blocks, ...
    covered = BLOCK * blocks
    grid, rest = values[:, :covered].reshape(rows, BLOCK, blocks), arrays.to_numpy(values[:, covered:])
    maxima = np.concatenate([arrays.to_numpy(arrays.maximum(grid)), rest], axis=1, dtype=np.float64)
    of_end = _take_out(end, maxima, grid)  # [R, blocks + rest]
    lowest = np.full(rows, LEAST)
    if width < math.inf:
        best = np.maximum(maxima.max(axis=1, initial=FORBIDDEN), of_end)
        size = np.abs(np.where(np.isfinite(best), best, 0.0)) + width
        lowest = np.fmax(best - width - 2 * rounding * (size + beside) - EXACT * (size + np.abs(before)), LEAST)
        maxima[maxima < lowest[:, None]] = FORBIDDEN
    sums = maxima + before[:, None]
    for start, stop in _extents(groups):
        least = _kth_best(sums[start:stop].ravel(), k)
        if math.isfinite(least):
            reach = least - before[start:stop]
            magnitude = np.abs(reach)
            slack = EXACT * (magnitude + abs(least))
            if rounding:
                slack += 2 * rounding * (magnitude + np.broadcast_to(beside, rows)[start:stop])
            np.maximum(lowest[start:stop], reach - slack, out=lowest[start:stop])
    at_row, block = np.nonzero(~(maxima[:, :blocks] < lowest[:, None]))  # written so that a NaN stays in
    found, place = np.nonzero(~(arrays.blocks(grid, at_row, block) < lowest[at_row, None]))
    row, token = at_row[found], block[found] + place * blocks
    others = token != end
    if not others.all():
        row, token = row[others], token[others]
    if covered < tokens:
        also, beyond = np.nonzero(~(maxima[:, blocks:] < lowest[:, None]))
        if len(also):
            row, token = np.concatenate([row, also]), np.concatenate([token, beyond + covered])
    return row, token


def _take_out(end: int, maxima: Floats, grid: Array) -> Floats:
    """The values of token ``end`` ``[R]``; removes them from the maxima."""
    blocks = grid.shape[2]
    place = blocks + end - BLOCK * blocks
    if place >= maxima.shape[1]:
        return np.full(len(maxima), FORBIDDEN)
    if place >= blocks:
        of_end = maxima[:, place].copy()
        maxima[:, place] = FORBIDDEN
        return of_end
    place, block = divmod(end, blocks)
    column = arrays.to_numpy(grid[:, :, block]).astype(np.float64)  # [R, BLOCK]
    of_end = column[:, place].copy()
    column[:, place] = FORBIDDEN
    column.max(axis=1, out=maxima[:, block])
    return of_end


def _extents(groups: Ints) -> list[tuple[int, int]]:
    """The first row of each group, and the row after its last one."""
    if not len(groups) or groups[0] == groups[-1]:
        return [(0, len(groups))] if len(groups) else []
    return list(pairwise([*np.flatnonzero(np.diff(groups, prepend=-1)).tolist(), len(groups)]))


def _kth_best(values: Floats, k: int) -> float:
    """The k-th highest value, where NaN counts as the highest; -inf if there are fewer than k."""
    place = len(values) - k
    return float(np.partition(values, place)[place]) if place >= 0 else FORBIDDEN
