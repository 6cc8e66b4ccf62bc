"""`topic`: ln P(token | last token) of a random bigram model, many prefixes at once. State: the last token."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Annotated

import numpy as np
from pydantic import Field

import sgdec
from sgdec import BOS, BatchPredictor, Context, Scores, Source, UsageError
from sgdec.protocol import Candidates


class Topic(BatchPredictor):
    """One row of a matrix [V, V] for each prefix."""

    max_score = 0.0
    independent_rows = True

    def __init__(
        self, context: Context, spread: Annotated[float, Field(gt=0, description="standard deviation")] = 1.0
    ) -> None:
        if context.vocab_size is None:
            raise UsageError("topic: needs --vocab-size.")
        weights = np.random.default_rng(context.seed).normal(0, spread, (context.vocab_size, context.vocab_size))
        self._table = weights - np.logaddexp.reduce(weights, axis=1, keepdims=True)  # [V, V]

    def initialize_batch(self, sources: Sequence[Source]) -> list[int]:
        return [BOS] * len(sources)

    def predict_batch(self, states: Sequence[int], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        return Scores.dense(self._table[list(states)])

    def consume_batch(self, states: Sequence[int], tokens: Sequence[int]) -> list[int]:
        return list(tokens)

    def state_key(self, states: Sequence[int]) -> list[Hashable]:
        return list(states)

    def best_remaining(self, states: Sequence[int]) -> list[float]:
        return [float(self._table[state].max()) for state in states]


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[BatchPredictor]]:
    return {"topic": Topic}
