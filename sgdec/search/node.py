"""Nodes: the partial hypotheses that a search keeps, compares and expands.

A node has what it shares with its siblings (`Family`), what is its own, and the predictors' states, which are filled
in when they are first needed. It links back only to the `Step` s before it, which hold tokens and scores, never to
its ancestors' states: a search that keeps a million nodes keeps a million states at most.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

from sgdec.context import BOS, EOS
from sgdec.protocol import Source, State
from sgdec.ranking import Coverage
from sgdec.search.continuations import Continuation
from sgdec.search.faults import fault


class _NotConsumed:
    """The type of `NOT_CONSUMED`."""


NOT_CONSUMED = _NotConsumed()
"""In the place of a state: the predictor is still to consume the node's last token."""


class Behind(NamedTuple):
    """The state of a predictor that has consumed only the first ``length`` tokens of a prefix."""

    state: State
    length: int


class Unread:
    """The states of a node whose last token no predictor has consumed: one object for all siblings."""

    __slots__ = ("before",)

    def __init__(self, before: Sequence[State | Behind]) -> None:
        self.before = before
        """``[K]``: the states before the last token."""

    def before_children(self, length: int) -> Sequence[State | Behind]:
        """The states before the last tokens of children, where the node has so many tokens."""
        return [state if type(state) is Behind else Behind(state, length - 1) for state in self.before]


class Pending(Unread):
    """The same, of a node that some predictors have been asked about: filled in as they are."""

    __slots__ = ("states",)

    def __init__(self, before: Sequence[State | Behind]) -> None:
        self.before = before
        self.states: list[State] = [NOT_CONSUMED] * len(before)
        """``[K]``; `NOT_CONSUMED` where the last token is still to be consumed."""

    def before_children(self, length: int) -> Sequence[State | Behind]:
        behind = super().before_children(length)
        return [old if new is NOT_CONSUMED else new for old, new in zip(behind, self.states, strict=True)]


class Step(NamedTuple):
    """One link of a hypothesis: what its ledger and tokens are read from. Holds no states."""

    token: int
    scores: tuple[float, ...]
    weights: tuple[float | None, ...]
    previous: Link


Link: TypeAlias = "tuple[int, tuple[float, ...], tuple[float | None, ...], Link] | None"
"""A `Step` as it is kept, a plain tuple: a search makes one for each expansion."""


class Family(NamedTuple):
    """What siblings have in common."""

    source: Source
    length: int
    """Tokens so far, ``</s>`` included once it is there."""
    weights: tuple[float | None, ...]
    """In force for their children, who inherit them."""
    scored_under: tuple[float | None, ...]
    """In force for their last tokens."""
    before: Link
    """The link of the token before their last ones."""


class Node:
    """A partial hypothesis: a value, but for its states, which are filled in when they are first needed."""

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
        """Its unweighted scores ``[K]``, for the ledger."""
        self.total = total
        """Weighted sum of all scores so far."""
        self.states = states
        """``[K]``, once all predictors have consumed the last token."""
        self.coverage = coverage
        self.bound = bound
        """What continuations can still add at most; None = not known yet: `SearchSpace.bound` says."""

    @classmethod
    def root(
        cls, source: Source, weights: tuple[float | None, ...], states: Sequence[State], length: int = 0
    ) -> Node:
        """The empty prefix; or, for questions about continuations alone, a prefix of ``length`` unknown tokens."""
        return cls(Family(source, length, weights, weights, None), BOS, (), 0.0, tuple(states))

    @property
    def source(self) -> Source:
        return self.family.source

    @property
    def length(self) -> int:
        """Tokens so far, ``</s>`` included once it is there."""
        return self.family.length

    @property
    def weights(self) -> tuple[float | None, ...]:
        """In force for this node's children; they inherit them."""
        return self.family.weights

    @property
    def link(self) -> Link:
        """What this node's children link to; None for the root. Most nodes have no children, and make none."""
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
        """All tokens after ``<s>``, with ``</s>`` if it is there."""
        return tuple(token for token, _, _, _ in self._links())

    def steps(self) -> list[Step]:
        """First token first."""
        return [Step(*link) for link in self._links()]

    def columns(self) -> tuple[tuple[int, ...], tuple[tuple[float, ...], ...], tuple[tuple[float | None, ...], ...]]:
        """The same, of a node that is not the root, as columns: tokens, scores, weights."""
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
        """This prefix with one more token, each of these."""
        states, family, total = self.states, self.next_family(), self.total
        unread = Unread(states.before_children(self.length) if isinstance(states, Unread) else states)
        return [
            Node(family, token, scores, total + score, unread, coverage) for token, score, scores in continuations
        ]

    def next_family(self) -> Family:
        """That of this node's children."""
        source, length, weights, scored_under, before = self.family
        link = (self.last, self.scores, scored_under, before) if length else None
        return Family(source, length + 1, weights, weights, link)

    def __repr__(self) -> str:
        return f"Node({' '.join(map(str, self.tokens))!r}, total={self.total:.4f})"


def require_finite(children: Sequence[Node], names: Sequence[str]) -> None:
    """SgdecError if the totals of siblings, best first, have left the range of numbers; names the predictor."""
    if children and not (children[0].total < math.inf and children[-1].total > -math.inf):
        wrong = children[0] if children[0].total == math.inf else children[-1]
        _, scores, weights = wrong.columns()
        raise fault(wrong.last, names, weights[-1], scores[-1])
