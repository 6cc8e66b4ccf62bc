"""Pools of slots for tensor states: many prefixes' vectors in one tensor, each prefix a small handle.

Whatever steps its rows came from, a batch of states is gathered by one ``index_select``, and a state keeps nothing
alive but its own slot: it is free again as soon as nobody holds the handle. Where a model looks back at all steps
before, the handle is a trail of slots, one per step: what prefixes have in common is there once, and is never copied
from one to the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from torch import Tensor

FIRST_CAPACITY = 256


class Slot:
    """A handle of one row; its slot is free again when the last reference to the handle goes.

    It is the state, or part of one. Two handles are equal only if they are the same one.
    """

    __slots__ = ("_free", "number")

    def __init__(self, number: int, free: list[int]) -> None:
        self.number = number
        self._free = free

    def __del__(self) -> None:
        self._free.append(self.number)


class SlotPool:
    """Rows of several tensors, ``[capacity, ...]`` each; grows by doubling.

    ``docs/howto/plugins.md`` has a predictor with one.

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
        """Copies row i of all tensors, ``[n, ...]`` each, into the slot of handle i.

        The first rows decide on types and device. Raises ValueError for rows that require gradients: a pool of them
        would keep the computation of every step before alive.

        Handles may go at any moment, also while this runs. So numbers are popped one by one, and have their handles
        before anything that can fail.
        """
        wanted = len(rows[0])
        if not wanted:
            return []
        if any(tensor.requires_grad for tensor in rows):
            raise ValueError("these rows require gradients: compute them under torch.inference_mode()")
        if len(self._free) < wanted:
            self._grow(rows, wanted)
        slots = [Slot(self._free.pop(), self._free) for _ in range(wanted)]
        where = _numbers(slots, rows[0])
        for tensor, new in zip(self._tensors, rows, strict=True):
            tensor.index_copy_(0, where, new)
        return slots

    def get(self, slots: Sequence[Slot]) -> tuple[Tensor, ...]:
        """The rows of these handles, ``[len(slots), ...]`` of every tensor."""
        return self.part(slots, slice(None))

    def part(self, slots: Sequence[Slot], tensors: slice) -> tuple[Tensor, ...]:
        """The same of some of the tensors."""
        where = _numbers(slots, self._tensors[0])
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


def _numbers(slots: Sequence[Slot], like: Tensor) -> Tensor:
    """As an index, on the device of ``like``."""
    import torch

    return torch.tensor([slot.number for slot in slots], dtype=torch.int64, device=like.device)


Trail: TypeAlias = tuple[Slot, ...]
"""The handle of a prefix: the slot of its last step, behind those of earlier steps that a model looks back at."""


class PrefixPool:
    """The outputs of a model's steps: its states, as `sgdec.models.base` describes them, and its outputs.

    A state is a tuple of tensors with a row a prefix. The last ones may be *histories*, ``[rows, steps, ...]``, to
    which each step appends an entry.

    >>> import torch
    >>> pool = PrefixPool(histories=1)
    >>> (a,) = pool.put((torch.tensor([1]), torch.tensor([[[7.0]]])), torch.tensor([[0.5]]))
    >>> (b,) = pool.put((torch.tensor([2]), torch.tensor([[[7.0], [8.0]]])), torch.tensor([[0.6]]), before=[a])
    >>> [part.tolist() for part in pool.states([b, b])]
    [[2, 2], [[[7.0], [8.0]], [[7.0], [8.0]]]]
    """

    def __init__(self, histories: int = 0, *, block: int = 1) -> None:
        """``histories``: how many tensors of a state are histories; padded to multiples of ``block`` steps."""
        self._pool = SlotPool()
        self._place = -1 - histories
        """Behind a state's own tensors come the newest entries of its histories, and then the output."""
        self._histories, self._block = histories, block

    @property
    def capacity(self) -> int:
        return self._pool.capacity

    @property
    def used(self) -> int:
        """Steps that some prefix still needs."""
        return self._pool.used

    def put(self, state: Sequence[Tensor], output: Tensor, before: Sequence[Trail] | None = None) -> list[Trail]:
        """The handles of prefixes after a step: of empty ones, or of ``before`` and one token more.

        ``state``: after the step, histories with the new entry last. ``output``: ``[rows, H]``.
        """
        own, histories = state[: len(state) - self._histories], state[len(state) - self._histories :]
        slots = self._pool.put((*own, *(history[:, -1] for history in histories), output))
        if before is None or not self._histories:
            return [(slot,) for slot in slots]
        return [(*trail, slot) for trail, slot in zip(before, slots, strict=True)]

    def states(self, prefixes: Sequence[Trail]) -> tuple[Tensor, ...]:
        """The inputs of the model's next step.

        Shorter histories are padded in front, with anything finite: a model counts each row's entries in a tensor of
        its own (`sgdec.models.base`).
        """
        own = self._pool.part([trail[-1] for trail in prefixes], slice(0, self._place))
        if not self._histories:
            return own
        longest = max(map(len, prefixes))
        longest += -longest % self._block
        slots = [slot for trail in prefixes for slot in (*repeat(trail[-1], longest - len(trail)), *trail)]
        parts = self._pool.part(slots, slice(self._place, -1))
        return (*own, *(part.view(len(prefixes), longest, *part.shape[1:]) for part in parts))

    def outputs(self, prefixes: Sequence[Trail]) -> Tensor:
        """``[rows, H]``: what the model projects to the scores of the next token."""
        return self._pool.part([trail[-1] for trail in prefixes], slice(-1, None))[0]
