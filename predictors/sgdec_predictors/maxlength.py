"""Maximum length: a hypothesis has at most N tokens before ``</s>``.

Score of every token but ``</s>`` after N tokens: forbidden. Every other score is 0. All hypotheses end with ``</s>``,
which other predictors score as usual. In transformers, ``max_new_tokens N + 1`` leaves hypotheses of N + 1 tokens
unfinished, and ``forced_eos_token_id`` ends them with ``</s>`` of score 0.

Runs have a limit of their own (``--max-length``, or a multiple of the source length). This one is part of the scores:
it also holds without a limit of the run, and ``sgdec score`` applies it to given outputs. If scores can add up
without end, as with a negative weight of ``wc``, exact searches need the run's limit for their bounds too.

State: the number of tokens, up to N. Cost: constant per row. Relaxations: by this number, exact up to 510 tokens;
then a constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

import sgdec
from sgdec import EOS, BatchPredictor, Source
from sgdec.protocol import SparseRow
from sgdec.relaxations import Constant, Relaxation
from sgdec_predictors.automata.counted import COUNTED, Counted
from sgdec_predictors.automata.numbered import LONGEST, Counting, Number

ANYTHING = SparseRow((), (), default=0.0)
END = SparseRow([EOS], [0.0])


class MaxLength(Counting):
    """Allows only ``</s>`` after N tokens.

    >>> predictor = MaxLength(tokens=1)
    >>> states = predictor.initialize_batch([Source(id=1, tokens=(17, 4))])
    >>> predictor.predict_batch(predictor.consume_batch(states, [5])).rows
    [SparseRow({2: 0.0}, default=-inf)]
    """

    max_score = 0.0

    def __init__(
        self,
        tokens: Annotated[int, Field(ge=0, lt=LONGEST, description="N: at most this many tokens precede </s>")],
    ) -> None:
        self._most = tokens
        exact = tokens < COUNTED
        by_length = Counted(
            tokens + 1 if exact else COUNTED,
            self._row,
            lambda state: state,
            beyond=None if exact else (0.0, 0.0),
        )
        self._relaxed = by_length, Constant(0.0, 0.0)

    def initialize_batch(self, sources: Sequence[Source]) -> list[int]:
        return [0] * len(sources)

    def _row(self, state: int) -> SparseRow:
        return END if state >= self._most else ANYTHING

    def _after(self, states: Number, tokens: Number) -> Number:
        return states + 1 * (states < self._most)

    def best_remaining(self, states: Sequence[int]) -> list[float]:
        """0: ``</s>`` can always follow."""
        return [0.0] * len(states)

    def worst_remaining(self, states: Sequence[int]) -> list[float]:
        return [0.0] * len(states)

    def relaxations(self, state: int) -> Sequence[Relaxation]:
        return self._relaxed


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[BatchPredictor]]:
    return {"maxlength": MaxLength}
