"""``hints``: line N of a file beside the input lists tokens that sentence N should contain.

Each scores a bonus the first time that it is used, and 0 afterwards, as everything else does.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field

import sgdec
from sgdec import Predictor, Scores, SgdecError, Source
from sgdec.protocol import Candidates, State


class Hints(Predictor):
    """State: the hints of the sentence that are still to be used."""

    def __init__(
        self,
        path: Annotated[str, Field(description="a line of token ids for each sentence")],
        bonus: Annotated[float, Field(gt=0, description="for each hint that is used")] = 1.0,
    ) -> None:
        """Raises SgdecError for a file that cannot be read, or whose lines are not token ids."""
        try:
            lines = Path(path).read_text(encoding="utf-8").splitlines()
            self.hints = [frozenset(map(int, line.split())) for line in lines]
        except (OSError, ValueError) as error:
            raise SgdecError(f"{path}: cannot be read as lines of token ids ({error}).") from None
        self.path = path
        self.bonus = bonus
        self.max_score = bonus
        self.left: frozenset[int] = frozenset()

    def initialize(self, source: Source) -> None:
        if source.id > len(self.hints):
            raise SgdecError(f"{self.path}: has no line {source.id}; expected one for each sentence.")
        self.left = self.hints[source.id - 1]

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        tokens = sorted(self.left)
        return Scores.sparse(tokens, [self.bonus] * len(tokens), default=0.0)

    def consume(self, token: int) -> None:
        self.left = self.left - {token}

    def get_state(self) -> State:
        return self.left

    def set_state(self, state: State) -> None:
        self.left = state

    def best_remaining(self, states: Sequence[State]) -> list[float]:
        return [self.bonus * len(left) for left in states]

    def state_key(self, states: Sequence[State]) -> list[Hashable]:
        return list(states)


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[Predictor]]:
    return {"hints": Hints}
