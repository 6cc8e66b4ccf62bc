"""Pools of slots for tensor states: one tensor holds the vectors of many prefixes; each prefix has a small handle.

One ``index_select`` gathers a batch of states, whatever steps its rows were computed in. A state keeps only its own
slot in use, and the slot is free again when the last reference to its handle is gone. If a model looks back at all
earlier steps, the handle is a trail of slots, one per step. Prefixes share the slots of their common steps, and these
are never copied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, count, repeat
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from sgdec.arrays import Flags

if TYPE_CHECKING:
    from torch import Tensor

FIRST_CAPACITY = 256


class Slot:
    """The handle of one row. Its slot is free again when the last reference to the handle is gone.

    A handle is a state or part of one. Two handles are equal only if they are the same object.
    """

    __slots__ = ("_free", "number")

    def __init__(self, number: int, free: list[int]) -> None:
        self.number = number
        self._free = free

    def __del__(self) -> None:
        self._free.append(self.number)


class SlotPool:
    """Rows of several tensors, ``[capacity, ...]`` each; the capacity grows by doubling.

    Tensors of which `by_head` is true are ``[heads, capacity, ...]``, so that what `get` returns has the rows of each
    head together.

    ``docs/howto/plugins.md`` has a predictor that uses a pool.

    >>> import torch
    >>> pool = SlotPool()
    >>> first, second = pool.put((torch.tensor([[1.0], [2.0]]),))
    >>> pool.get([second, first, second])[0].flatten().tolist()
    [2.0, 1.0, 2.0]
    >>> del second
    >>> pool.used
    1
    """

    def __init__(self, by_head: Callable[[int], bool] = lambda tensor: False) -> None:
        self._by_head = by_head
        self._axes: tuple[int, ...] = ()
        """The axis of the slots in each tensor."""
        self._tensors: tuple[Tensor, ...] = ()
        self._free: list[int] = []

    @property
    def capacity(self) -> int:
        return self._tensors[0].shape[self._axes[0]] if self._tensors else 0

    @property
    def used(self) -> int:
        return self.capacity - len(self._free)

    def put(self, rows: Sequence[Tensor]) -> list[Slot]:
        """Copy row i of all tensors into a free slot; return n handles in the order of the rows.

        ``rows``: ``[n, ...]`` or ``[heads, n, ...]`` each. The first rows determine dtypes and device. Raises
        ValueError for rows that require gradients, because a pool of such rows would keep the computation graph of
        every earlier step in memory.

        Handles can be deleted at any moment, even during this call. So slot numbers are popped one by one, and each
        gets its handle before any operation that can fail.
        """
        self._axes = self._axes or tuple(int(self._by_head(number)) for number in range(len(rows)))
        wanted = rows[0].shape[self._axes[0]]
        if not wanted:
            return []
        if any(tensor.requires_grad for tensor in rows):
            raise ValueError("these rows require gradients: compute them under torch.inference_mode()")
        if len(self._free) < wanted:
            self._grow(rows, wanted)
        slots = [Slot(self._free.pop(), self._free) for _ in range(wanted)]
        where = _numbers(slots, rows[0])
        for axis, tensor, new in zip(self._axes, self._tensors, rows, strict=True):
            tensor.index_copy_(axis, where, new)
        return slots

    def get(self, slots: Sequence[Slot]) -> tuple[Tensor, ...]:
        """The rows of these handles: for every tensor ``[len(slots), ...]``."""
        return self.part(slots, slice(None))

    def part(self, slots: Sequence[Slot], tensors: slice) -> tuple[Tensor, ...]:
        """The rows of these handles, from a slice of the tensors."""
        where = _numbers(slots, self._tensors[0])
        chosen = zip(self._axes[tensors], self._tensors[tensors], strict=True)
        return tuple(tensor.index_select(axis, where) for axis, tensor in chosen)

    def _grow(self, rows: Sequence[Tensor], wanted: int) -> None:
        old = self.capacity
        new = max(2 * old, FIRST_CAPACITY)
        while new - old + len(self._free) < wanted:
            new *= 2
        larger = tuple(
            row.new_empty(*row.shape[:axis], new, *row.shape[axis + 1 :])
            for axis, row in zip(self._axes, rows, strict=True)
        )
        for axis, tensor, before in zip(self._axes, larger, self._tensors, strict=False):
            tensor.narrow(axis, 0, old).copy_(before)
        self._tensors = larger
        self._free[:0] = range(new - 1, old - 1, -1)  # changed in place, because handles refer to this list


def _numbers(slots: Sequence[Slot], like: Tensor) -> Tensor:
    """The slot numbers as an index tensor ``[n]`` on the device of ``like``."""
    import torch

    return torch.tensor([slot.number for slot in slots], dtype=torch.int64, device=like.device)


Trail: TypeAlias = tuple[Slot, ...]
"""The handle of a prefix: the slots of the earlier steps that the model looks back at, then that of the last step."""


class Union(NamedTuple):
    """The slots of many trails, grouped by sentence; a slot that several trails of a sentence share is there once."""

    slots: list[Slot]
    """``[sentences * width]``; after the slots of a sentence, an arbitrary one fills the rest of the width."""
    seen: Flags
    """``[sentences, most, width]``: which slots belong to which trail of a sentence."""

    @classmethod
    def of(cls, trails: Sequence[Sequence[Trail]], *, room: int = 0) -> Union:
        """``trails``: by sentence; at least one has a slot. ``room``: the number of places to leave at the end of
        each sentence, of which trail i sees the i-th.

        >>> a, b, c = (Slot(number, []) for number in range(3))
        >>> union = Union.of([[(a, b), (a, c)], [(b,)]])
        >>> [slot.number for slot in union.slots], union.seen.astype(int).tolist()
        ([0, 1, 2, 1, 0, 0], [[[1, 1, 0], [1, 0, 1]], [[1, 0, 0], [0, 0, 0]]])
        """
        places = [dict(zip(dict.fromkeys(chain.from_iterable(own)), count(), strict=False)) for own in trails]
        width = max(map(len, places)) + room
        filler = next(slot for own in places for slot in own)
        slots: list[Slot] = []
        rows: list[int] = []
        lengths: list[int] = []
        columns: list[int] = []
        most = max(map(len, trails))
        for sentence, (own, at) in enumerate(zip(trails, places, strict=True)):
            slots += at
            slots += (filler,) * (width - len(at))
            rows += range(sentence * most, sentence * most + len(own))
            for trail in own:
                lengths.append(len(trail))
                columns += map(at.__getitem__, trail)
        seen = np.zeros((len(trails) * most, width), np.bool_)
        seen[np.repeat(rows, lengths), columns] = True
        by_sentence = seen.reshape(len(trails), most, width)
        by_sentence[:, range(room), range(width - room, width)] = True
        return cls(slots, by_sentence)


class PrefixPool:
    """The states of a model after each step, as `sgdec.models.base` describes them, and its outputs.

    A state is a tuple of tensors with one row per prefix. The last tensors may be *histories*,
    ``[rows, steps, ...]``, to which each step appends an entry.

    >>> import torch
    >>> pool = PrefixPool(histories=1)
    >>> (a,) = pool.put((torch.tensor([1]), torch.tensor([[[7.0]]])), torch.tensor([[0.5]]))
    >>> (b,) = pool.put((torch.tensor([2]), torch.tensor([[[7.0], [8.0]]])), torch.tensor([[0.6]]), before=[a])
    >>> [part.tolist() for part in pool.states([b, b])]
    [[2, 2], [[[7.0], [8.0]], [[7.0], [8.0]]]]
    """

    def __init__(self, histories: int = 0, *, block: int = 1, heads: int = 0) -> None:
        """``histories``: the number of histories in a state; they are padded to multiples of ``block`` steps.

        ``heads``: the number of heads whose keys and values are in an entry, for `shared`; 0 = `states` is asked.
        """
        tensors = 2 * histories if heads else histories
        self._place = -1 - tensors
        """The place of the first history entry in a slot: after the other tensors of a state, before the output."""
        self._histories, self._block, self._heads = histories, block, heads
        self._width = 0
        """The number of tensors in a slot."""
        self._pool = SlotPool(lambda tensor: heads > 0 and 0 <= tensor - (self._width + self._place) < tensors)

    @property
    def capacity(self) -> int:
        return self._pool.capacity

    @property
    def used(self) -> int:
        """The number of steps that a prefix still needs."""
        return self._pool.used

    def put(self, state: Sequence[Tensor], output: Tensor, before: Sequence[Trail] | None = None) -> list[Trail]:
        """Store a step; return the handles of the prefixes after it.

        ``state``: the state after the step, with the new entries last in its histories. ``output``: ``[rows, H]``.
        ``before``: the handles of the prefixes without their last tokens; None for empty prefixes.
        """
        own, histories = state[: len(state) - self._histories], state[len(state) - self._histories :]
        entries = [history[:, -1] for history in histories]
        if self._heads:
            halves = [half for entry in entries for half in entry.chunk(2, 1)]
            entries = [half.unflatten(1, (self._heads, -1)).transpose(0, 1) for half in halves]
        self._width = len(own) + len(entries) + 1
        slots = self._pool.put((*own, *entries, output))
        if before is None or not self._histories:
            return [(slot,) for slot in slots]
        return [(*trail, slot) for trail, slot in zip(before, slots, strict=True)]

    def states(self, prefixes: Sequence[Trail]) -> tuple[Tensor, ...]:
        """The state tensors for the model's next step, one row per prefix.

        Shorter histories are padded in front with arbitrary finite numbers. The model knows the number of valid
        entries of each row from another tensor of the state (`sgdec.models.base`).
        """
        own = self._pool.part([trail[-1] for trail in prefixes], slice(0, self._place))
        if not self._histories:
            return own
        longest = max(map(len, prefixes))
        longest += -longest % self._block
        slots = [slot for trail in prefixes for slot in (*repeat(trail[-1], longest - len(trail)), *trail)]
        parts = self._pool.part(slots, slice(self._place, -1))
        return (*own, *(part.view(len(prefixes), longest, *part.shape[1:]) for part in parts))

    def shared(
        self, prefixes: Sequence[Trail], owners: Sequence[int]
    ) -> tuple[tuple[Tensor, ...], list[tuple[Tensor, Tensor]], Flags]:
        """As `states`, but the prefixes of a sentence share the entries of their histories. For pools with ``heads``.

        ``owners``: the number of the sentence of each prefix. Returns the other state tensors, for each history its
        keys and values ``[heads, sentences, width, D]``, and which of them each prefix of a sentence sees
        ``[sentences, most, width]``. The last ``most`` places are room for new tokens: each prefix sees its own.
        """
        own = self._pool.part([trail[-1] for trail in prefixes], slice(0, self._place))
        trails: list[list[Trail]] = [[] for _ in range(1 + max(owners))]
        for owner, trail in zip(owners, prefixes, strict=True):
            trails[owner].append(trail)
        union = Union.of(trails, room=max(map(len, trails)))
        shape = len(trails), union.seen.shape[2]
        parts = [part.unflatten(1, shape) for part in self._pool.part(union.slots, slice(self._place, -1))]
        return own, list(zip(parts[::2], parts[1::2], strict=True)), union.seen

    def outputs(self, prefixes: Sequence[Trail]) -> Tensor:
        """``[rows, H]``: the outputs, which the model projects to the scores of the next token."""
        return self._pool.part([trail[-1] for trail in prefixes], slice(-1, None))[0]
