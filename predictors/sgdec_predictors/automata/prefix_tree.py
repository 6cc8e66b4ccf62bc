"""N-best lists as prefix trees, for `sgdec_predictors.forcedlst`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import NamedTuple, TypeAlias

import numpy as np

from sgdec import BOS, EOS, UNK
from sgdec.arcs import DEAD, Automaton
from sgdec.arrays import MORE, Floats, Ints
from sgdec.protocol import FORBIDDEN, SparseRow
from sgdec.relaxations import Constant, Relaxation
from sgdec_predictors.automata.keyed import Keyed
from sgdec_predictors.automata.numbered import LONGEST

Nodes: TypeAlias = tuple[int, ...]
"""Nodes of a tree that a prefix leads to."""
MOST_SETS = 1 << 16
"""An exact relaxation of more sets of nodes than this is not built."""


class PrefixTree(Automaton):
    """The hypotheses of one sentence; node 0 is the empty prefix, and children come after their parents.

    A state is a node; as an automaton, it has an arc to each child, and one for the end of a hypothesis.
    """

    def __init__(self, hypotheses: Iterable[tuple[tuple[int, ...], float]]) -> None:
        self._children: list[dict[int, int]] = [{}]
        self._arcs: list[tuple[int, int]] = []
        """For each child, node 1 and on, the parent and the token."""
        self._ends: dict[int, float] = {}
        """By node: the score of the hypothesis that equals the prefix."""
        for tokens, score in hypotheses:
            self._add(tokens, score)
        self._best = self._extremes(max, FORBIDDEN)
        """By node: the highest score below it."""
        self._worst = self._extremes(min, -FORBIDDEN)
        super().__init__(*self._as_arrays())

    def nodes(self, state: int) -> Nodes:
        return (state,)

    def state(self, nodes: Nodes) -> int:
        """The state of nodes that `follow` returned, if there are any."""
        return nodes[0]

    def row(self, nodes: Nodes) -> SparseRow:
        return _row_of(self._scores(nodes), FORBIDDEN)

    def follow(self, nodes: Nodes, token: int) -> Nodes:
        """The nodes after one more token; none = off the list."""
        found = [self._children[node].get(token) for node in nodes]
        return tuple(child for child in found if child is not None)

    def best_below(self, nodes: Nodes) -> float:
        """The highest score of a hypothesis below these nodes; -inf = there is none."""
        return max((self._best[node] for node in nodes), default=FORBIDDEN)

    def worst_below(self, nodes: Nodes) -> float:
        return min((self._worst[node] for node in nodes), default=-FORBIDDEN)

    def _scores(self, nodes: Nodes) -> dict[int, float]:
        scores = dict.fromkeys(chain.from_iterable(self._children[node] for node in nodes), 0.0)
        ends = [self._ends[node] for node in nodes if node in self._ends]
        return scores | ({EOS: max(ends)} if ends else {})

    def _add(self, tokens: Sequence[int], score: float) -> None:
        node = 0
        for token in tokens:
            if token not in self._children[node]:
                self._children[node][token] = len(self._children)
                self._children.append({})
                self._arcs.append((node, token))
            node = self._children[node][token]
        self._ends[node] = max(score, self._ends.get(node, FORBIDDEN))

    def _extremes(self, better: Callable[[float, float], float], nothing: float) -> list[float]:
        """For each node the best score below it, ``nothing`` if there is none."""
        found = [self._ends.get(node, nothing) for node in range(len(self._children))]
        for child in range(len(self._arcs), 0, -1):
            parent, _ = self._arcs[child - 1]
            found[parent] = better(found[parent], found[child])
        return found

    def _as_arrays(self) -> tuple[Ints, Ints, Floats, Ints]:
        """Offsets, tokens, scores and next states of the arcs, those for ``</s>`` among them."""
        arcs = np.array([*self._arcs, *((node, EOS) for node in self._ends)], np.int64).reshape(-1, 2)
        count = len(self._arcs)
        after = np.append(np.arange(1, count + 1), np.full(len(self._ends), DEAD))
        scores = np.append(np.zeros(count), np.array(list(self._ends.values())))
        order = np.lexsort((arcs[:, 1], arcs[:, 0]))
        offsets = np.searchsorted(arcs[order, 0], np.arange(len(self._children) + 1))
        return offsets, arcs[order, 1], scores[order], after[order]


class OpenPrefixTree(PrefixTree):
    """The same where an unknown word stands for any token: a prefix can lead to several nodes.

    A state is the number of a set of nodes, in the order in which they are first met.
    """

    def __init__(self, hypotheses: Iterable[tuple[tuple[int, ...], float]]) -> None:
        super().__init__(hypotheses)
        self._sets: list[Nodes] = [(0,)]
        self._numbers: dict[Nodes, int] = {(0,): 0}
        self._relaxations: tuple[Relaxation, ...] = ()

    @property
    def states(self) -> int:
        return LONGEST  # more than there can be; they are not known before

    def nodes(self, state: int) -> Nodes:
        return self._sets[state]

    def state(self, nodes: Nodes) -> int:
        if nodes not in self._numbers:
            self._numbers[nodes] = len(self._sets)
            self._sets.append(nodes)
        return self._numbers[nodes]

    def row(self, nodes: Nodes) -> SparseRow:
        scores = self._scores(nodes)
        if UNK not in scores:
            return _row_of(scores, FORBIDDEN)
        return _row_of({EOS: FORBIDDEN} | scores | {BOS: FORBIDDEN}, 0.0)

    def follow(self, nodes: Nodes, token: int) -> Nodes:
        wanted = (token, UNK) if token != UNK else (token,)
        found = [self._children[node].get(label) for node in nodes for label in wanted]
        return tuple(child for child in found if child is not None)

    def relaxations(self, nodes_of: Callable[[int], Nodes]) -> tuple[Relaxation, ...]:
        """An exact one, if it is not too large, and a constant. ``nodes_of``: the nodes of a predictor's state."""
        if not self._relaxations:
            scores = 0.0, *self._ends.values()
            constant = Constant(min(scores), max(scores))
            ways = self._ways()
            self._relaxations = (constant,) if ways is None else (Matching(ways, nodes_of), constant)
        return self._relaxations

    def _ways(self) -> TreeWays | None:
        """The continuations of each set of nodes that a prefix can lead to; None = there are too many sets."""
        numbers: dict[Nodes, int] = {(0,): 0}
        ways = TreeWays(numbers, {}, [], [])
        sets: list[Nodes] = [(0,)]
        for nodes in sets:
            scores = self._scores(nodes)
            for token in scores:
                if token != EOS:
                    after = self.follow(nodes, token)
                    if after not in numbers:
                        numbers[after] = len(sets)
                        sets.append(after)
                    ways.listed[numbers[nodes] * MORE + token] = (numbers[after],)
            ways.ends.append(scores.get(EOS, FORBIDDEN))
            ways.others.append(numbers[self.follow(nodes, UNK)] if UNK in scores else DEAD)
            if len(sets) > MOST_SETS:
                return None
        return ways


class TreeWays(NamedTuple):
    """The continuations of each set of nodes in an `OpenPrefixTree`. Sets have numbers from 0 on."""

    numbers: dict[Nodes, int]
    listed: dict[int, tuple[int]]
    """By number of a set * `MORE` + token: the set after a token that a hypothesis has."""
    ends: list[float]
    """The score of ``</s>`` after each set."""
    others: list[int]
    """The set after each other token; `DEAD` = no unknown word is next."""


class Matching(Relaxation):
    """Exact: the relaxed state is the number of the set of nodes."""

    def __init__(self, ways: TreeWays, nodes_of: Callable[[int], Nodes]) -> None:
        self.size = len(ways.numbers)
        self.memory = 0 if self.size == 1 else None
        self._numbers, self._nodes_of = ways.numbers, nodes_of
        self._listed = Keyed(ways.listed, 1)
        self._ends, self._others = np.array(ways.ends), np.array(ways.others)

    def of(self, states: Sequence[int]) -> list[int]:
        return [self._numbers[self._nodes_of(state)] for state in states]

    def after(self, states: Ints, tokens: Ints) -> Ints:
        place, there = self._listed.find(states * MORE + tokens)
        others = np.maximum(self._others[states], 0)
        found: Ints = np.where(there, self._listed.values[place, 0].astype(np.int64), others)
        return found

    def highest(self, states: Ints, tokens: Ints) -> Floats:
        _, there = self._listed.find(states * MORE + tokens)
        follows = there | ((self._others[states] >= 0) & (tokens != BOS))
        return np.where(tokens == EOS, self._ends[states], np.where(follows, 0.0, FORBIDDEN))

    def lowest(self, states: Ints, tokens: Ints) -> Floats:
        highest = self.highest(states, tokens)
        return np.where(highest == FORBIDDEN, np.inf, highest)


def _row_of(scores: dict[int, float], default: float) -> SparseRow:
    tokens = sorted(scores)
    return SparseRow(tokens, [scores[token] for token in tokens], default)
