"""``repetition`` and ``repetition-batched``: fines tokens that were among the last; two forms.

Score of token w: minus the fine, times how often w is among the last ``window`` tokens. ``</s>`` costs nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Annotated

import numpy as np
from pydantic import Field

import sgdec
from sgdec import BatchPredictor, Context, Predictor, Scores, Source, UsageError
from sgdec.protocol import Candidates, State

Window = Annotated[int, Field(ge=1, description="tokens that are remembered")]
Fine = Annotated[float, Field(ge=0, description="for each time that a token is among them")]


class Repetition(Predictor):
    """One prefix at a time; its rows are open: what is not listed scores 0."""

    max_score = 0.0

    def __init__(self, window: Window = 4, fine: Fine = 1.0) -> None:
        self.window = window
        self.fine = fine
        self.last: tuple[int, ...] = ()

    def initialize(self, source: Source) -> None:
        self.last = ()

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        times = Counter(self.last)
        tokens = sorted(times)
        return Scores.sparse(tokens, [-self.fine * times[token] for token in tokens], default=0.0)

    def consume(self, token: int) -> None:
        self.last = (*self.last, token)[-self.window :]

    def get_state(self) -> State:
        return self.last

    def set_state(self, state: State) -> None:
        self.last = state

    def state_key(self, states: Sequence[State]) -> list[Hashable]:
        return list(states)


class RepetitionBatched(BatchPredictor):
    """Many prefixes at once, as a matrix."""

    max_score = 0.0
    independent_rows = True

    def __init__(self, context: Context, window: Window = 4, fine: Fine = 1.0) -> None:
        if context.vocab_size is None:
            raise UsageError("repetition-batched: its rows are as long as the vocabulary; give --vocab-size.")
        self.vocab_size = context.vocab_size
        self.window = window
        self.fine = fine

    def initialize_batch(self, sources: Sequence[Source]) -> list[State]:
        return [()] * len(sources)

    def predict_batch(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        scores = np.zeros((len(states), self.vocab_size))
        for row, state in zip(scores, states, strict=True):
            np.subtract.at(row, list(state), self.fine)
        return Scores.dense(scores)

    def consume_batch(self, states: Sequence[State], tokens: Sequence[int]) -> list[State]:
        return [(*state, token)[-self.window :] for state, token in zip(states, tokens, strict=True)]

    def state_key(self, states: Sequence[State]) -> list[Hashable]:
        return list(states)


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[Predictor] | type[BatchPredictor]]:
    return {"repetition": Repetition, "repetition-batched": RepetitionBatched}
