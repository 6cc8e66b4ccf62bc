"""Arrays: their types, and the same code for NumPy arrays and torch tensors.

`namespace` returns the functions of the Python array API standard (data-apis.org, version 2024.12) for an array or a
tensor, and `Copies` has the copies of arrays on the devices of tensors. The other functions are the few that a
combination of scores needs. torch is imported only for tensors, so symbolic constellations run without it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from sgdec.errors import SgdecError

if TYPE_CHECKING:
    import torch

Array: TypeAlias = "npt.NDArray[Any] | torch.Tensor"
Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]
Flags: TypeAlias = npt.NDArray[np.bool_]
Put: TypeAlias = Callable[[Any], Any]
"""Copies an array to a device; None stays None."""
T = TypeVar("T")

FORBIDDEN = -math.inf
"""The score of a token that cannot follow, whatever the weight."""
MORE = 1 << 31
"""A number above all tokens and all rows: the keys row * `MORE` + token ascend, row by row."""


class _NumPy:
    """The functions of NumPy.

    Four of them are methods of arrays or skip a layer: ``numpy.repeat(x, counts)`` calls ``x.repeat(counts)`` through
    layers of Python, which take longer than the work for a few hundred numbers.
    """

    def __init__(self) -> None:
        self.nonzero = np.ndarray.nonzero
        self.repeat = np.ndarray.repeat
        self.searchsorted = np.ndarray.searchsorted
        self.unique_inverse = partial(np.unique, return_inverse=True)

    def __getattr__(self, name: str) -> Any:
        """Any other function, which is looked up once."""
        found = self.__dict__[name] = getattr(np, name)
        return found


_NUMPY = _NumPy()


def namespace(array: Any) -> Any:
    """The functions for a NumPy array or a torch tensor, by their names in the standard.

    Raises SgdecError for a tensor if array-api-compat is not installed.

    >>> xp = namespace(np.zeros(2))
    >>> xp.repeat(xp.arange(2), np.array([1, 3])).tolist()
    [0, 1, 1, 1]
    """
    if isinstance(array, np.ndarray):
        return _NUMPY
    try:
        import array_api_compat.torch
    except ImportError as error:
        raise SgdecError(f'arcs of tensors need array-api-compat: {error} (pip install "sgdec[nmt]").') from None
    return array_api_compat.torch


class Copies(Generic[T]):
    """Copies of arrays, or of objects with arrays, on the devices of the tensors that they are used with.

    A copy is made when it is first needed. `drop` frees the copies; call it when the arrays change.
    """

    def __init__(self, move: Callable[[T, Put], T]) -> None:
        """``move(original, put)``: the same with ``put(array)`` in place of the arrays that computations read."""
        self._move = move
        self._by_device: dict[Any, T] = {}

    def beside(self, original: T, array: Any) -> T:
        """``original`` if ``array`` is a NumPy array; for a tensor, the copy of ``original`` on its device."""
        if isinstance(array, np.ndarray):
            return original
        device = array.device
        if device not in self._by_device:
            self._by_device[device] = self._move(original, partial(_put, device))
        return self._by_device[device]

    def drop(self) -> None:
        """Forget all copies."""
        self._by_device.clear()


def _put(device: Any, array: Any) -> Any:
    """A tensor with the same numbers; unsigned ones become int64, because torch computes little with them."""
    import torch

    if array is None:
        return None
    return torch.tensor(array.astype(np.int64) if array.dtype.kind == "u" else array, device=device)


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
    """The maximum of each block: ``[rows, BLOCK, blocks]`` -> ``[rows, blocks]``; NaN if a block has one.

    Two steps, first over an eighth of each block: a step over few long lines takes a fraction of the time of one over
    many short ones.
    """
    rows, size, width = grid.shape
    if size > 8 and size % 8 == 0:
        grid = maximum(grid.reshape(rows, 8, size // 8 * width)).reshape(rows, size // 8, width)
    found: Array = grid.max(axis=1) if isinstance(grid, np.ndarray) else grid.amax(dim=1)
    return found


def blocks(grid: Array, at_rows: Ints, at_blocks: Ints) -> npt.NDArray[Any]:
    """The blocks at these positions: ``[rows, BLOCK, blocks]`` -> ``[n, BLOCK]``; only these leave another device."""
    if isinstance(grid, np.ndarray) or grid.device.type == "cpu":
        return to_numpy(grid)[at_rows, :, at_blocks]
    import torch

    index = torch.from_numpy(np.stack([at_rows, at_blocks])).to(grid.device)
    return to_numpy(grid[index[0], :, index[1]])


def magnitudes(values: Array) -> Floats:
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


def pick(values: Array, at_rows: Ints, at_tokens: Ints) -> Array:
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


def allowing(values: Array, allowed: Flags) -> Array:
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


def weigh(scores: Floats, factors: Floats | np.float64) -> Floats:
    """Scores times factors, with broadcasting. -inf stays -inf; the result for +inf is +inf or NaN.

    The scores may be a tensor if there is only one factor.
    """
    if (factors == 1.0).all():
        return scores
    xp, forbidden, scores = namespace(scores), scores == FORBIDDEN, without_inf(scores)
    weighed: Floats = xp.where(forbidden, FORBIDDEN, xp.where(forbidden, 0.0, scores) * factors)
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
