"""Word count: -1 for every token but ``</s>``, or for one given token (Stahlberg et al. 2017, Table 1).

Score of token w: ``-1`` if w counts, otherwise ``0``. With a negative weight it rewards length. State: the number of
tokens that the length limit still allows, which only the bounds need. Cost: constant per row. Relaxation: exact, with
one state, because no score depends on the prefix.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Annotated

from pydantic import Field

import sgdec
from sgdec import EOS, BatchPredictor, Source
from sgdec.protocol import SparseRow
from sgdec.relaxations import Relaxation
from sgdec_predictors.automata.counted import Counted
from sgdec_predictors.automata.numbered import NO_LIMIT, Counting, Number, one_less, tokens_left


class WordCount(Counting):
    """A cost of one for each token.

    >>> states = WordCount().initialize_batch([Source(id=1, tokens=())])
    >>> WordCount().predict_batch(states).rows[0].get(17)
    -1.0
    >>> WordCount(token=5).predict_batch(states).rows[0].get(17)
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
            self.token = token
            self._scores = SparseRow([token], [-1.0], default=0.0)
        else:
            self._scores = SparseRow([EOS], [0.0], default=-1.0)
        self._relaxed = (Counted(1, lambda count: self._scores, lambda state: 0, scored=self.token),)

    def initialize_batch(self, sources: Sequence[Source]) -> list[int]:
        return [tokens_left(source) for source in sources]

    def _row(self, state: int) -> SparseRow:
        return self._scores

    def _after(self, states: Number, tokens: Number) -> Number:
        return one_less(states)

    def worst_remaining(self, states: Sequence[int]) -> list[float]:
        """Every token left can count, or only the end."""
        if self._scores.get(EOS) != 0.0:
            return [-1.0] * len(states)
        return [-math.inf if left == NO_LIMIT else 0.0 - left for left in states]

    def relaxations(self, state: int) -> Sequence[Relaxation]:
        return self._relaxed

    def state_key(self, states: Sequence[int]) -> list[Hashable]:
        return [None] * len(states)  # the tokens left are part of the space's own key


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[BatchPredictor]]:
    return {"wc": WordCount}
