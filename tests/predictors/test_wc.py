"""The promise of ``wc``: minus the number of tokens, or of one token, which can be any."""

from __future__ import annotations

import pytest
from sgdec_predictors.wc import WordCount

from sgdec.context import EOS
from sgdec.lifting import Lowered
from sgdec.protocol import Source

TOKENS = (0, 3, 0, 4, 3, 0, EOS)


@pytest.mark.parametrize("counted", [-1, 0, EOS, 3, 5])
def test_the_total_is_minus_the_number_of_what_is_counted(counted: int) -> None:
    predictor = Lowered(WordCount(token=counted))
    predictor.initialize(Source(1, ()))
    total = 0.0
    for token in TOKENS:
        total += predictor.predict_next().rows[0].get(token)
        predictor.consume(token)
    assert total == -(TOKENS.count(counted) if counted >= 0 else len(TOKENS) - 1)
