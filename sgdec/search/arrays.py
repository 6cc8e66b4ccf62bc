"""The few array operations that combination needs, for both NumPy arrays and torch tensors.

These functions import torch only when they are given a tensor, so symbolic constellations run without it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sgdec.array_api import namespace
from sgdec.protocol import FORBIDDEN, Array


def to_numpy(values: Array) -> npt.NDArray[Any]:
    """The same values as a NumPy array; not copied if they are on the CPU."""
    return values if isinstance(values, np.ndarray) else values.detach().cpu().numpy()


def host_row_bytes(values: Array) -> int:
    """The bytes of memory that a row takes: 0 for repeated views of one row, and for rows on another device.

    >>> host_row_bytes(np.zeros((3, 10))), host_row_bytes(np.broadcast_to(np.zeros(10), (3, 10)))
    (80, 0)
    """
    repeated = (values.strides[0] if isinstance(values, np.ndarray) else values.stride(0)) == 0
    return 0 if repeated else values.shape[1] * host_itemsize(values)


def host_itemsize(values: Array) -> int:
    """The bytes of one score; 0 on another device, whose allocator reports by itself that memory is exhausted."""
    if isinstance(values, np.ndarray):
        return values.itemsize
    return values.element_size() if values.device.type == "cpu" else 0


def like(values: Array, given: npt.NDArray[Any]) -> Any:
    """Convert the small array ``given`` to the kind, device and dtype of ``values``."""
    if isinstance(values, np.ndarray):
        return given.astype(values.dtype)
    import torch

    return torch.from_numpy(given).to(values)


def rows(values: Array, places: Sequence[int]) -> Array:
    """The rows at ``places``, in this order: ``[rows, V]`` -> ``[len(places), V]``."""
    return values[list(places)]


def maximum(grid: Array) -> Array:
    """The maximum of each block: ``[rows, BLOCK, blocks]`` -> ``[rows, blocks]``; NaN if a block has one."""
    found: Array = grid.max(axis=1) if isinstance(grid, np.ndarray) else grid.amax(dim=1)
    return found


def blocks(grid: Array, at_rows: npt.NDArray[np.int64], at_blocks: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """The blocks at these positions: ``[rows, BLOCK, blocks]`` -> ``[n, BLOCK]``; only these leave another device."""
    if isinstance(grid, np.ndarray) or grid.device.type == "cpu":
        return to_numpy(grid)[at_rows, :, at_blocks]
    import torch

    index = torch.from_numpy(np.stack([at_rows, at_blocks])).to(grid.device)
    return to_numpy(grid[index[0], :, index[1]])


def magnitudes(values: Array) -> npt.NDArray[np.float64]:
    """The highest finite absolute value of each row: ``[rows, V]`` -> ``[rows]``."""
    if isinstance(values, np.ndarray):
        found: npt.NDArray[Any] = np.abs(np.where(np.isfinite(values), values, 0.0)).max(axis=1)
    else:
        found = to_numpy(values.masked_fill(~values.isfinite(), 0.0).abs().amax(dim=1))
    return found.astype(np.float64)


def precision(values: Array) -> float:
    """The machine epsilon of the type of these values."""
    if isinstance(values, np.ndarray):
        return float(np.finfo(values.dtype).eps)
    import torch

    return torch.finfo(values.dtype).eps


def pick(values: Array, at_rows: npt.NDArray[np.int64], at_tokens: npt.NDArray[np.int64]) -> Array:
    """The scores at n positions: ``[rows, V]`` -> ``[n]``. The rest of the matrix stays on its device."""
    if isinstance(values, np.ndarray) or values.device.type == "cpu":
        return to_numpy(values)[at_rows, at_tokens]
    import torch

    index = torch.from_numpy(np.stack([at_rows, at_tokens])).to(values.device)
    return values[index[0], index[1]]


def add(left: Array, right: Array) -> Array:
    """The sum; if one operand is a tensor, the other is converted to its device and dtype first."""
    if isinstance(left, np.ndarray) != isinstance(right, np.ndarray):
        if isinstance(left, np.ndarray):
            left, right = right, left
        right = like(left, to_numpy(right))
    total: Array = left + right
    return total


def weighted(values: Array, weights: Sequence[float | None]) -> Array:
    """Multiply each row by its weight. A row with weight None becomes 0; in all other rows -inf stays -inf.

    +inf is not a valid score. The result there is +inf or NaN, so that later checks find it.
    """
    if all(weight == 1.0 for weight in weights):
        return values
    factors = like(values, np.array([[weight or 0.0] for weight in weights]))  # [rows, 1]
    if all(weight is not None and weight > 0 for weight in weights):
        product: Array = values * factors
        return product
    values = without_inf(values)
    forbidden = (values == FORBIDDEN) & like(values == FORBIDDEN, np.array([[w is not None] for w in weights]))
    if isinstance(values, np.ndarray):
        finite = np.where(values == FORBIDDEN, 0.0, values) * factors
        return np.where(forbidden, FORBIDDEN, finite).astype(values.dtype)
    product = (values.masked_fill(values == FORBIDDEN, 0.0) * factors).masked_fill(forbidden, FORBIDDEN)
    return product


def allowing(values: Array, allowed: npt.NDArray[np.bool_]) -> Array:
    """A new matrix in which all tokens are forbidden that are not marked; both ``[rows, V]``."""
    if isinstance(values, np.ndarray):
        return np.where(allowed, values, values.dtype.type(FORBIDDEN))
    import torch

    return values.masked_fill(torch.from_numpy(~allowed).to(values.device), FORBIDDEN)


def forbidding(values: Array, tokens: npt.NDArray[np.integer[Any]]) -> Array:
    """A copy of ``values`` in which these tokens are forbidden in every row."""
    copy: Array = values.copy() if isinstance(values, np.ndarray) else values.clone()
    copy[:, tokens] = FORBIDDEN
    return copy


def without_inf(values: Any) -> Any:
    """Replace +inf by NaN, because a negative weight would turn +inf into -inf."""
    if isinstance(values, np.ndarray):
        return np.where(values == math.inf, math.nan, values) if values.max(initial=0.0) == math.inf else values
    return values.masked_fill(values == math.inf, math.nan)


def infinite(values: Any) -> Any:
    """Mask of the values that are NaN or infinite."""
    return ~np.isfinite(values) if isinstance(values, np.ndarray) else ~values.isfinite()


def forbidden(values: Any, flags: Any) -> Any:
    """Mask of the values that are -inf, on the device of ``flags``; both have the same shape."""
    found = values == FORBIDDEN
    return like(flags, found) if isinstance(found, np.ndarray) else found


def weigh(
    scores: npt.NDArray[np.float64], factors: npt.NDArray[np.float64] | np.float64
) -> npt.NDArray[np.float64]:
    """Scores times factors, with broadcasting. -inf stays -inf; the result for +inf is +inf or NaN.

    The scores may be a tensor if there is only one factor.
    """
    if (factors == 1.0).all():
        return scores
    xp, forbidden, scores = namespace(scores), scores == FORBIDDEN, without_inf(scores)
    weighed: npt.NDArray[np.float64] = xp.where(forbidden, FORBIDDEN, xp.where(forbidden, 0.0, scores) * factors)
    return weighed


def checked(add_up: Callable[[], Any], refuse: Callable[[Any], None]) -> Any:
    """Return ``add_up()``, a sum of arrays or tensors; call ``refuse(sum)`` first if the sum may have overflowed.

    ``refuse`` checks each number and raises if one is wrong. For NumPy, the processor's flags report an overflow, so
    the usual case costs nothing. For a tensor, its total is tested.
    """
    try:
        with np.errstate(over="raise", invalid="ignore"):
            total = add_up()
        if isinstance(total, np.ndarray) or math.isfinite(float(total.sum())):
            return total
    except FloatingPointError:
        with np.errstate(over="ignore", invalid="ignore"):
            total = add_up()
    with np.errstate(over="ignore", invalid="ignore"):
        refuse(total)
    return total
