"""Deterministic automata over bytes: languages of texts in UTF-8.

A table leads from a state and a byte to the next state. All automata here are trimmed: each state lies on a path from
the start to an end, so a prefix that the table does not refuse begins some text of the language.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from sgdec.arcs import DEAD, spread

Ints: TypeAlias = npt.NDArray[np.int64]
States: TypeAlias = npt.NDArray[np.int32]
Flags: TypeAlias = npt.NDArray[np.bool_]

BYTES = 256
FAR = np.iinfo(np.int32).max
"""The distance to a target that cannot be reached."""


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
    def trimmed(cls, table: npt.NDArray[np.integer[Any]], ends: Flags, start: int = 0) -> ByteAutomaton:
        """The smallest automaton with the language of any table."""
        origins, byte = (table != DEAD).nonzero()
        targets = table[origins, byte].astype(np.int64)
        reached = distances(targets, origins, np.where(np.arange(len(ends)) == start, 0, FAR)) < FAR
        left = distances(origins, targets, np.where(ends, 0, FAR))
        kept = np.append(reached & (left < FAR), False)  # the last place is that of `DEAD`
        if not kept[start]:
            return cls(np.zeros((0, BYTES), np.int32), np.zeros(0, bool))
        numbers = np.append(np.where(kept[:-1], np.cumsum(kept[:-1]) - 1, DEAD), DEAD)
        return _merged(numbers[table[kept[:-1]]], left[kept[:-1]], int(numbers[start]))


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


def _merged(table: Ints, left: Ints, start: int) -> ByteAutomaton:
    """The automaton with equivalent states merged, by Moore's refinement of partitions; the start becomes state 0.

    ``left [S]``: distances to the end, which equivalent states share, so that they are a first partition.
    """
    factors = np.random.default_rng(0).integers(1, 1 << 62, BYTES + 1, dtype=np.uint64) | np.uint64(1)
    _, classes = np.unique(left, return_inverse=True)
    count = 0
    while count < classes.max() + 1:
        count = int(classes.max()) + 1
        after = np.append(classes, DEAD)[table].astype(np.uint64) + np.uint64(1)  # [S, 256]
        hashes = after @ factors[:BYTES] + classes.astype(np.uint64) * factors[BYTES]
        _, classes = np.unique(hashes, return_inverse=True)
    _, chosen = np.unique(classes, return_index=True)
    after = np.append(classes, DEAD)[table]
    assert (after == after[chosen][classes]).all(), "a hash has merged two states that differ"
    order = np.argsort(np.where(np.arange(len(chosen)) == classes[start], -1, np.arange(len(chosen))))
    number = np.append(np.argsort(order), DEAD)
    return ByteAutomaton(number[after[chosen[order]]].astype(np.int32), left[chosen[order]] == 0)
