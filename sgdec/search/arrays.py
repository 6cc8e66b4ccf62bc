"""The few array operations of combination, for NumPy arrays and torch tensors alike.

Torch is never imported here but by those who already hold a tensor, so symbolic constellations run without it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sgdec.protocol import FORBIDDEN, Array


def to_numpy(values: Array) -> npt.NDArray[Any]:
    """The same values in NumPy; without a copy where they are on the CPU."""
    return values if isinstance(values, np.ndarray) else values.detach().cpu().numpy()


def like(values: Array, given: npt.NDArray[Any]) -> Any:
    """A small array, where ``values`` is and in its type."""
    if isinstance(values, np.ndarray):
        return given.astype(values.dtype)
    import torch

    return torch.from_numpy(given).to(values)


def rows(values: Array, places: Sequence[int]) -> Array:
    """Some rows of a matrix, in that order: ``[rows, V]`` -> ``[len(places), V]``."""
    return values[list(places)]


def pick(values: Array, at_rows: npt.NDArray[np.int64], at_tokens: npt.NDArray[np.int64]) -> Array:
    """Single scores: ``[rows, V]`` -> ``[n]``; only these leave another device."""
    if isinstance(values, np.ndarray) or values.device.type == "cpu":
        return to_numpy(values)[at_rows, at_tokens]
    import torch

    index = torch.from_numpy(np.stack([at_rows, at_tokens])).to(values.device)
    return values[index[0], index[1]]


def add(left: Array, right: Array) -> Array:
    """The sum, as a tensor if either is one: an array is converted here, once, to the tensor's type."""
    if isinstance(left, np.ndarray) != isinstance(right, np.ndarray):
        if isinstance(left, np.ndarray):
            left, right = right, left
        right = like(left, to_numpy(right))
    total: Array = left + right
    return total


def weighted(values: Array, weights: Sequence[float | None]) -> Array:
    """Each row times its weight; a row whose weight is None becomes 0, and -inf stays -inf in all others.

    +inf, which is no score, becomes or stays what cannot be overlooked: +inf or NaN.
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


def forbidding(values: Array, tokens: npt.NDArray[np.integer[Any]]) -> Array:
    """A copy in which these tokens of every row are forbidden."""
    copy: Array = values.copy() if isinstance(values, np.ndarray) else values.clone()
    copy[:, tokens] = FORBIDDEN
    return copy


def without_inf(values: Any) -> Any:
    """NaN for +inf, which a negative weight would make -inf."""
    if isinstance(values, np.ndarray):
        return np.where(values == math.inf, math.nan, values) if values.max(initial=0.0) == math.inf else values
    return values.masked_fill(values == math.inf, math.nan)


def infinite(values: Any) -> Any:
    """Which of these are no finite numbers."""
    return ~np.isfinite(values) if isinstance(values, np.ndarray) else ~values.isfinite()


def forbidden(values: Any, flags: Any) -> Any:
    """Which of these are -inf; where ``flags`` is, of the same shape."""
    found = values == FORBIDDEN
    return like(flags, found) if isinstance(found, np.ndarray) else found


def weigh(scores: npt.NDArray[np.float64], factors: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Scores times factors, which broadcast; -inf stays -inf, and +inf becomes or stays +inf or NaN."""
    if (factors == 1.0).all():
        return scores
    forbidden, scores = scores == FORBIDDEN, without_inf(scores)
    return np.where(forbidden, FORBIDDEN, np.where(forbidden, 0.0, scores) * factors)


def checked(add_up: Callable[[], Any], refuse: Callable[[Any], None]) -> Any:
    """``add_up()``, a sum of arrays or tensors. Where it may have overflowed, ``refuse(sum)`` looks at each number.

    NumPy overflows by the processor's flags, so that what goes well costs nothing; of a tensor the sum tells.
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
