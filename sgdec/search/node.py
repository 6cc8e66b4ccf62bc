"""Nodes: the partial hypotheses that a search keeps, compares and expands.

A node links back only to the `Step` s before it, which hold tokens and scores, never to its ancestors' states: a
search that keeps a million nodes keeps a million states at most, and a finished hypothesis keeps none.
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


class _Pending:
    """The state of a node whose last token this predictor has not consumed yet."""


PENDING = _Pending()


class Step(NamedTuple):
    """One link of a hypothesis: what its ledger and tokens are read from. Holds no states."""

    token: int
    scores: tuple[float, ...]
    weights: tuple[float | None, ...]
    previous: Link


Link: TypeAlias = "tuple[int, tuple[float, ...], tuple[float | None, ...], Link] | None"
"""A `Step` as it is kept, a plain tuple: a search makes one for each expansion."""


class Node:
    """A partial hypothesis. A value to its decoder; ``states`` are filled in when first needed."""

    __slots__ = (
        "_before", "_scores", "bound", "coverage", "last", "length", "prior", "source", "states", "total", "weights",
    )  # fmt: skip

    def __init__(
        self,
        source: Source,
        before: Link,
        last: int,
        scores: tuple[float, ...] | None,
        total: float,
        length: int,
        weights: tuple[float | None, ...],
        states: Sequence[State] | None,
        prior: Sequence[State] | None,
        coverage: Coverage,
        bound: float | None = None,
    ) -> None:
        """``before``: the link of the token before the last; ``scores``: those of the last one, for the ledger.

        Or ``before`` is the link of the last token itself, and ``scores`` is None.
        """
        self.source = source
        self._before = before
        self.last = last
        """The last token; ``<s>`` for the root."""
        self._scores = scores
        self.total = total
        """Weighted sum of all scores so far."""
        self.length = length
        """Tokens so far, ``</s>`` included once it is there."""
        self.weights = weights
        """In force for this node's children; they inherit them."""
        self.states = states
        """``[K]``; `PENDING` where the last token is still to be consumed; None = pending everywhere."""
        self.prior = prior
        """The parent's states, until all of this node's are there."""
        self.coverage = coverage
        self.bound = bound
        """What its continuations can still add at most; None = not known yet: `SearchSpace.bound` says."""

    @classmethod
    def root(cls, source: Source, weights: tuple[float | None, ...], states: Sequence[State]) -> Node:
        """The empty prefix."""
        return cls(source, None, BOS, None, 0.0, 0, weights, states, None, ())

    @property
    def link(self) -> Link:
        """What this node's children link to; None for the root. Most nodes have no children, and make none."""
        return self._before if self._scores is None else (self.last, self._scores, self.weights, self._before)

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
        states = None if self.states is None else list(self.states)
        return Node(
            self.source, self.link, self.last, None, self.total, self.length, tuple(weights), states, self.prior,
            self.coverage,
        )  # fmt: skip

    def children(self, continuations: Iterable[Continuation], coverage: Coverage) -> list[Node]:
        """This prefix with one more token, each of these."""
        source, link, weights, states = self.source, self.link, self.weights, self.states
        total, length = self.total, self.length + 1
        return [
            Node(source, link, token, scores, total + score, length, weights, None, states, coverage)
            for token, score, scores in continuations
        ]

    def __repr__(self) -> str:
        return f"Node({' '.join(map(str, self.tokens))!r}, total={self.total:.4f})"


def require_finite(children: Sequence[Node], names: Sequence[str]) -> None:
    """SgdecError where the totals of siblings, best first, have left the range of numbers; names the predictor."""
    if children and not (children[0].total < math.inf and children[-1].total > -math.inf):
        wrong = children[0] if children[0].total == math.inf else children[-1]
        _, scores, weights = wrong.columns()
        raise fault(wrong.last, names, weights[-1], scores[-1])
