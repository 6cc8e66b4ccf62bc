"""Deterministic automata over bytes: languages of texts in UTF-8.

A table leads from a state and a byte to the next state. All automata here are trimmed: each state lies on a path from
the start to an end, so a prefix that the table does not refuse begins some text of the language.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from sgdec.arcs import DEAD, spread
from sgdec.arrays import Flags, Ints

States: TypeAlias = npt.NDArray[np.int32]

BYTES = 256
STATES = 1 << 17
"""The most states of an automaton of a pattern or of words: its table has 128 MiB."""
FAR = np.iinfo(np.int32).max
"""The distance to a target that cannot be reached."""
_ROWS = 1 << 12
"""The rows of a table that are hashed together."""


class ByteAutomaton:
    """The texts that end in an accepting state; state 0 is the start.

    >>> table = np.full((2, BYTES), DEAD)
    >>> table[0, ord("a")] = table[1, ord("b")] = 1
    >>> automaton = ByteAutomaton.trimmed(table, np.array([False, True]))
    >>> [automaton.accepts(text) for text in (b"", b"a", b"abb", b"ba")]
    [False, True, True, False]
    """

    def __init__(self, table: States, ends: Flags) -> None:
        """``table [S, 256]``: the next states, `DEAD` = none; ``ends [S]``: whether a text can end there. Trimmed."""
        self.table = table
        self.ends = ends

    @property
    def states(self) -> int:
        """S; 0 for a language without texts."""
        return len(self.ends)

    def accepts(self, text: bytes) -> bool:
        """Whether the language has this text."""
        state = self.after(0, text) if self.states else DEAD
        return state != DEAD and bool(self.ends[state])

    def after(self, state: int, text: bytes) -> int:
        """The state after these bytes; `DEAD` if no text of the language begins like this."""
        for byte in text:
            if state == DEAD:
                return DEAD
            state = int(self.table[state, byte])
        return state

    @classmethod
    def of_arcs(cls, arcs: Ints, start: int, ends: Sequence[int]) -> ByteAutomaton:
        """The smallest automaton with arcs ``[n, 3]``: state, byte, state after it. States have any numbers."""
        names = np.unique(np.concatenate(([start], ends, arcs[:, 0], arcs[:, 2])).astype(np.int64))
        table = np.full((len(names), BYTES), DEAD, np.int32)
        table[names.searchsorted(arcs[:, 0]), arcs[:, 1]] = names.searchsorted(arcs[:, 2])
        return cls.trimmed(table, np.isin(names, ends), int(names.searchsorted(start)))

    @classmethod
    def trimmed(cls, table: npt.NDArray[np.integer[Any]], ends: Flags, start: int = 0) -> ByteAutomaton:
        """The smallest automaton with the language of any table.

        Bytes that lead to the same states everywhere are treated as one until the end: few of the 256 differ.
        """
        table, kind = _narrowed(table)
        origins, byte = (table != DEAD).nonzero()
        targets = table[origins, byte].astype(np.int64)
        reached = distances(targets, origins, np.where(np.arange(len(ends)) == start, 0, FAR)) < FAR
        left = distances(origins, targets, np.where(ends, 0, FAR))
        kept = np.append(reached & (left < FAR), False)  # the last place is that of `DEAD`
        if not kept[start]:
            return cls(np.zeros((0, BYTES), np.int32), np.zeros(0, bool))
        numbers = np.append(np.where(kept[:-1], np.cumsum(kept[:-1]) - 1, DEAD), DEAD)
        smallest, is_end = _merged(numbers[table[kept[:-1]]], left[kept[:-1]], int(numbers[start]))
        return cls(smallest[:, kind], is_end)


def _narrowed(table: npt.NDArray[np.integer[Any]]) -> tuple[npt.NDArray[np.integer[Any]], Ints]:
    """The different columns of a table ``[S, C]``, and for each byte its column ``[256]``."""
    factors = _factors(len(table))
    hashes = sum(
        factors[first : first + _ROWS] @ table[first : first + _ROWS].astype(np.uint64)
        for first in range(0, len(table), _ROWS)
    )
    _, chosen, kind = np.unique(hashes, return_index=True, return_inverse=True)
    narrow = table[:, chosen]
    same = all((narrow[:, kind[byte]] == table[:, byte]).all() for byte in range(BYTES))
    assert same, "a hash has merged two bytes that differ"
    return narrow, kind


def distances(origins: Ints, targets: Ints, known: Ints) -> Ints:
    """The least number of arcs from each of S states to a state of distance 0; `FAR` = there is no way.

    ``origins [n]`` and ``targets [n]``: the states before and after each arc. ``known [S]``: the distances that are
    known; `FAR` = unknown.
    """
    states = len(known)
    pairs = np.unique(targets * states + origins)
    target, origin = np.divmod(pairs, max(states, 1))
    first = target.searchsorted(np.arange(states + 1))
    found = known.astype(np.int64)
    distance = 0
    while len(later := found[(found >= distance) & (found < FAR)]):
        distance = int(later.min())
        frontier = np.flatnonzero(found == distance)
        _, arcs = spread(first[frontier], first[frontier + 1] - first[frontier])
        before = origin[arcs]
        distance += 1
        found[before[found[before] > distance]] = distance
    return found


def heights(origins: Ints, targets: Ints, states: int) -> Ints:
    """``[states]``: the most arcs on a way from each state; `FAR` = it can reach a cycle.

    ``origins [n]`` and ``targets [n]``: the states before and after each arc.
    """
    target, origin = np.divmod(np.unique(targets * states + origins), max(states, 1))
    first = target.searchsorted(np.arange(states + 1))
    arcs_left = np.bincount(origin, minlength=states)
    found = np.full(states, FAR, np.int64)
    frontier, height = np.flatnonzero(arcs_left == 0), 0
    while len(frontier):
        found[frontier] = height
        height += 1
        before, counts = np.unique(
            origin[spread(first[frontier], first[frontier + 1] - first[frontier])[1]], return_counts=True
        )
        arcs_left[before] -= counts
        frontier = before[arcs_left[before] == 0]
    return found


def _merged(table: Ints, left: Ints, start: int) -> tuple[States, Flags]:
    """The table and the ends with equivalent states merged, by Moore's refinement of partitions; the start becomes
    state 0.

    ``table [S, C]``; ``left [S]``: distances to the end. Equivalent states share these, and the length of their
    longest texts, so both together are a first partition. It is the last one too of most automata without cycles.
    """
    origins, byte = (table != DEAD).nonzero()
    _, classes = np.unique(left << 32 | heights(origins, table[origins, byte], len(table)), return_inverse=True)
    factors = _factors(table.shape[1] + 1)
    count = 0
    while count < classes.max() + 1:
        count = int(classes.max()) + 1
        after = np.append(classes, DEAD)[table].astype(np.uint64) + np.uint64(1)  # [S, C]
        hashes = after @ factors[:-1] + classes.astype(np.uint64) * factors[-1]
        _, classes = np.unique(hashes, return_inverse=True)
    _, chosen = np.unique(classes, return_index=True)
    after = np.append(classes, DEAD)[table]
    assert (after == after[chosen][classes]).all(), "a hash has merged two states that differ"
    order = np.argsort(np.where(np.arange(len(chosen)) == classes[start], -1, np.arange(len(chosen))))
    number = np.append(np.argsort(order), DEAD)
    return number[after[chosen[order]]].astype(np.int32), left[chosen[order]] == 0


def _factors(count: int) -> npt.NDArray[np.uint64]:
    """Random odd numbers, with which sums are hashes."""
    return np.random.default_rng(0).integers(1, 1 << 62, count, dtype=np.uint64) | np.uint64(1)
