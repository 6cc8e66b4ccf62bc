"""The k best tokens of dense rows; ties go to the lower token.

In a fast search step, a partial sort of whole rows would take most of the time. So each row is first reduced to
the maxima of interleaved blocks, which vectorises well. The k-th highest maximum is a lower bound on the k-th best
score. So the tokens that reach this bound, all of them in blocks whose maxima reach it, include the k best and all
tokens that tie with these. Only these few tokens are sorted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sgdec.arrays import Array, Ints, maximum, to_numpy

if TYPE_CHECKING:
    import torch

BLOCK = 64
"""The number of tokens per block."""


def top_tokens(values: Array, k: int) -> Ints:
    """The k best tokens of each row, best first: ``[rows, V]`` -> ``[rows, min(k, V)]``.

    Order: higher score, then lower token. NaN counts as the highest score, so that later checks find it.
    """
    k = min(k, values.shape[-1])
    if isinstance(values, np.ndarray):
        return _top_numpy(values, k)
    if values.device.type == "cpu":
        return _top_numpy(values.numpy(), k)
    return _top_torch(values, k)


def _top_numpy(values: npt.NDArray[Any], k: int) -> Ints:
    rows, width = values.shape
    blocks = width // BLOCK  # block b: tokens b, b + blocks, b + 2 * blocks, ...
    if blocks <= 2 * k:
        at_row, tokens = np.nonzero(~(values < _kth_best(values, k)))  # negated, so that NaN is included
    else:
        covered = BLOCK * blocks
        grid = values[:, :covered].reshape(rows, BLOCK, blocks)
        maxima = to_numpy(maximum(grid))  # [rows, blocks]
        least = _kth_best(maxima, k)
        at_row, block = np.nonzero(~(maxima < least))
        found, place = np.nonzero(~(grid[at_row, :, block] < least[at_row]))
        at_row, tokens = at_row[found], block[found] + place * blocks
        if covered < width:
            also, beyond = np.nonzero(~(values[:, covered:] < least))
            at_row, tokens = np.concatenate([at_row, also]), np.concatenate([tokens, covered + beyond])
    order = np.lexsort((tokens, _descending(values[at_row, tokens]), at_row))
    starts = np.searchsorted(at_row[order], np.arange(rows))  # where the tokens of each row begin
    best: Ints = tokens[order][starts[:, None] + np.arange(k)]
    return best


def _kth_best(values: npt.NDArray[Any], k: int) -> npt.NDArray[Any]:
    """The k-th best value of each row: ``[rows, n]`` -> ``[rows, 1]``."""
    place = values.shape[1] - k
    return np.partition(values, place, axis=1)[:, place, None]


def _descending(scores: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Sort keys: ascending keys mean descending scores, NaN first."""
    return np.where(np.isnan(scores), -np.inf, -scores)


def _top_torch(values: torch.Tensor, k: int) -> Ints:
    """The same for tensors on another device; only k + 1 scores and tokens per row are copied to the CPU."""
    import torch

    scores, tokens = torch.topk(values, min(k + 1, values.shape[1]), dim=1)
    found, best = tokens.cpu().numpy(), scores.cpu().numpy()
    if best.shape[1] > k:
        for row in np.flatnonzero(best[:, k - 1] == best[:, k]):
            threshold = scores[row, k - 1]
            above = torch.nonzero(~(values[row] <= threshold)).flatten()  # also NaN
            equal = torch.nonzero(values[row] == threshold).flatten()
            chosen = torch.cat([above, equal[: k - len(above)]])
            found[row, :k] = chosen.cpu().numpy()
            best[row, :k] = values[row, chosen].cpu().numpy()
        found, best = found[:, :k], best[:, :k]
    order = np.lexsort((found, _descending(best)))
    return np.take_along_axis(found, order, axis=1)
