"""Nodes: the partial hypotheses that a search keeps, compares and expands.

A node has data that it shares with its siblings (`Family`), data of its own, and the predictors' states, which are
computed when they are first needed. It links only to the previous `Step` objects, which hold tokens and scores, and
never to its ancestors' states: a search that keeps a million nodes keeps at most a million states per predictor.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from sgdec.context import BOS, EOS
from sgdec.protocol import Source, State
from sgdec.ranking import Coverage
from sgdec.search.combination.continuations import Continuation
from sgdec.search.combination.faults import fault


class _NotConsumed:
    """The type of `NOT_CONSUMED`."""


NOT_CONSUMED = _NotConsumed()
"""Placeholder for the state of a predictor that has not consumed the node's last token yet."""


class Behind(NamedTuple):
    """The state of a predictor that has consumed only the first ``length`` tokens of a prefix."""

    state: State
    length: int


class Unread:
    """The states of a node whose last token no predictor has consumed yet; siblings share one object."""

    __slots__ = ("before",)

    def __init__(self, before: Sequence[State | Behind]) -> None:
        self.before = before
        """``[K]``: the states before the last token."""

    def before_children(self, length: int) -> Sequence[State | Behind]:
        """``[K]``: the states before the last tokens of the node's children; ``length``: the node's length."""
        return [state if type(state) is Behind else Behind(state, length - 1) for state in self.before]


class Pending(Unread):
    """The states of a node whose last token some predictors have consumed; the others' states are added later."""

    __slots__ = ("states",)

    def __init__(self, before: Sequence[State | Behind]) -> None:
        self.before = before
        self.states: list[State] = [NOT_CONSUMED] * len(before)
        """``[K]``; `NOT_CONSUMED` for predictors that have not consumed the last token yet."""

    def before_children(self, length: int) -> Sequence[State | Behind]:
        behind = super().before_children(length)
        return [old if new is NOT_CONSUMED else new for old, new in zip(behind, self.states, strict=True)]


class Step(NamedTuple):
    """One step of a hypothesis. The tokens and the ledger are read from its steps. A step holds no states."""

    token: int
    scores: tuple[float, ...]
    weights: tuple[float | None, ...]
    previous: Link


Link: TypeAlias = "tuple[int, tuple[float, ...], tuple[float | None, ...], Link] | None"
"""A `Step` as a plain tuple, which is cheaper: a search creates one for each expansion."""


class Family(NamedTuple):
    """The data that siblings have in common."""

    source: Source
    length: int
    """The number of tokens so far, including ``</s>`` in finished nodes."""
    weights: tuple[float | None, ...]
    """``[K]``: the weights for scoring their children, who inherit them."""
    scored_under: tuple[float | None, ...]
    """``[K]``: the weights under which their own last tokens were scored."""
    before: Link
    """The link of the token before their last tokens."""


class Node:
    """A partial hypothesis. Immutable, except that its states are computed when they are first needed."""

    __slots__ = ("bound", "coverage", "family", "last", "scores", "states", "total")

    def __init__(
        self,
        family: Family,
        last: int,
        scores: tuple[float, ...],
        total: float,
        states: tuple[State, ...] | Unread,
        coverage: Coverage = (),
        bound: float | None = None,
    ) -> None:
        self.family = family
        self.last = last
        """The last token; ``<s>`` for the root."""
        self.scores = scores
        """The unweighted scores ``[K]`` of the last token, for the ledger."""
        self.total = total
        """The weighted sum of all scores so far."""
        self.states = states
        """A tuple ``[K]`` once all predictors have consumed the last token."""
        self.coverage = coverage
        self.bound = bound
        """Upper bound on what continuations can still add; None = not known yet, ask `SearchSpace.bound`."""

    @classmethod
    def root(
        cls, source: Source, weights: tuple[float | None, ...], states: Sequence[State], length: int = 0
    ) -> Node:
        """The empty prefix, or a prefix of ``length`` unknown tokens whose continuations alone are of interest."""
        return cls(Family(source, length, weights, weights, None), BOS, (), 0.0, tuple(states))

    @property
    def source(self) -> Source:
        return self.family.source

    @property
    def length(self) -> int:
        """The number of tokens so far, including ``</s>`` in finished nodes."""
        return self.family.length

    @property
    def weights(self) -> tuple[float | None, ...]:
        """``[K]``: the weights for scoring this node's children, who inherit them."""
        return self.family.weights

    @property
    def link(self) -> Link:
        """The link that this node's children keep; None for the root. Created on demand: few nodes have children."""
        family = self.family
        return (self.last, self.scores, family.scored_under, family.before) if family.length else None

    @property
    def step(self) -> Step | None:
        """The last step; None for the root."""
        return None if self.link is None else Step(*self.link)

    @property
    def finished(self) -> bool:
        return self.last == EOS

    @property
    def tokens(self) -> tuple[int, ...]:
        """All tokens after ``<s>``, including ``</s>`` in finished nodes."""
        return tuple(token for token, _, _, _ in self._links())

    def steps(self) -> list[Step]:
        """All steps, first token first."""
        return [Step(*link) for link in self._links()]

    def columns(self) -> tuple[tuple[int, ...], tuple[tuple[float, ...], ...], tuple[tuple[float | None, ...], ...]]:
        """The steps of a node other than the root as three tuples: tokens, scores, weights."""
        tokens, scores, weights, _ = zip(*self._links(), strict=True)
        return tokens, scores, weights

    def _links(self) -> list[tuple[int, tuple[float, ...], tuple[float | None, ...], Link]]:
        links = []
        link = self.link
        while link is not None:
            links.append(link)
            link = link[-1]
        return links[::-1]

    def with_weights(self, weights: Sequence[float | None]) -> Node:
        """The same prefix, whose children will be scored with other weights (``[K]``)."""
        family = self.family._replace(weights=tuple(weights))
        return Node(family, self.last, self.scores, self.total, self.states, self.coverage)

    def children(self, continuations: Iterable[Continuation], coverage: Coverage) -> list[Node]:
        """The child for each of these continuations."""
        return list(self.lazy_children(continuations, coverage))

    def lazy_children(self, continuations: Iterable[Continuation], coverage: Coverage) -> Iterator[Node]:
        """The same; each child is created when it is read."""
        family, unread, total = self.next_family(), self.unread_children(), self.total
        return (
            Node(family, token, scores, total + score, unread, coverage) for token, score, scores in continuations
        )

    def unread_children(self) -> Unread:
        """The states of this node's children, before their last tokens are consumed."""
        states = self.states
        return Unread(states.before_children(self.length) if isinstance(states, Unread) else states)

    def next_family(self) -> Family:
        """The `Family` of this node's children."""
        source, length, weights, scored_under, before = self.family
        link = (self.last, self.scores, scored_under, before) if length else None
        return Family(source, length + 1, weights, weights, link)

    def __repr__(self) -> str:
        return f"Node({' '.join(map(str, self.tokens))!r}, total={self.total:.4f})"


def require_finite(children: Sequence[Node], names: Sequence[str]) -> None:
    """Raise SgdecError, naming the predictor, if a total of these siblings, sorted best first, has overflowed."""
    if children and not (children[0].total < math.inf and children[-1].total > -math.inf):
        wrong = children[0] if children[0].total == math.inf else children[-1]
        _, scores, weights = wrong.columns()
        raise fault(wrong.last, names, weights[-1], scores[-1])


def require_finite_after(parent: Node, ranked: Sequence[tuple[Any, ...]], names: Sequence[str]) -> None:
    """The same for children that are not created yet.

    ``ranked``: their tokens, scores, ledgers (and more, which is ignored), best first.
    """
    if ranked and not (parent.total + ranked[0][1] < math.inf and parent.total + ranked[-1][1] > -math.inf):
        token, _, scores, *_ = ranked[0] if parent.total + ranked[0][1] == math.inf else ranked[-1]
        raise fault(token, names, parent.weights, scores)
