"""A pool of slots for tensor states: many prefixes' vectors in one tensor, each prefix a small handle.

Whatever steps its rows came from, a batch of states is gathered by one ``index_select``, and a state keeps nothing
alive but its own slot: it is free again as soon as nobody holds the handle.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

FIRST_CAPACITY = 256


class Slot:
    """A handle of one row; its slot is free again when the last reference to the handle goes."""

    __slots__ = ("_free", "number")

    def __init__(self, number: int, free: list[int]) -> None:
        self.number = number
        self._free = free

    def __del__(self) -> None:
        self._free.append(self.number)


class SlotPool:
    """Rows of several tensors, ``[capacity, ...]`` each; grows by doubling.

    >>> import torch
    >>> pool = SlotPool()
    >>> first, second = pool.put((torch.tensor([[1.0], [2.0]]),))
    >>> pool.get([second, first, second])[0].flatten().tolist()
    [2.0, 1.0, 2.0]
    >>> del second
    >>> pool.used
    1
    """

    def __init__(self) -> None:
        self._tensors: tuple[Tensor, ...] = ()
        self._free: list[int] = []

    @property
    def capacity(self) -> int:
        return len(self._tensors[0]) if self._tensors else 0

    @property
    def used(self) -> int:
        return self.capacity - len(self._free)

    def put(self, rows: Sequence[Tensor]) -> list[Slot]:
        """Copies row i of all tensors, ``[n, ...]`` each, into the slot of handle i."""
        import torch

        wanted = len(rows[0])
        if len(self._free) < wanted:
            self._grow(rows, wanted)
        numbers = self._free[-wanted:][::-1]
        del self._free[-wanted:]
        where = torch.tensor(numbers, device=rows[0].device)
        for tensor, new in zip(self._tensors, rows, strict=True):
            tensor.index_copy_(0, where, new)
        return [Slot(number, self._free) for number in numbers]

    def get(self, slots: Sequence[Slot]) -> tuple[Tensor, ...]:
        """The rows of these handles, ``[len(slots), ...]`` of every tensor."""
        return self.part(slots, slice(None))

    def part(self, slots: Sequence[Slot], tensors: slice) -> tuple[Tensor, ...]:
        """The same of some of the tensors."""
        import torch

        where = torch.tensor([slot.number for slot in slots], device=self._tensors[0].device)
        return tuple(tensor.index_select(0, where) for tensor in self._tensors[tensors])

    def _grow(self, rows: Sequence[Tensor], wanted: int) -> None:
        old = self.capacity
        new = max(2 * old, FIRST_CAPACITY)
        while new - old + len(self._free) < wanted:
            new *= 2
        larger = tuple(row.new_empty(new, *row.shape[1:]) for row in rows)
        for tensor, before in zip(larger, self._tensors, strict=False):
            tensor[:old] = before
        self._tensors = larger
        self._free[:0] = range(new - 1, old - 1, -1)  # the list itself stays: handles know it
