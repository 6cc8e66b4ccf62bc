"""Automata as arrays: what predictors with the ability `arcs` have in common (`sgdec.protocol.ArcsAhead`).

`Numbers` hands out the numbers of states: each sentence gets a range that no other sentence ever has, because
searches cache what follows a state. `Automata` keeps the arcs of the sentences in flight as one automaton. The place
of a sentence is used again once it is released: the scheduler calls `release` when its search ends or fails, when a
later predictor refuses it, and when the caller stops early. `spread` lists ranges of an array one after the other.
All three take NumPy arrays or torch tensors, and answer with the same kind, on the same device.
"""

from __future__ import annotations

import copy
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from sgdec.arrays import MORE, Copies, Floats, Ints, Put, namespace
from sgdec.protocol import FORBIDDEN, Arcs, Listed

__all__ = ["DEAD", "Automata", "Automaton", "Numbers", "joined", "spread"]

DEAD = -1
"""The state after a token that cannot follow, in all automata. Negative states have no arcs."""
ROOM = 1 << 10
"""The least number of rows in an array that can grow."""
LAST_KEY = (1 << 63) - 1
"""A number above all keys of arcs."""


def spread(first: Ints, counts: Ints) -> tuple[Ints, Ints]:
    """The ranges ``first[i], first[i] + 1, ...`` of ``counts[i]`` numbers each, one after the other.

    Returns the offsets ``[R + 1]`` of the ranges in the result, and the numbers ``[n]``.

    >>> [part.tolist() for part in spread(np.array([5, 9]), np.array([3, 2]))]
    [[0, 3, 5], [5, 6, 7, 9, 10]]
    """
    xp, device = namespace(first), first.device
    offsets = xp.zeros(len(first) + 1, dtype=xp.int64, device=device)
    offsets[1:] = counts.cumsum(0)  # xp.cumulative_sum with the initial 0 would take four times as long in NumPy
    shift = xp.repeat(first - offsets[:-1], counts)
    return offsets, xp.arange(len(shift), device=device) + shift


class Numbers:
    """Ranges of state numbers, one for each sentence in flight. No number is handed out twice.

    >>> numbers = Numbers()
    >>> a, b = numbers.take(3), numbers.take(10)
    >>> numbers.places(np.array([a, a + 2, b])).tolist()
    [0, 0, 1]
    >>> numbers.release(a)
    0
    >>> numbers.place(b + 9), numbers.take(1) - b
    (0, 10)
    """

    def __init__(self) -> None:
        self.starts: list[int] = []
        """The first numbers of the ranges in use, ascending."""
        self._as_array: Ints | None = None
        self._copies: Copies[Ints] = Copies(lambda starts, put: put(starts))
        self._next = 0

    def take(self, size: int) -> int:
        """The first number of a new range of ``size`` numbers; its place is the last."""
        start, self._next = self._next, self._next + size
        self.starts.append(start)
        self._forget()
        return start

    def place(self, state: int) -> int:
        """The place of the range of this number among the ranges in use."""
        return bisect_right(self.starts, state) - 1

    def places(self, states: Ints) -> Ints:
        """The place of each number's range ``[n]``; negative numbers are nowhere, at -1."""
        return self.ranks(states) - 1

    def ranks(self, states: Ints) -> Ints:
        """The same counted from 1, so that negative numbers are at 0: ``[n]``."""
        if self._as_array is None:
            self._as_array = np.array(self.starts, np.int64)
        starts = self._copies.beside(self._as_array, states)
        ranks: Ints = namespace(states).searchsorted(starts, states, side="right")
        return ranks

    def release(self, state: int) -> int:
        """Give the range of this number back; return the place that it had."""
        place = self.place(state)
        del self.starts[place]
        self._forget()
        return place

    def _forget(self) -> None:
        self._as_array = None
        self._copies.drop()


class Automaton:
    """A deterministic automaton of S states and n arcs. The arcs of each state have ascending tokens."""

    __slots__ = ("__weakref__", "after", "offsets", "scores", "tokens")
    sums: ClassVar[bool] = False
    """Whether the scores of several paths with the same tokens are added up; see `sgdec.relaxations.Subsets`."""

    def __init__(
        self,
        offsets: Ints,
        tokens: npt.NDArray[np.integer[Any]],
        scores: Floats,
        after: npt.NDArray[np.integer[Any]],
    ) -> None:
        """``offsets [S + 1]``: the first arc of each state; ``tokens [n]``; ``scores [n]``.

        ``after [n]``: the states after the arcs, 0..S-1; a negative state has no arcs.
        """
        self.offsets = offsets
        self.tokens = tokens
        self.scores = scores
        self.after = after

    @property
    def states(self) -> int:
        """S."""
        return len(self.offsets) - 1


def joined(automata: Sequence[Automaton]) -> tuple[Automaton, list[int]]:
    """Several automata as one, and the number that state 0 of each has there. There is at least one.

    >>> chain = Automaton(np.array([0, 1, 1]), np.array([7]), np.array([-0.5]), np.array([1]))
    >>> both, first = joined([chain, chain])
    >>> both.offsets.tolist(), both.after.tolist(), first
    ([0, 1, 1, 2, 2], [1, 3], [0, 2])
    """
    offsets, tokens, scores, after = (
        np.concatenate([getattr(automaton, name) for automaton in automata])
        for name in ("offsets", "tokens", "scores", "after")
    )
    states, arcs = [each.states for each in automata], [len(each.tokens) for each in automata]
    first, before = [0, *accumulate(states)], [0, *accumulate(arcs)]
    after = after + np.repeat(first[:-1], arcs) * (after >= 0)
    offsets = offsets + np.repeat(before[:-1], np.array(states) + 1)
    ends = np.array(first[1:]) + np.arange(len(automata))  # where the next automaton begins too
    return Automaton(np.delete(offsets, ends[:-1]), tokens, scores, after), first[:-1]


class _Arrays:
    """Automata one after the other. A state has one row; row 0, without arcs, is that of all negative states."""

    def __init__(self, rows: int, arcs: int) -> None:
        """Empty arrays with room for ``rows`` and ``arcs``."""
        self.rows, self.arcs = 1, 0
        """The numbers of rows and arcs in use."""
        self.first, self.count = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
        """By row: the first arc, and the number of arcs."""
        self.shift = np.zeros(0, np.int64)
        """By rank of automaton the row of a state minus its number; first a number that makes negative ones row 0."""
        self.tokens, self.scores, self.after = np.zeros(arcs, np.int64), np.zeros(arcs), np.zeros(arcs, np.int64)
        """By arc."""
        self._keys = np.full(arcs, LAST_KEY)
        """By arc: row * `MORE` + token, ascending; as far as they have been needed."""
        self._keyed = 1, 0
        """The numbers of rows and arcs with keys."""

    def have_room(self, rows: int, arcs: int) -> bool:
        return self.rows + rows <= len(self.first) and self.arcs + arcs < len(self.tokens)  # after arcs is LAST_KEY

    def extend(self, automata: Sequence[Automaton], starts: Sequence[int]) -> list[int]:
        """Append automata, whose states 0 have the numbers ``starts``; return the rows of these states."""
        counts = [automaton.offsets[1:] - automaton.offsets[:-1] for automaton in automata]
        sizes = np.array([len(automaton.tokens) for automaton in automata])
        rows = [self.rows, *(self.rows + np.cumsum(list(map(len, counts)))).tolist()]
        row, arc = slice(self.rows, rows[-1]), slice(self.arcs, self.arcs + int(sizes.sum()))
        np.concatenate(counts, out=self.count[row])
        self.first[row] = arc.start + np.cumsum(self.count[row]) - self.count[row]
        for of_all, name in ((self.tokens, "tokens"), (self.scores, "scores"), (self.after, "after")):
            np.concatenate([getattr(automaton, name) for automaton in automata], out=of_all[arc])
        after = self.after[arc]
        after += np.repeat(np.array(starts), sizes) * (after >= 0)
        self.rows, self.arcs = row.stop, arc.stop
        return rows[:-1]

    def keys(self) -> Ints:
        """The keys of all arcs in use, then `LAST_KEY`."""
        (rows, arcs), self._keyed = self._keyed, (self.rows, self.arcs)
        if arcs < self.arcs:
            row = np.repeat(np.arange(rows, self.rows), self.count[rows : self.rows])
            self._keys[arcs : self.arcs] = row * MORE + self.tokens[arcs : self.arcs]
        return self._keys[: self.arcs + 1]

    def moved(self, put: Put) -> _Arrays:
        """The same on another device, for `of` alone."""
        self.keys()
        moved = copy.copy(self)
        for name in ("shift", "first", "count", "tokens", "scores", "after", "_keys"):
            setattr(moved, name, put(getattr(self, name)))
        return moved

    def of(self, states: Ints, ranks: Ints, candidates: Listed | None) -> Arcs:
        """The arcs of these states, or those for candidates. ``ranks [R]``: those of their automata."""
        xp = namespace(states)
        rows = xp.maximum(states + self.shift[ranks], 0)
        if candidates is None:
            offsets, found = spread(self.first[rows], self.count[rows])
            return offsets, self.tokens[found], self.scores[found], self.after[found]
        offsets, tokens = candidates
        keys, wanted = self.keys(), xp.repeat(rows * MORE, offsets[1:] - offsets[:-1]) + tokens
        found = xp.searchsorted(keys, wanted)
        follows = keys[found] == wanted
        scores = xp.where(follows, self.scores[found], FORBIDDEN)
        return offsets, tokens, scores, xp.where(follows, self.after[found], DEAD)


Kind = TypeVar("Kind", bound=Automaton)


class Automata(Generic[Kind]):
    """The automata of the sentences in flight, as one automaton.

    The memory is that of the automata in use, times a constant: places of released ones are used again.

    >>> chain = Automaton(np.array([0, 1, 1]), np.array([7]), np.array([-0.5]), np.array([1]))
    >>> automata = Automata[Automaton]()
    >>> first, second = automata.add(chain), automata.add(chain)
    >>> [part.tolist() for part in automata.arcs(np.array([second, first + 1]), None)]
    [[0, 1, 1], [7], [-0.5], [3]]
    >>> [part.tolist() for part in automata.arcs(np.array([second]), (np.array([0, 2]), np.array([6, 7])))]
    [[0, 2], [6, 7], [-inf, -0.5], [-1, 3]]
    """

    def __init__(self) -> None:
        self._numbers = Numbers()
        self._automata: list[Kind] = []
        """Those in use, in the order of their numbers; the first of them are in the arrays."""
        self._shifts: list[int] = []
        """For each automaton in the arrays: the row of a state minus its number."""
        self._arrays = _Arrays(ROOM, ROOM)
        self._copies = Copies(_Arrays.moved)
        self._is_current = False
        """Whether the arrays are those of the automata in use."""

    def add(self, automaton: Kind) -> int:
        """Add an automaton; return the number of its state 0. Its other states follow."""
        self._automata.append(automaton)
        self._forget()
        return self._numbers.take(automaton.states)

    def find(self, state: int) -> tuple[Kind, int]:
        """The automaton of the state with this number, which is not negative, and the number of its state 0."""
        place = self._numbers.place(state)
        return self._automata[place], self._numbers.starts[place]

    def release(self, state: int) -> None:
        """Forget the automaton of the state with this number."""
        place = self._numbers.release(state)
        del self._automata[place], self._shifts[place : place + 1]
        self._forget()

    def arcs(self, states: Ints, candidates: Listed | None) -> Arcs:
        """The arcs of these states, or those for candidates, as in `sgdec.protocol.ArcsAhead.arcs`."""
        if not self._is_current:
            self._load()
        arrays = self._copies.beside(self._arrays, states)
        return arrays.of(states, self._numbers.ranks(states), candidates)

    def _forget(self) -> None:
        self._is_current = False
        self._copies.drop()

    def _load(self) -> None:
        """Copy the automata into the arrays that are not there yet; if these are full, copy all into larger ones."""
        waiting = self._automata[len(self._shifts) :]
        if waiting:
            rows, arcs = _room(waiting)
            if not self._arrays.have_room(rows, arcs):
                waiting, self._shifts = self._automata, []
                rows, arcs = _room(waiting)
                self._arrays = _Arrays(ROOM + 2 * rows, ROOM + 2 * arcs)
            starts = self._numbers.starts[len(self._shifts) :]
            at = self._arrays.extend(waiting, starts)
            self._shifts += [row - start for row, start in zip(at, starts, strict=True)]
        self._arrays.shift = np.array([-MORE, *self._shifts])
        self._is_current = True


def _room(automata: Sequence[Automaton]) -> tuple[int, int]:
    """The numbers of states and arcs."""
    return sum(each.states for each in automata), sum(len(each.tokens) for each in automata)
