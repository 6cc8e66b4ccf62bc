"""Nodes: the partial hypotheses that a search keeps, compares and expands.

A node links back only to the `Step` s before it, which hold tokens and scores, never to its ancestors' states: a
search that keeps a million nodes keeps a million states at most, and a finished hypothesis keeps none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sgdec.combination import Continuation
from sgdec.context import BOS, EOS
from sgdec.protocol import Source, State
from sgdec.ranking import Coverage


class _Pending:
    """The state of a node whose last token this predictor has not consumed yet."""


PENDING = _Pending()


class Step(NamedTuple):
    """One link of a hypothesis: what its ledger and tokens are read from. Holds no states."""

    token: int
    scores: tuple[float, ...]
    weights: tuple[float | None, ...]
    previous: Step | None


class Node:
    """A partial hypothesis. A value to its decoder; ``states`` are filled in when first needed."""

    __slots__ = (
        "_continuation", "_step", "coverage", "last", "length", "prior", "source", "states", "total", "weights",
    )  # fmt: skip

    def __init__(
        self,
        source: Source,
        step: Step | None,
        total: float,
        length: int,
        weights: tuple[float | None, ...],
        states: list[State] | None,
        prior: Sequence[State] | None,
        coverage: Coverage,
        continuation: Continuation | None = None,
    ) -> None:
        """``continuation``: the last token, if ``step`` is still the link of the one before it."""
        self.source = source
        self._step = step
        self._continuation = continuation
        if continuation is not None:
            self.last = continuation.token
        else:
            self.last = BOS if step is None else step.token
        """The last token; ``<s>`` for the root."""
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

    @property
    def step(self) -> Step | None:
        """The last link; None for the root. Made when first asked for: most children are never looked at again."""
        if self._continuation is not None:
            token, _, scores = self._continuation
            self._step, self._continuation = Step(token, scores, self.weights, self._step), None
        return self._step

    @property
    def finished(self) -> bool:
        return self.last == EOS

    @property
    def tokens(self) -> tuple[int, ...]:
        """All tokens after ``<s>``, with ``</s>`` if it is there."""
        return tuple(step.token for step in self.steps())

    def steps(self) -> list[Step]:
        """First token first."""
        steps = []
        step = self.step
        while step is not None:
            steps.append(step)
            step = step.previous
        return steps[::-1]

    def with_weights(self, weights: Sequence[float | None]) -> Node:
        """The same prefix, whose children will be scored with other weights (``[K]``)."""
        states = None if self.states is None else list(self.states)
        return Node(
            self.source, self.step, self.total, self.length, tuple(weights), states, self.prior, self.coverage
        )

    def child(self, continuation: Continuation, coverage: Coverage) -> Node:
        """This prefix with one more token."""
        return Node(
            self.source,
            self.step,
            self.total + continuation.score,
            self.length + 1,
            self.weights,
            None,
            self.states,
            coverage,
            continuation,
        )

    def __repr__(self) -> str:
        return f"Node({' '.join(map(str, self.tokens))!r}, total={self.total:.4f})"
