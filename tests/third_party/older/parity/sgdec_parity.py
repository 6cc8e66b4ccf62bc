"""`even`: only outputs of an even number of tokens. State: whether the number is odd so far."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import ClassVar

import sgdec
from sgdec import EOS, Predictor, Scores, Source
from sgdec.protocol import FORBIDDEN


class Even(Predictor):
    """0 for what is allowed, -inf for the end after an odd number of tokens."""

    never_positive: ClassVar[bool] = True

    def __init__(self) -> None:
        self._odd = False

    def initialize(self, source: Source) -> None:
        self._odd = False

    def predict_next(self, candidates: Sequence[int] | None = None) -> Scores:
        return Scores.sparse([EOS], [FORBIDDEN], default=0.0) if self._odd else Scores.constant(0.0)

    def consume(self, token: int) -> None:
        self._odd = not self._odd

    def get_state(self) -> bool:
        return self._odd

    def set_state(self, state: bool) -> None:
        self._odd = state

    def state_key(self, states: Sequence[bool]) -> list[Hashable]:
        return list(states)


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[Predictor]]:
    return {"even": Even}
