"""Minimum length: a hypothesis has at least N tokens before ``</s>``.

Score of ``</s>`` after fewer than N tokens: forbidden. Every other score is 0. This is ``min_new_tokens N`` of
``generate()`` in transformers. Its ``min_length M`` also counts what precedes the new tokens: N = M - 1 with the
start token of an encoder-decoder model, and N = M - (tokens of the prompt) with a causal model. Both also count a
first token that the model forces, such as a language code; then N is one less.

State: the number of tokens, up to N. Cost: constant per row. Relaxations: by this number, exact up to 510 tokens;
then a constant.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

import sgdec
from sgdec import EOS, BatchPredictor, Source
from sgdec.protocol import FORBIDDEN, SparseRow
from sgdec.relaxations import Constant, Relaxation
from sgdec_predictors.automata.counted import COUNTED, Counted
from sgdec_predictors.automata.numbered import LONGEST, Counting, Number

TOO_SHORT = SparseRow([EOS], [FORBIDDEN], default=0.0)
LONG_ENOUGH = SparseRow((), (), default=0.0)


class MinLength(Counting):
    """Forbids ``</s>`` in hypotheses that are too short.

    >>> predictor = MinLength(tokens=1)
    >>> states = predictor.initialize_batch([Source(id=1, tokens=(17, 4))])
    >>> predictor.predict_batch(states).rows
    [SparseRow({2: -inf}, default=0.0)]
    >>> predictor.predict_batch(predictor.consume_batch(states, [5])).rows
    [SparseRow({}, default=0.0)]
    """

    max_score = 0.0

    def __init__(
        self,
        tokens: Annotated[int, Field(ge=0, lt=LONGEST, description="N: at least this many tokens precede </s>")],
    ) -> None:
        self._least = tokens
        self._hopeless = tokens + 1
        """The state of all prefixes of a sentence whose length limit is below the minimum."""
        exact = tokens < COUNTED
        by_length = Counted(
            tokens + 1 if exact else COUNTED,
            self._row,
            lambda state: min(state, tokens),
            beyond=None if exact else (0.0, 0.0),
        )
        self._relaxed = by_length, Constant(0.0, 0.0)

    def initialize_batch(self, sources: Sequence[Source]) -> list[int]:
        limits = [math.inf if source.max_length is None else source.max_length for source in sources]
        return [self._hopeless if limit < self._least else 0 for limit in limits]

    def _row(self, state: int) -> SparseRow:
        return LONG_ENOUGH if state == self._least else TOO_SHORT

    def _after(self, states: Number, tokens: Number) -> Number:
        return states + 1 * (states < self._least)

    def best_remaining(self, states: Sequence[int]) -> list[float]:
        """-inf if the length limit of the sentence is below the minimum."""
        return [FORBIDDEN if state == self._hopeless else 0.0 for state in states]

    def worst_remaining(self, states: Sequence[int]) -> list[float]:
        return [-FORBIDDEN if state == self._hopeless else 0.0 for state in states]

    def relaxations(self, state: int) -> Sequence[Relaxation]:
        return self._relaxed[1:] if state == self._hopeless else self._relaxed


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[BatchPredictor]]:
    return {"minlength": MinLength}
