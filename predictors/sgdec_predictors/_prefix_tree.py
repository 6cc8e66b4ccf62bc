"""N-best lists as prefix trees, for `sgdec_predictors.forcedlst`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import TypeAlias

import numpy as np

from sgdec import BOS, EOS, UNK
from sgdec.arcs import DEAD, Automaton, Floats
from sgdec.protocol import FORBIDDEN, Ints, SparseRow
from sgdec_predictors._numbered import LONGEST

Nodes: TypeAlias = tuple[int, ...]
"""Nodes of a tree that a prefix leads to."""


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


def _row_of(scores: dict[int, float], default: float) -> SparseRow:
    tokens = sorted(scores)
    return SparseRow(tokens, [scores[token] for token in tokens], default)
