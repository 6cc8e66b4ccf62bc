"""A deterministic lattice as scores, ready to be walked: arcs as arrays, with ``<s>`` and ``</s>`` resolved.

The lattices of a batch of sentences are read together: their arcs are sorted, checked and converted to scores as
those of one automaton, and then split. If one of the files cannot be used, each is read alone, so that the error
names it.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from sgdec import BOS, EOS
from sgdec.arcs import DEAD, Automaton
from sgdec.arrays import Flags, Floats, Ints
from sgdec.files import Lattice, LatticeError, Lattices
from sgdec.protocol import FORBIDDEN, Candidates, SparseRow

ENDED = -2
"""The state after ``</s>``."""


class WalkableWays(NamedTuple):
    """The arcs of one state as plain values: ascending tokens, their scores, and the states after them."""

    tokens: list[int]
    scores: list[float]
    targets: list[int]

    def target(self, token: int) -> int:
        """The state after one token."""
        place = bisect_left(self.tokens, token)
        return self.targets[place] if self.tokens[place : place + 1] == [token] else DEAD

    def among(self, candidates: Candidates) -> WalkableWays:
        """The same for these tokens, including those that cannot follow."""
        listed = dict(zip(self.tokens, zip(self.scores, self.targets, strict=True), strict=True))
        found = [listed.get(token, (FORBIDDEN, DEAD)) for token in candidates]
        return WalkableWays(list(candidates), [score for score, _ in found], [target for _, target in found])


class WalkableLattice(Automaton):
    """The states of a lattice; then, if its paths begin with an ``<s>`` of some cost, one more: that before it."""

    __slots__ = ("__dict__",)

    def __init__(self, arcs: StoredArcs, root: int, path: str) -> None:
        """``root``: the state of the empty prefix. Raises LatticeError for a lattice without paths."""
        super().__init__(*arcs)
        self.root = root
        self._views: tuple[memoryview[Any], ...] = (
            self.offsets.data, self.tokens.data, self.scores.data, self.after.data
        )  # fmt: skip
        """The arrays of arcs, as views that give single numbers faster."""
        self._ways: dict[int, WalkableWays] = {}
        self._rows: dict[int, SparseRow] = {}
        if not self._has_path():
            raise _empty(path)

    def ways(self, state: int, start: int) -> WalkableWays:
        """The arcs of a state; ``start`` is added to the states after them. Computed once."""
        found = self._ways.get(state)
        if found is None:
            offsets, tokens, scores, after = self._views
            arcs = slice(offsets[state], offsets[state + 1])
            targets = [target + start if target >= 0 else target for target in after[arcs]]
            found = self._ways[state] = WalkableWays([*tokens[arcs]], [*scores[arcs]], targets)
        return found

    def row(self, state: int, start: int) -> SparseRow:
        """The same as a row of scores."""
        found = self._rows.get(state)
        if found is None:
            found = self._rows[state] = SparseRow(*self.ways(state, start)[:2])
        return found

    @cached_property
    def best(self) -> Sequence[float]:
        """By state, then for `ENDED` and `DEAD`: the highest score of any path to the end; -inf = there is none."""
        return self._extreme(self.scores)

    @cached_property
    def worst(self) -> Sequence[float]:
        """The same for the lowest score; +inf = there is no path."""
        return [-score for score in self._extreme(-self.scores)]

    def _has_path(self) -> bool:
        """Whether a path from the root ends."""
        offsets, _, _, after = self._views
        seen, stack = {self.root}, [self.root]
        while stack:
            state = stack.pop()
            for target in after[offsets[state] : offsets[state + 1]]:
                if target == ENDED:
                    return True
                if target not in seen:
                    seen.add(target)
                    stack.append(target)
        return False

    def _extreme(self, scores: Floats) -> list[float]:
        """By state, then for `ENDED` and `DEAD`, the highest sum of ``scores [n]`` on the way to the end.

        Children come first, so one visit per state suffices. States that the root does not reach have no sum.
        """
        offsets, gains, after = self.offsets.tolist(), scores.tolist(), self.after.tolist()
        order = list(self._children_first(offsets, after))
        found = [math.nan] * self.states + [0.0, FORBIDDEN]  # places -2 and -1 are ENDED and DEAD
        for state in order:
            best = FORBIDDEN
            for arc in range(offsets[state], offsets[state + 1]):
                total = gains[arc] + found[after[arc]]
                if total > best:
                    best = total
                elif math.isnan(total):  # the child is not before its parent: there is a cycle
                    return self._extreme_of_cyclic(scores, order)
            found[state] = best
        return found

    def _extreme_of_cyclic(self, scores: Floats, order: Sequence[int]) -> list[float]:
        """The same by Bellman-Ford, with ``order`` from `_children_first`.

        Each arc against the order of states needs one more sweep. A path that visits no state twice has at most one
        such arc from each state, so any later gain comes from a cycle and is unlimited.
        """
        offsets = self.offsets.tolist()
        arcs = list(zip(scores.tolist(), self.after.tolist(), strict=True))
        ways = [(state, arcs[offsets[state] : offsets[state + 1]]) for state in order]
        place = {state: i for i, state in enumerate([ENDED, DEAD, *order])}
        going_back = sum(any(place[target] >= place[state] for _, target in each) for state, each in ways)
        found = [FORBIDDEN] * self.states + [0.0, FORBIDDEN]
        sweep, gained = 0, True
        while gained:
            gained = False
            for state, each in ways:
                score = max([score + found[target] for score, target in each], default=FORBIDDEN)
                if score > found[state]:
                    found[state] = score if sweep <= going_back else math.inf
                    gained = True
            sweep += 1
        return found

    def _children_first(self, offsets: Sequence[int], after: Sequence[int]) -> Iterator[int]:
        """The reachable states, each after the targets of its arcs, as far as cycles allow."""
        seen = {self.root, ENDED}
        stack = [(self.root, offsets[self.root])]
        while stack:
            state, arc = stack.pop()
            end = offsets[state + 1]
            while arc < end and after[arc] in seen:
                arc += 1
            if arc == end:
                yield state
            else:
                seen.add(after[arc])
                stack += (state, arc + 1), (after[arc], offsets[after[arc]])


class StoredArcs(NamedTuple):
    """Arcs of S states, as in `Automaton`."""

    offsets: Ints
    tokens: Ints
    scores: Floats
    after: Ints

    def only(self, kept: Flags) -> StoredArcs:
        """The arcs that are marked in ``kept [n]``."""
        offsets = np.append(0, np.cumsum(kept))[self.offsets]
        return StoredArcs(offsets, self.tokens[kept], self.scores[kept], self.after[kept])

    def split(self, states: Ints) -> list[StoredArcs]:
        """One for each range of states ``states[i] .. states[i + 1] - 1``, numbered from 0, with arcs within it."""
        bounds = self.offsets[states]
        first = states[:-1].repeat(bounds[1:] - bounds[:-1])
        after = np.where(self.after < 0, self.after, self.after - first)
        return [
            StoredArcs(
                self.offsets[s : t + 1] - begin, self.tokens[begin:end], self.scores[begin:end], after[begin:end]
            )
            for (s, t), (begin, end) in zip(pairwise(states.tolist()), pairwise(bounds.tolist()), strict=True)
        ]


def walkable(lattices: Lattices, path: str, use_weights: bool, normalize: bool) -> list[WalkableLattice]:
    """The lattices of one or several files.

    Raises LatticeError, which names ``path``, for a lattice without paths, or if only some paths begin with ``<s>``.
    """
    if min(lattices.starts) < 0:
        raise _empty(path)
    arcs = _with_ends(_arcs_of(lattices.all), lattices)
    if not use_weights:
        arcs = arcs._replace(scores=np.zeros(len(arcs.scores)))
    if normalize:
        arcs = arcs._replace(scores=_log_softmax(arcs))
    each = [arcs] if len(lattices.starts) == 1 else arcs.split(lattices.states)
    starts = [start - first for start, first in zip(lattices.starts, lattices.states.tolist(), strict=False)]
    return [WalkableLattice(*_rooted(own, start, path), path) for own, start in zip(each, starts, strict=True)]


def _arcs_of(lattice: Lattice) -> StoredArcs:
    """The arcs of a lattice as scores, without those of infinite cost."""
    scores = 0.0 - lattice.costs  # -costs would make -0.0 of 0
    arcs = StoredArcs(lattice.first, lattice.labels.astype(np.int64), scores, lattice.targets.astype(np.int64))
    possible = scores > FORBIDDEN
    return arcs if possible.all() else arcs.only(possible)


def _with_ends(arcs: StoredArcs, lattices: Lattices) -> StoredArcs:
    """One ``</s>`` arc to `ENDED` for each state that can end: by the better of an arc and being final itself.

    An ``</s>`` arc to a dead end is left out.
    """
    offsets, tokens, scores, after = arcs
    final = 0.0 - lattices.all.final
    (ends,) = (tokens == EOS).nonzero()
    states = offsets.searchsorted(ends, side="right") - 1
    by_arc = scores[ends] + final[after[ends]]
    scores[ends] = np.maximum(by_arc, final[states])
    after[ends] = ENDED
    dead = scores[ends] == FORBIDDEN
    if dead.any():
        kept = np.ones(len(tokens), bool)
        kept[ends[dead]] = False
        offsets, tokens, scores, after = arcs.only(kept)
    ends_without = final > FORBIDDEN
    ends_without[states] = False
    if ends_without[lattices.starts].any() or ends_without[after[after >= 0]].any():  # else no path gets there
        (without,) = ends_without.nonzero()
        first = offsets[without]
        places = first + (np.append(tokens, EOS)[first] < EOS) * (first < offsets[without + 1])  # after <s>
        tokens, scores = np.insert(tokens, places, EOS), np.insert(scores, places, final[without])
        after = np.insert(after, places, ENDED)
        offsets = offsets + without.searchsorted(np.arange(len(offsets)))
    return StoredArcs(offsets, tokens, scores, after)


def _rooted(arcs: StoredArcs, start: int, path: str) -> tuple[StoredArcs, int]:
    """Arcs with a state from which the first token can follow, and that state.

    It is the start, or the state after an ``<s>``; if this ``<s>`` has a score, it is one state more, which adds that
    to the scores of the first tokens. Raises LatticeError if only some paths begin with ``<s>``.
    """
    offsets, tokens, scores, after = arcs
    begin, end = offsets[start : start + 2].tolist()
    if begin == end or tokens[begin] != BOS:
        return arcs, start
    if end > begin + 1:
        raise LatticeError(path, "has paths with and without <s> (label 1)", "Begin all paths with <s>, or none.")
    second = after.item(begin)
    if not scores[begin]:
        return arcs, second
    first, end = offsets[second : second + 2].tolist()
    rooted = StoredArcs(
        np.append(offsets, len(tokens) + end - first),
        np.concatenate([tokens, tokens[first:end]]),
        np.concatenate([scores, scores[begin] + scores[first:end]]),
        np.concatenate([after, after[first:end]]),
    )
    return rooted, len(offsets) - 1


def _log_softmax(arcs: StoredArcs) -> Floats:
    """The scores ``[n]``, normalised over the arcs of each state."""
    if not len(arcs.scores):
        return arcs.scores
    count = np.diff(arcs.offsets)
    (states,) = np.nonzero(count)
    first = arcs.offsets[states]
    highest = np.maximum.reduceat(arcs.scores, first)
    shifted = arcs.scores - np.repeat(highest, count[states])
    normalized: Floats = shifted - np.repeat(np.log(np.add.reduceat(np.exp(shifted), first)), count[states])
    return normalized


def _empty(path: str) -> LatticeError:
    return LatticeError(path, "is empty: no path leads to a final state", "Check how it was made.")
