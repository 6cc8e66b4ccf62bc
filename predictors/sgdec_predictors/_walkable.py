"""A deterministic lattice as scores, ready to be walked: arcs as arrays, with ``<s>`` and ``</s>`` resolved."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sgdec import BOS, EOS
from sgdec.arcs import DEAD, Automaton, Floats
from sgdec.io.lattice import Lattice
from sgdec.io.openfst import LatticeError
from sgdec.protocol import FORBIDDEN, Candidates, Ints, SparseRow

ENDED = -2
"""The state after ``</s>``."""


class Ways(NamedTuple):
    """The arcs of one state as plain values: ascending tokens, their scores, and the states after them."""

    tokens: list[int]
    scores: list[float]
    targets: list[int]

    def target(self, token: int) -> int:
        """The state after one token."""
        place = bisect_left(self.tokens, token)
        return self.targets[place] if self.tokens[place : place + 1] == [token] else DEAD

    def among(self, candidates: Candidates) -> Ways:
        """The same for these tokens, including those that cannot follow."""
        listed = dict(zip(self.tokens, zip(self.scores, self.targets, strict=True), strict=True))
        found = [listed.get(token, (FORBIDDEN, DEAD)) for token in candidates]
        return Ways(list(candidates), [score for score, _ in found], [target for _, target in found])


class WalkableLattice(Automaton):
    """The states of a lattice; then, if its paths begin with an ``<s>`` of some cost, one more: that before it."""

    __slots__ = ("__dict__",)

    def __init__(self, lattice: Lattice, path: str, use_weights: bool, normalize: bool) -> None:
        """Raises LatticeError for a lattice without paths, or if only some paths begin with ``<s>``."""
        empty = LatticeError(path, "is empty: no path leads to a final state", "Check how it was made.")
        if lattice.start < 0:
            raise empty
        arcs = _with_ends(_arcs_of(lattice), lattice)
        if not use_weights:
            arcs = arcs._replace(scores=np.zeros(len(arcs.scores)))
        if normalize:
            arcs = arcs._replace(scores=_log_softmax(arcs))
        self.root = lattice.start
        """The state of the empty prefix."""
        begin, end = arcs.offsets[lattice.start : lattice.start + 2].tolist()
        if begin < end and arcs.tokens[begin] == BOS:
            if end > begin + 1:
                way_out = "Begin all paths with <s>, or none."
                raise LatticeError(path, "has paths with and without <s> (label 1)", way_out)
            if arcs.scores[begin]:
                self.root = len(lattice.final)
                arcs = _with_root(arcs, begin)
            else:
                self.root = int(arcs.after[begin])
        super().__init__(*arcs)
        self._views: tuple[memoryview[Any], ...] = (
            self.offsets.data, self.tokens.data, self.scores.data, self.after.data
        )  # fmt: skip
        """These arrays, as views that give single numbers faster."""
        self._ways: dict[int, Ways] = {}
        self._rows: dict[int, SparseRow] = {}
        if not self._has_path():
            raise empty

    def ways(self, state: int, start: int) -> Ways:
        """The arcs of a state; ``start`` is added to the states after them. Computed once."""
        found = self._ways.get(state)
        if found is None:
            offsets, tokens, scores, after = self._views
            arcs = slice(offsets[state], offsets[state + 1])
            targets = [target + start if target >= 0 else target for target in after[arcs]]
            found = self._ways[state] = Ways([*tokens[arcs]], [*scores[arcs]], targets)
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


class _Arcs(NamedTuple):
    """Arcs of S states, as in `Automaton`."""

    offsets: Ints
    tokens: Ints
    scores: Floats
    after: Ints

    def only(self, kept: npt.NDArray[np.bool_]) -> _Arcs:
        """The arcs that are marked in ``kept [n]``."""
        offsets = np.append(0, np.cumsum(kept))[self.offsets]
        return _Arcs(offsets, self.tokens[kept], self.scores[kept], self.after[kept])


def _arcs_of(lattice: Lattice) -> _Arcs:
    """The arcs of a lattice as scores, without those of infinite cost."""
    scores = 0.0 - lattice.costs  # -costs would make -0.0 of 0
    arcs = _Arcs(lattice.first, lattice.labels.astype(np.int64), scores, lattice.targets.astype(np.int64))
    possible = scores > FORBIDDEN
    return arcs if possible.all() else arcs.only(possible)


def _with_ends(arcs: _Arcs, lattice: Lattice) -> _Arcs:
    """One ``</s>`` arc to `ENDED` for each state that can end: by the better of an arc and being final itself.

    An ``</s>`` arc to a dead end is left out.
    """
    offsets, tokens, scores, after = arcs
    final = 0.0 - lattice.final
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
    if ends_without[lattice.start] or ends_without[after[after >= 0]].any():  # else no path gets to such a state
        (without,) = ends_without.nonzero()
        first = offsets[without]
        places = first + (np.append(tokens, EOS)[first] < EOS) * (first < offsets[without + 1])  # after <s>
        tokens, scores = np.insert(tokens, places, EOS), np.insert(scores, places, final[without])
        after = np.insert(after, places, ENDED)
        offsets = offsets + without.searchsorted(np.arange(len(offsets)))
    return _Arcs(offsets, tokens, scores, after)


def _with_root(arcs: _Arcs, begin: int) -> _Arcs:
    """One state more: that before ``<s>``, the arc ``begin``. It scores the first token together with this arc."""
    offsets, tokens, scores, after = arcs
    first, end = offsets[after[begin] : after[begin] + 2].tolist()
    return _Arcs(
        np.append(offsets, len(tokens) + end - first),
        np.concatenate([tokens, tokens[first:end]]),
        np.concatenate([scores, scores[begin] + scores[first:end]]),
        np.concatenate([after, after[first:end]]),
    )


def _log_softmax(arcs: _Arcs) -> Floats:
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
