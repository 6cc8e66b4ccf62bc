"""Lazy intersection of predictors that are all automata, one prefix at a time.

Lattices and n-gram models know the state after a token as soon as they know its score. They declare this with the
ability ``steps`` (`sgdec.protocol.StepsAhead`). If all predictors of a constellation have it, the search space is
an intersection of weighted automata, built state by state as the search asks for it (Mohri, Pereira and Riley 2002,
section 3). Each predictor is then called once per prefix, in plain Python, and the states after all tokens are known
without `consume`. For rows of a few tokens, further calls and arrays would cost more than the sums.

The results are those that `sgdec.search.combining` defines.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice, takewhile
from operator import itemgetter
from typing import Any, TypeAlias

from sgdec.context import EOS
from sgdec.errors import SgdecError
from sgdec.protocol import FORBIDDEN, Candidates, State, Steps
from sgdec.ranking import Ranking
from sgdec.search.answers import bounds_given, require_one_each
from sgdec.search.blame import blamed
from sgdec.search.bounds.declared import Bounds, bound_of, total_bound
from sgdec.search.bounds.folding import Folding
from sgdec.search.combination.choosing import Choice, choose_in_groups
from sgdec.search.combination.columns import not_in_vocabulary, outside
from sgdec.search.combination.faults import fault, forbids
from sgdec.search.node import Node, require_finite_after

StepsOf: TypeAlias = Callable[[State, Candidates | None], Steps]
Arc: TypeAlias = tuple[int, float, tuple[float, ...], tuple[State, ...], float | None]
"""Token; combined score; scores ``[K]``; states after the token ``[K]``; bound after the token (None = unknown)."""

KEPT = 1 << 14
"""The number of joint states whose arcs are cached. Prefixes often share a joint state."""
END: Candidates = [EOS]
FEW = 4
"""For at most this many arcs per hypothesis kept, choosing costs as much as the nodes that it saves."""
_score = itemgetter(1)


def plain_sum(scores: Iterable[float]) -> float:
    """The sum of K scores, from left to right as arrays are added up; from Python 3.12 on, `sum` rounds otherwise."""
    total = 0.0
    for score in scores:
        total += score
    return total


SUMS: dict[int, Callable[[Sequence[float]], float]] = {
    1: lambda scores: 0.0 + scores[0],
    2: lambda scores: 0.0 + scores[0] + scores[1],
    3: lambda scores: 0.0 + scores[0] + scores[1] + scores[2],
}
"""By K: `plain_sum` without its loop."""


class JointAutomaton:
    """The intersection of K automata: computes the children of a prefix and, on request, their bounds."""

    def __init__(
        self,
        names: Sequence[str],
        weights: tuple[float | None, ...],
        steps: Sequence[tuple[int, StepsOf]],
        bounds: Bounds,
        folding: Folding,
        vocab_size: int | None = None,
    ) -> None:
        """``weights``: the weights ``[K]`` that nodes must have; none is None.

        ``steps``: pairs of a predictor's number and its ``steps`` method, in call order; the first one lists tokens.
        """
        self._names = names
        self._weights = weights
        self._factors = [weight for weight in weights if weight is not None]
        self._steps = steps
        self._bounds = bounds
        self._own = {k: (weight, method) for k, weight, method in bounds.own}
        self._only_one_bound = [weight for weight, _ in self._own.values()] == [1.0]
        self._folding = folding
        self._vocab_size = vocab_size
        self._bounds_are_known = (bounds.declared or folding.helps) and bounds.per_token <= 0.0
        """False if a predictor declares no bound, or bounds depend on the length: cached arcs serve all lengths."""
        self._sum = SUMS.get(len(weights), plain_sum) if set(weights) == {1.0} else self._weighted_sum
        self._arcs_of = lru_cache(KEPT)(self._arcs)

    def covers(self, nodes: Iterable[Node]) -> bool:
        """Whether all of these nodes have this automaton's weights and complete states."""
        for node in nodes:  # noqa: SIM110 - hot
            if type(node.states) is not tuple or node.family.weights != self._weights:
                return False
        return True

    def children(
        self, nodes: Sequence[Node], limits: Sequence[int | None], above: Sequence[float], bounded: bool
    ) -> list[Iterator[Node]]:
        """The same as `ScoredRows.children`, for nodes that this automaton covers; children have their states.

        Raises SgdecError for a score that is NaN or +inf, and for a total that overflows.
        """
        families = []
        for node, limit, least in zip(nodes, limits, above, strict=True):
            children = self._nodes(node, self._arcs_after(node, bounded))
            if least != FORBIDDEN:
                children = _above(least, children)
            families.append(children if limit is None else islice(children, limit))
        return families

    def best(self, nodes: Sequence[Node], beam_of: Sequence[int], choice: Choice) -> list[list[Node]]:
        """The same as `ScoredRows.best`, for nodes that this automaton covers."""
        arcs = [self._arcs_after(node) for node in nodes]
        if not self._are_few(arcs, choice):
            arcs = choose_in_groups(arcs, beam_of, [node.total for node in nodes], choice)
        families = []
        for node, of_node in zip(nodes, arcs, strict=True):
            require_finite_after(node, of_node, self._names)
            family, total = node.next_family(), node.total
            families.append([
                Node(family, token, scores, total + score, after, (), bound)
                for token, score, scores, after, bound in of_node
            ])
        return families

    def keys(self, nodes: Iterable[Node], ranking: Ranking) -> list[Hashable]:
        """The same as `Constellation.keys`, for nodes that this automaton covers: equal states have equal futures."""
        keys: list[Hashable] = []
        for node in nodes:
            family = node.family
            timed = ranking.uses_length or family.source.max_length is not None
            key = family.length if timed else None, node.states
            keys.append(object() if node.finished else key)
        return keys

    def _are_few(self, arcs: Sequence[Sequence[Arc]], choice: Choice) -> bool:
        """Whether making a node of each arc costs less than choosing; the space drops those that are not needed."""
        counts = list(map(len, arcs))
        return choice.width == math.inf and sum(counts) <= FEW * choice.size and max(counts) <= choice.each

    def _arcs_after(self, node: Node, bounded: bool = False) -> list[Arc]:
        states: Any = node.states  # a tuple, because `covers` holds for this node
        if node.family.length == node.family.source.max_length:
            return self._arcs(states, bounded, END)
        return self._arcs_of(states, bounded)

    def _nodes(self, parent: Node, arcs: Sequence[Arc]) -> Iterator[Node]:
        """The children at the ends of these arcs, best first; each is created when it is read."""
        require_finite_after(parent, arcs, self._names)
        family, total = parent.next_family(), parent.total
        return (
            Node(family, token, scores, total + score, after, (), bound)
            for token, score, scores, after, bound in arcs
        )

    def _arcs(self, states: tuple[State, ...], bounded: bool, tokens: Candidates | None = None) -> list[Arc]:
        """The arcs of a joint state, best first; only those with ``tokens`` if these are given."""
        scores: list[Sequence[float]] = [()] * len(states)
        after: list[Sequence[State]] = [()] * len(states)
        for k, steps in self._steps:
            try:
                found, row, states_after = steps(states[k], tokens)
            except Exception as error:
                raise blamed(self._names[k], getattr(steps, "__self__", None), error) from error
            number = len(found)
            if number != len(row) or number != len(states_after) or (tokens is not None and number != len(tokens)):
                raise self._not_one_each(k, found, row, states_after, tokens)
            tokens, scores[k], after[k] = found, row, states_after
        assert tokens is not None
        if (token := outside(tokens, self._vocab_size)) is not None:
            raise not_in_vocabulary(self._names[self._steps[0][0]], token, self._vocab_size)
        arcs: list[Arc] = []
        for token, ledger, states in zip(tokens, zip(*scores), zip(*after)):  # noqa: B905 - hot
            score = self._sum(ledger)
            if score > FORBIDDEN:
                arcs.append((token, score, ledger, states, None))
            elif not forbids(ledger):
                raise fault(token, self._names, self._weights, ledger)
        if arcs and bounded and self._bounds_are_known:
            arcs = self._bounded(arcs)
        if len(arcs) > 1:
            arcs.sort(key=_score, reverse=True)  # stable: tokens came in ascending order
        if arcs and arcs[0][1] == math.inf:
            raise fault(arcs[0][0], self._names, self._weights, arcs[0][2])
        return arcs

    def _not_one_each(
        self, k: int, tokens: Candidates, scores: Sequence[float], after: Sequence[State], asked: Candidates | None
    ) -> SgdecError:
        """The error for an answer of predictor k that lacks a score or a state for a token or a candidate."""
        if not len(tokens) == len(scores) == len(after):
            return SgdecError(
                f"predictor {self._names[k]!r}: steps returned {len(tokens)} tokens with {len(scores)} scores and "
                f"{len(after)} states; expected one score and one state per token."
            )
        return SgdecError(
            f"predictor {self._names[k]!r}: steps returned {len(tokens)} tokens for {len(asked or ())} candidates; "
            "expected exactly these tokens, with score -inf for those that cannot follow."
        )

    def _weighted_sum(self, scores: Iterable[float]) -> float:
        """The weighted sum of K scores; -inf if one of them is -inf, whatever its weight."""
        total = 0.0
        for weight, score in zip(self._factors, scores, strict=True):
            if score == FORBIDDEN:
                return FORBIDDEN
            total += weight * score
        return total

    def _bounded(self, arcs: Sequence[Arc]) -> list[Arc]:
        """The same arcs with bounds. No predictor is asked about its state after ``</s>``."""
        after = [states for token, _, _, states, _ in arcs if token != EOS]
        bounds = iter(self._remaining(len(after), list(zip(*after, strict=True))) if after else ())
        return [
            (token, score, ledger, states, 0.0 if token == EOS else next(bounds))
            for token, score, ledger, states, _ in arcs
        ]

    def _remaining(self, number: int, after: Sequence[Sequence[State]]) -> Iterable[float | None]:
        """Upper bounds on what can still be added after each of this many tokens; None = not known here."""
        bounds = self._bounds

        known: dict[int, Sequence[float]] = {}  # functools.cache would cost more than the rest

        def own(k: int) -> Sequence[float]:
            if k not in known:
                known[k] = self._own_bounds(k, after[k])
            return known[k]

        def sums() -> Sequence[float]:
            if not bounds.declared:
                return [math.inf] * number
            columns, others = list(map(own, self._own)), bounds.per_token
            if self._only_one_bound:
                return [most + others for most in columns[0]] if others else columns[0]
            if not columns:
                return [others] * number
            weights = [weight for weight, _ in self._own.values()]
            return [total_bound(weights, row) + others for row in zip(*columns, strict=True)]

        if not self._folding.helps:
            return sums()
        lowest = self._folding.bounds(after, [math.inf] * number, own, sums)
        return [None if bound == math.inf else bound for bound in lowest]  # None: the length may be limited

    def _own_bounds(self, k: int, states: Sequence[State]) -> Sequence[float]:
        """The bounds of these states by predictor k, which declares one for each state."""
        weight, method = self._own[k]
        try:
            found = method(states)
        except Exception as error:
            raise blamed(self._names[k], getattr(method, "__self__", None), error) from error
        require_one_each(self._names[k], bound_of(weight), found, len(states))
        return bounds_given(self._names[k], bound_of(weight), found)


def _above(least: float, children: Iterator[Node]) -> Iterator[Node]:
    return takewhile(lambda child: child.total > least, children)
