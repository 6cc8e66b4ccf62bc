"""`temper`: the scores of the predictor inside, divided by a temperature. They are not normalised again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

import sgdec
from sgdec import BatchPredictor, Scores, Source
from sgdec.context import Vocabularies
from sgdec.protocol import Candidates, SparseRow, State, ability


class Temper(BatchPredictor):
    """The states are those of the predictor inside."""

    def __init__(
        self, inner: BatchPredictor, temperature: Annotated[float, Field(gt=0, description="above 1: flatter")] = 2.0
    ) -> None:
        self.inner = inner
        self.temperature = temperature
        self.on_demand = inner.on_demand
        self.independent_rows = inner.independent_rows
        self.vocabularies = inner.vocabularies
        self.never_positive = inner.never_positive  # type: ignore[misc]
        for name in ("state_key", "attention"):
            if ability(inner, name) is not None:
                setattr(self, name, getattr(inner, name))

    @classmethod
    def read_vocabularies(cls, inner: Vocabularies, **options: Any) -> Vocabularies:
        return inner

    def initialize_batch(self, sources: Sequence[Source]) -> list[State]:
        return self.inner.initialize_batch(sources)

    def predict_batch(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        scores = self.inner.predict_batch(states, candidates)
        if scores.values is not None:
            return Scores.dense(scores.values / self.temperature)
        return Scores(rows=[self.divided(row) for row in scores.rows])

    def consume_batch(self, states: Sequence[State], tokens: Sequence[int]) -> list[State]:
        return self.inner.consume_batch(states, tokens)

    def divided(self, row: SparseRow) -> SparseRow:
        scores = [score / self.temperature for score in row.scores]
        return SparseRow(row.tokens, scores, row.default / self.temperature)


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[BatchPredictor]]:
    return {"temper": Temper}
