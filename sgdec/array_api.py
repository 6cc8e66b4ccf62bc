"""The same code for NumPy arrays and torch tensors, written with the Python array API standard.

`namespace` returns the functions of the standard (data-apis.org, version 2024.12) for an array or a tensor. `Copies`
has the copies of arrays on the devices of tensors. torch is imported only for tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np

from sgdec.errors import SgdecError

__all__ = ["Copies", "Put", "namespace"]

Put: TypeAlias = Callable[[Any], Any]
"""Copies an array to a device; None stays None."""
T = TypeVar("T")


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
