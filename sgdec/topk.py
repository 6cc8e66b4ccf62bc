"""The k best tokens of dense rows, ties broken by the lower token.

A plain partial sort of a whole row is most of the cost of a cheap search step. Here each row is first reduced to
the maxima of interleaved blocks, a pass that vectorises; the k best tokens lie in the k blocks with the highest
maxima, and only those few tokens are sorted. Neither step says which of several equal scores it takes, so rows
with a tie at the boundary are settled by one more look at the whole row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sgdec.protocol import Array

if TYPE_CHECKING:
    import torch

BLOCK = 64
"""Tokens a block."""


def top_tokens(values: Array, k: int) -> npt.NDArray[np.int64]:
    """The k best tokens of each row, best first: ``[rows, V]`` -> ``[rows, min(k, V)]``.

    Order: higher score, then lower token. A NaN counts as the highest score, so that it cannot hide.
    """
    k = min(k, values.shape[-1])
    if isinstance(values, np.ndarray):
        return _top_numpy(values, k)
    if values.device.type == "cpu":
        return _top_numpy(values.numpy(), k)
    return _top_torch(values, k)


def _top_numpy(values: npt.NDArray[Any], k: int) -> npt.NDArray[np.int64]:
    rows, width = values.shape
    every = np.arange(rows)[:, None]
    blocks = width // BLOCK  # block b: tokens b, b + blocks, b + 2 * blocks, ...
    if blocks <= 2 * k:
        maxima, shortlist, inside = None, None, values
    else:
        covered = BLOCK * blocks
        maxima = values[:, :covered].reshape(rows, BLOCK, blocks).max(axis=1)  # [rows, blocks]
        best = maxima.argpartition(blocks - k, axis=1)[:, blocks - k :]  # [rows, k]
        shortlist = (best[:, None, :] + np.arange(0, covered, blocks)[:, None]).reshape(rows, -1)  # [rows, BLOCK k]
        if covered < width:
            tail = np.broadcast_to(np.arange(covered, width), (rows, width - covered))
            shortlist = np.concatenate([shortlist, tail], axis=1)
        inside = values[every, shortlist]
    beyond = inside.shape[1] - k
    pick = inside.argpartition(beyond, axis=1)[:, beyond:]
    tokens = pick if shortlist is None else shortlist[every, pick]  # [rows, k]
    scores = inside[every, pick]
    threshold = scores.min(axis=1, keepdims=True)  # the k-th best score
    tied = (inside >= threshold).sum(axis=1) > k
    if maxima is not None:
        tied |= (maxima >= threshold).sum(axis=1) > k
    if tied.any():
        for row in np.flatnonzero(tied):
            tokens[row] = _settle(values[row], threshold[row], k)
        scores = values[every, tokens]
    return tokens[every, np.lexsort((tokens, _descending(scores)))]


def _settle(values: npt.NDArray[Any], threshold: npt.NDArray[Any], k: int) -> npt.NDArray[np.int64]:
    """All tokens above the k-th best score, and the lowest of those that have it: ``[V]`` -> ``[k]``."""
    above = np.flatnonzero(values > threshold)
    equal = np.flatnonzero(values == threshold)
    return np.concatenate([above, equal[: k - len(above)]])


def _descending(scores: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Keys that sort ascending where scores sort descending, NaN first."""
    return np.where(np.isnan(scores), -np.inf, -scores)


def _top_torch(values: torch.Tensor, k: int) -> npt.NDArray[np.int64]:
    """The same on another device; only k + 1 scores and tokens a row come back."""
    import torch

    scores, tokens = torch.topk(values, min(k + 1, values.shape[1]), dim=1)
    found, best = tokens.cpu().numpy(), scores.cpu().numpy()
    if best.shape[1] > k:
        for row in np.flatnonzero(best[:, k - 1] == best[:, k]):
            threshold = scores[row, k - 1]
            above = torch.nonzero(~(values[row] <= threshold)).flatten()  # a NaN, too
            equal = torch.nonzero(values[row] == threshold).flatten()
            chosen = torch.cat([above, equal[: k - len(above)]])
            found[row, :k] = chosen.cpu().numpy()
            best[row, :k] = values[row, chosen].cpu().numpy()
        found, best = found[:, :k], best[:, :k]
    order = np.lexsort((found, _descending(best)))
    return np.take_along_axis(found, order, axis=1)
