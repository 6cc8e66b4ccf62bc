"""Wrapper: the distribution of the inner predictor at another temperature (``temperature`` of ``generate()``).

    score(w) = s(w) / T - log sum_v exp(s(v) / T)

s are the inner scores: log-probabilities, or logits, whose constant cancels. T < 1 sharpens the distribution, T > 1
flattens it, and T = 1 normalises it. The sum is over all tokens that the inner predictor allows, whatever others
allow, because the score of a token must not depend on other predictors. So the wrapper needs whole rows: the inner
predictor scores all tokens, even if it scores on demand elsewhere, and open rows of sparse scores need the size of
the vocabulary. Division without the sum needs no wrapper: it is the weight 1 / T.

State: the inner state. Cost: one log-sum of V scores per row (of the listed ones, if the inner rows are sparse).
Relaxation: none, because the sum depends on the scores of all tokens; bounds use the constant 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from pydantic import Field

import sgdec
from sgdec import BatchPredictor, Context, Scores
from sgdec.protocol import FORBIDDEN, Candidates, State, ability
from sgdec.wrapping import Wrapper
from sgdec_predictors.wrapping.log_softmax import normalized


class Temperature(Wrapper):
    """The inner scores divided by a temperature, and normalised over the row.

    >>> import math
    >>> from sgdec.lifting import lift
    >>> from sgdec.testing import Bonus
    >>> flat = Temperature(lift(Bonus({7: math.log(0.8), 2: math.log(0.2)}, default=-math.inf)), value=2.0)
    >>> (row,) = flat.predict_batch(flat.initialize_batch([sgdec.Source(1, (3,))])).rows
    >>> round(math.exp(row.get(7)), 3), round(math.exp(row.get(2)), 3)
    (0.667, 0.333)
    """

    forwards: ClassVar[tuple[str, ...]] = ("state_key", "attention", "state_label")

    def __init__(
        self,
        inner: BatchPredictor,
        value: Annotated[float, Field(gt=0, allow_inf_nan=False, description="T: below 1 sharper, above 1 flatter")],
        context: Context | None = None,
    ) -> None:
        super().__init__(inner)
        self.on_demand = False  # it needs all tokens anyway
        self.max_score = 0.0
        self._temperature = value
        self._vocab_size = context.vocab_size if context else None

    def predict_batch(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        """Raises UsageError if a row is sparse and open, and V is unknown."""
        return normalized(self.inner.predict_batch(states), self._vocab_size, "temperature", self._temperature)

    def best_remaining(self, states: Sequence[State]) -> list[float]:
        """0, or -inf if the inner predictor allows no completion."""
        method = ability(self.inner, "best_remaining")
        inner = method(states) if method is not None else [0.0] * len(states)
        return [FORBIDDEN if remaining == FORBIDDEN else 0.0 for remaining in inner]


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[BatchPredictor]]:
    return {"temperature": Temperature}
