"""Word count: -1 for every token but ``</s>``, or for one given token (Stahlberg et al. 2017, Table 1).

Score of token w: ``-1`` if w counts, otherwise ``0``. With a negative weight it rewards length. State: the number of
tokens that the length limit still allows, which only the bounds need. Cost: constant per row.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Annotated

from pydantic import Field

import sgdec
from sgdec import EOS, Predictor, Scores, Source
from sgdec.protocol import Candidates


class WordCount(Predictor):
    """A cost of one for each token.

    >>> WordCount().predict_next().rows[0].get(17)
    -1.0
    >>> WordCount(token=5).predict_next().rows[0].get(17)
    0.0
    """

    max_score = 0.0

    def __init__(
        self,
        token: Annotated[
            int, Field(ge=-1, description="count this token only; -1 = every token but </s>")
        ] = -1,
    ) -> None:
        if token >= 0:
            self._scores = Scores.sparse([token], [-1.0], default=0.0)
        else:
            self._scores = Scores.sparse([EOS], [0.0], default=-1.0)
        self._left = math.inf

    def initialize(self, source: Source) -> None:
        self._left = math.inf if source.max_length is None else source.max_length

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        return self._scores

    def consume(self, token: int) -> None:
        self._left -= 1

    def get_state(self) -> float:
        return self._left

    def set_state(self, state: float) -> None:
        self._left = state

    def worst_remaining(self, states: Sequence[float]) -> list[float]:
        return [-max(left, 0.0) for left in states]

    def state_key(self, states: Sequence[float]) -> list[Hashable]:
        return [None] * len(states)  # the tokens left are part of the space's own key


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[Predictor]]:
    return {"wc": WordCount}
