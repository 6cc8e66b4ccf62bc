"""Non-deterministic automata: epsilon removal and determinisation on the fly.

A prefix can lead to several states of an automaton, each by different paths. Its *subset* is the set of these states,
each with its residual: the combined score of the paths that lead there, minus the score of the prefix (Mohri 1997,
"Finite-State Transducers in Language and Speech Processing", section 3). With (+) the sum over paths,

    score(token | subset) = (+) over its states q with residual r, and paths epsilon* token from q, of r + score(path)

and the difference is the residual of each state that is reached. So a total is the (+) over all paths with these
tokens. ``</s>`` is scored in the same way, over all paths to the end: epsilons only, with or without a ``</s>`` arc.

Subsets, and the arcs after a state's epsilons, are computed on the first visit.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Hashable, Sequence
from functools import cache
from typing import Any, Protocol, TypeAlias

import numpy as np

import sgdec.arcs as _arcs
from sgdec import BOS, EOS, BatchPredictor, Scores, Source
from sgdec.arcs import DEAD
from sgdec.arrays import Floats, Ints
from sgdec.files import LatticeError
from sgdec.protocol import FORBIDDEN, Candidates, SparseRow, Steps
from sgdec_predictors.automata.networks import NetworkArc
from sgdec_predictors.automata.semirings import LOG, Semiring, Ways, distances_from

Node: TypeAlias = Any
"""A state of an automaton: hashable and comparable with the other states of its automaton."""
Subset: TypeAlias = tuple[tuple[Node, float], ...]
"""States with their residuals, in order; empty = off the automaton, or after ``</s>``."""
Following: TypeAlias = tuple[SparseRow, dict[int, Subset]]
"""The scores of the tokens that can follow a subset, and the subset after each of them."""
State: TypeAlias = "tuple[SubsetPrefixes, Subset]"

MOST_ARCS = 1 << 18
"""An automaton of more arcs is not made into arrays."""
DIGITS = 9
"""The precision of comparing residuals: rounding errors must not separate equal futures."""


class LazyAcceptor(Protocol):
    """An acceptor with scores; it may be built lazily."""

    @property
    def start(self) -> Node: ...

    def arcs(self, node: Node) -> Sequence[NetworkArc]:
        """The arcs with a label other than epsilon."""

    def silent(self, node: Node) -> Ways[Node]:
        """Epsilon arcs."""

    def final(self, node: Node) -> float:
        """The score of ending in a state; -inf = not final."""

    def best(self, node: Node) -> float:
        """The combined score of all paths to the end; -inf = there is none."""

    def worst(self, node: Node) -> float:
        """A lower bound on the score of each path to the end; +inf = there is none."""


class KnownSubset(_arcs.Automaton):
    """An automaton as arrays: of its states, the best path counts."""

    def __init__(self, offsets: Ints, tokens: Ints, scores: Floats, after: Ints, numbers: dict[Node, int]) -> None:
        super().__init__(offsets, tokens, scores, after)
        self.numbers = numbers


class Summed(KnownSubset):
    """The same where the scores of paths are added up."""

    sums = True


class SubsetPrefixes:
    """All subsets of one automaton, computed on first use; the prefixes of a sentence share them."""

    def __init__(
        self,
        automaton: LazyAcceptor,
        path: str,
        semiring: Semiring,
        normalize: bool,
        whole: Callable[[], KnownSubset | None] | None = None,
    ) -> None:
        """``path`` is its file; ``whole`` returns it as arrays, if it has done so before.

        Raises LatticeError if it has no path, or if only some paths begin with ``<s>``.
        """
        self._automaton = automaton
        self._path = path
        self._semiring = semiring
        self._normalize = normalize
        self._next: dict[Node, tuple[list[NetworkArc], float]] = {}
        """By state: the arcs after its epsilons, and the score of ending after them."""
        self._following: dict[Subset, Following] = {}
        self._whole = whole or cache(self._known)
        self.root = self._after_bos()
        """Its residuals are the scores of paths before the first token, which are added to that token."""

    def following(self, subset: Subset) -> Following:
        return self._following.get(subset) or self._work_out(subset)

    def afresh(self) -> SubsetPrefixes:
        """The same automaton for another sentence, without the computed subsets."""
        return SubsetPrefixes(self._automaton, self._path, self._semiring, self._normalize, self._whole)

    def best_remaining(self, subset: Subset) -> float:
        best = self._semiring.plus([residual + self._automaton.best(node) for node, residual in subset])
        return 0.0 if self._normalize and best != FORBIDDEN else best

    def worst_remaining(self, subset: Subset) -> float:
        worst = min((residual + self._automaton.worst(node) for node, residual in subset), default=-FORBIDDEN)
        return FORBIDDEN if self._normalize and worst != -FORBIDDEN else worst

    def places(self, subset: Subset) -> tuple[KnownSubset, list[tuple[int, float]]] | None:
        """The automaton without epsilons, and the subset in it; None if it is too large, or scores are normalised."""
        known = None if self._normalize else self._whole()
        if known is None:
            return None
        return known, [(known.numbers[node], residual) for node, residual in subset]

    def _known(self) -> KnownSubset | None:
        """The arcs of all states that the root leads to; None if they are too many."""
        numbers = {node: i for i, (node, _) in enumerate(self.root)}
        offsets, tokens, scores, after = [0], [], [], []
        for node in (waiting := list(numbers)):
            arcs, end = self._next.get(node) or self._follow(node)
            for label, score, target in arcs:
                if target not in numbers:
                    numbers[target] = len(numbers)
                    waiting.append(target)
                tokens.append(label)
                scores.append(score)
                after.append(numbers[target])
            if end != FORBIDDEN:
                tokens.append(EOS)
                scores.append(end)
                after.append(DEAD)
            offsets.append(len(tokens))
            if len(tokens) > MOST_ARCS:
                return None
        kind = Summed if self._semiring is LOG else KnownSubset
        arrays = np.array(tokens, np.int64), np.array(scores, float), np.array(after, np.int64)
        return kind(np.array(offsets), *arrays, numbers)

    def _work_out(self, subset: Subset) -> Following:
        reached, end = self._reach(subset)
        tokens, scores, after = sorted(reached), [], {}
        for token in tokens:
            score = self._semiring.plus(reached[token].values())
            scores.append(score)
            after[token] = tuple(sorted((node, path - score) for node, path in reached[token].items()))
        if end != FORBIDDEN:
            place = bisect_left(tokens, EOS)
            tokens.insert(place, EOS)
            scores.insert(place, end)
        if self._normalize:
            total = LOG.plus(scores)
            scores = [score - total for score in scores]
        self._following[subset] = found = SparseRow(tokens, scores), after
        return found

    def _after_bos(self) -> Subset:
        start = self._automaton.start
        if self._automaton.best(start) == FORBIDDEN:
            raise LatticeError(self._path, "is empty: no path leads to a final state", "Check how it was made.")
        reached, end = self._reach(((start, 0.0),))
        if BOS not in reached:
            return ((start, 0.0),)
        if len(reached) > 1 or end != FORBIDDEN:
            what = "has paths with and without <s> (label 1)"
            raise LatticeError(self._path, what, "Begin all paths with <s>, or none.")
        return tuple(sorted(reached[BOS].items()))

    def _reach(self, subset: Subset) -> tuple[dict[int, dict[Node, float]], float]:
        """By token the states after it, each with the combined score of all paths to it; and the score of ending."""
        paths: dict[int, dict[Node, list[float]]] = {}
        ends = []
        for node, residual in subset:
            arcs, end = self._next.get(node) or self._follow(node)
            for label, score, target in arcs:
                paths.setdefault(label, {}).setdefault(target, []).append(residual + score)
            ends.append(residual + end)
        plus = self._semiring.plus
        reached = {label: {node: plus(scores) for node, scores in to.items()} for label, to in paths.items()}
        return reached, plus(ends)

    def _follow(self, node: Node) -> tuple[list[NetworkArc], float]:
        arcs, ends = [], []
        for place, score in self._after_epsilons(node).items():
            ends.append(score + self._automaton.final(place))
            for arc in self._automaton.arcs(place):
                if arc.label == EOS:
                    ends.append(score + arc.score + self._end_in(arc.target))
                else:
                    arcs.append(arc._replace(score=score + arc.score))
        self._next[node] = found = arcs, self._semiring.plus(ends)
        return found

    def _end_in(self, node: Node) -> float:
        """The score of ending here, or after epsilons."""
        ways = self._after_epsilons(node)
        return self._semiring.plus([score + self._automaton.final(place) for place, score in ways.items()])

    def _after_epsilons(self, node: Node) -> dict[Node, float]:
        if not self._automaton.silent(node):
            return {node: 0.0}
        return distances_from(self._semiring, node, self._automaton.silent)


class SubsetPredictor(BatchPredictor):
    """The verbs of a predictor whose states are subsets."""

    independent_rows = True

    @abstractmethod
    def open(self, source: Source) -> SubsetPrefixes:
        """The automaton of one sentence. Raises SgdecError if it cannot be read or used."""

    def initialize_batch(self, sources: Sequence[Source]) -> list[State]:
        """Raises SgdecError if a file cannot be read or used."""
        return [(prefixes, prefixes.root) for prefixes in map(self.open, sources)]

    def predict_batch(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        return Scores(rows=[prefixes.following(subset)[0] for prefixes, subset in states])

    def consume_batch(self, states: Sequence[State], tokens: Sequence[int]) -> list[State]:
        return [
            (prefixes, prefixes.following(subset)[1].get(token, ()))
            for (prefixes, subset), token in zip(states, tokens, strict=True)
        ]

    def steps(self, state: State, candidates: Candidates | None) -> Steps:
        prefixes, subset = state
        row, after = prefixes.following(subset)
        tokens = row.candidates if candidates is None else candidates
        return tokens, row.at(tokens), [(prefixes, after.get(token, ())) for token in tokens]

    def best_remaining(self, states: Sequence[State]) -> list[float]:
        """The combined score of all paths to the end, exact for the best path; infinite if cycles add without
        limit."""
        return [prefixes.best_remaining(subset) for prefixes, subset in states]

    def worst_remaining(self, states: Sequence[State]) -> list[float]:
        """The score of the worst single path to the end, a lower bound for every token sequence."""
        return [prefixes.worst_remaining(subset) for prefixes, subset in states]

    def subset(self, state: State) -> tuple[KnownSubset, list[tuple[int, float]]] | None:
        prefixes, subset = state
        return prefixes.places(subset)

    def state_key(self, states: Sequence[State]) -> list[Hashable]:
        return [tuple((node, round(residual, DIGITS)) for node, residual in subset) for _, subset in states]
