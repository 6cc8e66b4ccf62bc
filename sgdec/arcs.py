"""Automata as arrays: what predictors with the ability `arcs` have in common (`sgdec.protocol.ArcsAhead`).

`Numbers` hands out the numbers of states: each sentence gets a range that no other sentence ever has. `Automata`
keeps the arcs of the sentences in flight as one automaton. `spread` lists ranges of an array one after the other.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from sgdec.protocol import FORBIDDEN, Arcs, Ints, Listed

__all__ = ["DEAD", "Automata", "Automaton", "Numbers", "spread"]

DEAD = -1
"""The state after a token that cannot follow, in all automata. Negative states have no arcs."""
ROOM = 1 << 10
"""The least number of rows in an array that can grow."""
MORE = 1 << 31
"""A number above all tokens and all rows."""

Floats = npt.NDArray[np.float64]


def spread(first: Ints, counts: Ints) -> tuple[Ints, Ints, Ints]:
    """The ranges ``first[i], first[i] + 1, ...`` of ``counts[i]`` numbers each, one after the other.

    Returns the offsets ``[R + 1]`` of the ranges in the result, the range of each number ``[n]``, and the numbers
    ``[n]``.

    >>> [part.tolist() for part in spread(np.array([5, 9]), np.array([3, 2]))]
    [[0, 3, 5], [0, 0, 0, 1, 1], [5, 6, 7, 9, 10]]
    """
    offsets = np.zeros(len(first) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    row = np.repeat(np.arange(len(first)), counts)
    return offsets, row, np.arange(offsets[-1]) + (first - offsets[:-1])[row]


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
        self._next = 0

    def take(self, size: int) -> int:
        """The first number of a new range of ``size`` numbers; its place is the last."""
        start, self._next = self._next, self._next + size
        self.starts.append(start)
        self._as_array = None
        return start

    def place(self, state: int) -> int:
        """The place of the range of this number among the ranges in use."""
        return bisect_right(self.starts, state) - 1

    def places(self, states: Ints) -> Ints:
        """The place of each number's range ``[n]``; negative numbers are nowhere, at -1."""
        if self._as_array is None:
            self._as_array = np.array(self.starts, np.int64)
        return np.searchsorted(self._as_array, states, side="right") - 1

    def release(self, state: int) -> int:
        """Give the range of this number back; return the place that it had."""
        place = self.place(state)
        del self.starts[place]
        self._as_array = None
        return place


class Automaton:
    """A deterministic automaton of S states and n arcs. The arcs of each state have ascending tokens."""

    __slots__ = ("after", "offsets", "scores", "tokens")

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


class _Arrays:
    """Automata one after the other. A state has one row; row 0, without arcs, is that of all negative states."""

    def __init__(self, rows: int, arcs: int) -> None:
        """Empty arrays with room for ``rows`` and ``arcs``."""
        self.rows, self.arcs = 1, 0
        """The numbers of rows and arcs in use."""
        self.first, self.count = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
        """By row: the first arc, and the number of arcs."""
        self.tokens, self.scores, self.after = np.zeros(arcs, np.int64), np.zeros(arcs), np.zeros(arcs, np.int64)
        """By arc."""
        self.keys = np.full(arcs, -1)
        """By arc: row * `MORE` + token, ascending."""

    def have_room(self, rows: int, arcs: int) -> bool:
        return self.rows + rows <= len(self.first) and self.arcs + arcs <= len(self.tokens)

    def append(self, automaton: Automaton, start: int) -> int:
        """Append an automaton whose state 0 has the number ``start``; return the row of that state."""
        row = slice(self.rows, self.rows + automaton.states)
        arc = slice(self.arcs, self.arcs + len(automaton.tokens))
        count, tokens, after = np.diff(automaton.offsets), automaton.tokens, automaton.after
        self.first[row], self.count[row] = automaton.offsets[:-1] + arc.start, count
        self.tokens[arc], self.scores[arc] = tokens, automaton.scores
        self.after[arc] = np.where(after < 0, after, after + start)
        self.keys[arc] = np.repeat(np.arange(row.start, row.stop) * MORE, count) + tokens
        self.rows, self.arcs = row.stop, arc.stop
        return row.start


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

    def add(self, automaton: Kind) -> int:
        """Add an automaton; return the number of its state 0. Its other states follow."""
        self._automata.append(automaton)
        return self._numbers.take(automaton.states)

    def find(self, state: int) -> tuple[Kind, int]:
        """The automaton of the state with this number, which is not negative, and the number of its state 0."""
        place = self._numbers.place(state)
        return self._automata[place], self._numbers.starts[place]

    def release(self, state: int) -> None:
        """Forget the automaton of the state with this number."""
        place = self._numbers.release(state)
        del self._automata[place], self._shifts[place : place + 1]

    def arcs(self, states: Ints, candidates: Listed | None) -> Arcs:
        """The arcs of these states, or those for candidates, as in `sgdec.protocol.ArcsAhead.arcs`."""
        if len(self._shifts) < len(self._automata):
            self._load()
        every = self._arrays
        shifts = np.array([*self._shifts, -MORE])  # the last one is for negative states
        rows = np.maximum(states + shifts[self._numbers.places(states)], 0)
        if candidates is None:
            offsets, _, places = spread(every.first[rows], every.count[rows])
            return offsets, every.tokens[places], every.scores[places], every.after[places]
        offsets, tokens = candidates
        wanted = np.repeat(rows * MORE, np.diff(offsets)) + tokens
        places = np.searchsorted(every.keys[: every.arcs], wanted)
        places[places == every.arcs] = 0
        found = every.keys[places] == wanted
        scores = np.where(found, every.scores[places], FORBIDDEN)
        return offsets, tokens, scores, np.where(found, every.after[places], DEAD)

    def _load(self) -> None:
        """Copy the automata into the arrays that are not there yet; if these are full, copy all into larger ones."""
        waiting = self._automata[len(self._shifts) :]
        rows, arcs = (sum(sizes) for sizes in zip(*((a.states, len(a.tokens)) for a in waiting), strict=True))
        if not self._arrays.have_room(rows, arcs):
            waiting, self._shifts = self._automata, []
            rows, arcs = (sum(sizes) for sizes in zip(*((a.states, len(a.tokens)) for a in waiting), strict=True))
            self._arrays = _Arrays(ROOM + 2 * rows, ROOM + 2 * arcs)
        for automaton, start in zip(waiting, self._numbers.starts[len(self._shifts) :], strict=True):
            self._shifts.append(self._arrays.append(automaton, start) - start)
