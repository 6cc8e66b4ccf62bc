"""Predictors that forbid some tokens after each prefix, and score 0 otherwise."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Sequence
from typing import Generic, TypeVar

from sgdec import BatchPredictor, Scores
from sgdec.protocol import Candidates, Steps
from sgdec.relaxations import Constant, Relaxation
from sgdec.scores import SparseRow

Prefix = TypeVar("Prefix", bound=Hashable)
RELAXED = (Constant(0.0, 0.0),)


class Forbidding(BatchPredictor, Generic[Prefix]):
    """An automaton with open rows, in which all scores are 0 or -inf. Equal states have equal futures."""

    max_score = 0.0
    independent_rows = True
    restricts = False

    @abstractmethod
    def row(self, state: Prefix) -> SparseRow:
        """The tokens that are forbidden after a prefix; the default is 0."""

    @abstractmethod
    def after(self, state: Prefix, token: int) -> Prefix:
        """The state after one more token."""

    def predict_batch(
        self, states: Sequence[Prefix], candidates: Sequence[Candidates | None] | None = None
    ) -> Scores:
        return Scores(rows=list(map(self.row, states)))

    def consume_batch(self, states: Sequence[Prefix], tokens: Sequence[int]) -> list[Prefix]:
        return list(map(self.after, states, tokens))

    def steps(self, state: Prefix, candidates: Candidates | None) -> Steps:
        """Raises ValueError without candidates, because rows are open and list no tokens to take."""
        if candidates is None:
            raise ValueError(f"{type(self).__name__} takes steps among candidates only")
        return candidates, self.row(state).at(candidates), [self.after(state, token) for token in candidates]

    def best_remaining(self, states: Sequence[Prefix]) -> list[float]:
        """0, although a prefix may have no allowed continuation."""
        return [0.0] * len(states)

    def worst_remaining(self, states: Sequence[Prefix]) -> list[float]:
        return [0.0] * len(states)

    def relaxations(self, state: Prefix) -> Sequence[Relaxation]:
        return RELAXED

    def state_key(self, states: Sequence[Prefix]) -> list[Hashable]:
        return list(states)
