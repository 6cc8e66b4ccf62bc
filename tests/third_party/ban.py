"""``ban``: a wrapper that forbids some tokens, whatever the predictor inside says of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import Field

import sgdec
from sgdec import BatchPredictor, Scores, Source
from sgdec.context import Vocabularies
from sgdec.protocol import FORBIDDEN, Candidates, SparseRow, State, ability

STILL_RIGHT = ("best_remaining", "state_key", "attention")
"""Scores only fall, so what bounded them still does."""


class Ban(BatchPredictor):
    """The inner states are its own."""

    def __init__(
        self, inner: BatchPredictor, tokens: Annotated[tuple[int, ...], Field(description="those forbidden")]
    ) -> None:
        self.inner = inner
        self.tokens = sorted(tokens)
        self.on_demand = inner.on_demand
        self.max_score = inner.max_score
        self.independent_rows = inner.independent_rows
        for name in STILL_RIGHT:
            if ability(inner, name) is not None:
                setattr(self, name, getattr(inner, name))

    @classmethod
    def read_vocabularies(cls, inner: Vocabularies, **options: Any) -> Vocabularies:
        return inner

    def initialize_batch(self, sources: Sequence[Source]) -> list[State]:
        return self.inner.initialize_batch(sources)

    def predict_batch(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        scores = self.inner.predict_batch(states, candidates)
        if scores.values is None:
            return Scores(rows=[self.banned(row) for row in scores.rows])
        values = scores.values.copy() if isinstance(scores.values, np.ndarray) else scores.values.clone()
        values[:, self.tokens] = FORBIDDEN
        return Scores.dense(values)

    def consume_batch(self, states: Sequence[State], tokens: Sequence[int]) -> list[State]:
        return self.inner.consume_batch(states, tokens)

    def banned(self, row: SparseRow) -> SparseRow:
        scores = dict(zip(row.tokens, row.scores, strict=True))
        if row.restricts:
            left = {token: score for token, score in scores.items() if token not in self.tokens}
        else:
            left = {**scores, **dict.fromkeys(self.tokens, FORBIDDEN)}
        return SparseRow(list(left), list(left.values()), row.default)


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[BatchPredictor]]:
    return {"ban": Ban}
