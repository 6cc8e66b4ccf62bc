"""N-best lists as prefix trees, for `sgdec_predictors.forcedlst`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TypeAlias

import numpy as np

from sgdec import BOS, EOS, UNK
from sgdec.arcs import DEAD, Automaton
from sgdec.protocol import FORBIDDEN, SparseRow
from sgdec_predictors._numbered import LONGEST

Nodes: TypeAlias = tuple[int, ...]
"""Nodes of a tree that a prefix leads to."""


class PrefixTree(Automaton):
    """The hypotheses of one sentence; node 0 is the empty prefix, and children come after their parents.

    A state is a node; as an automaton, it has an arc to each child, and one for the end of a hypothesis.
    """

    def __init__(self, hypotheses: Iterable[tuple[tuple[int, ...], float]]) -> None:
        self._children: list[dict[int, int]] = [{}]
        self._ends: dict[int, float] = {}
        """By node: the score of the hypothesis that equals the prefix."""
        for tokens, score in hypotheses:
            self._add(tokens, score)
        self._best = self._extremes(1)
        """By node: the highest score below it."""
        self._worst = {node: -score for node, score in self._extremes(-1).items()}
        ends = [{EOS: DEAD} if node in self._ends else {} for node in range(len(self._children))]
        arcs = [sorted((children | end).items()) for children, end in zip(self._children, ends, strict=True)]
        pairs = np.array(list(chain.from_iterable(arcs)), np.int64).reshape(-1, 2)
        scores = np.zeros(len(pairs))
        scores[pairs[:, 0] == EOS] = [self._ends[node] for node in sorted(self._ends)]
        super().__init__(np.cumsum([0, *map(len, arcs)]), pairs[:, 0], scores, pairs[:, 1])

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
            node = self._children[node][token]
        self._ends[node] = max(score, self._ends.get(node, FORBIDDEN))

    def _extremes(self, sign: int) -> dict[int, float]:
        """For each node the highest ``sign`` x score below it."""
        found: dict[int, float] = {}
        for node in reversed(range(len(self._children))):
            scores = [found[child] for child in self._children[node].values()]
            if node in self._ends:
                scores.append(sign * self._ends[node])
            found[node] = max(scores, default=FORBIDDEN)
        return found


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
