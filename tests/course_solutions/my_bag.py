"""A bag of words: the output has the source's tokens, in any order (Stahlberg et al. 2017, Table 2, ``bow``).

Score of token w: log of the share of w among what is left in the bag; ``</s>`` follows the empty bag, or is one thing
more in it with ``subsets``. State: what is left, as sorted (token, count) pairs. Cost: linear in the types left.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Annotated

from pydantic import Field

import sgdec
from sgdec import EOS, Predictor, Scores, Source

Bag = tuple[tuple[int, int], ...]


class MyBag(Predictor):
    """Draws tokens out of a bag without putting them back."""

    max_score = 0.0

    def __init__(
        self, subsets: Annotated[bool, Field(description="whether tokens may be left in the bag")] = False
    ) -> None:
        self._subsets = subsets
        self._bag: Bag = ()

    def initialize(self, source: Source) -> None:
        self._bag = tuple(sorted(Counter(source.tokens).items()))

    def predict_next(self, candidates: Sequence[int] | None = None) -> Scores:
        balls = sum(count for _, count in self._bag) + self._subsets
        row = {token: math.log(count / balls) for token, count in self._bag}
        if self._subsets or not self._bag:
            row[EOS] = -math.log(max(balls, 1))
        return Scores.sparse(tuple(row), tuple(row.values()))

    def consume(self, token: int) -> None:
        left = Counter(dict(self._bag))
        left[token] -= 1
        self._bag = tuple(sorted((+left).items()))

    def get_state(self) -> Bag:
        return self._bag

    def set_state(self, state: Bag) -> None:
        self._bag = state

    def state_key(self, states: Sequence[Bag]) -> list[Hashable]:
        return list(states)


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[Predictor]]:
    return {"mybag": MyBag}
