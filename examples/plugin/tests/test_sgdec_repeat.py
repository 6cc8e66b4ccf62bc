"""The contract that sgdec asks of every predictor and decoder, and what is particular to these."""

from __future__ import annotations

import pytest
from sgdec_repeat import Lookahead, Repeat

from sgdec import EOS, Constellation, SearchSpace, Source
from sgdec.testing import DecoderContract, Lattice, PredictorContract


class TestRepeat(PredictorContract):
    vocab_size = 6

    def make(self) -> Repeat:
        return Repeat(order=2)


class TestLookahead(DecoderContract):
    def make(self) -> Lookahead:
        return Lookahead(width=3)


@pytest.mark.parametrize(
    ("order", "prefix", "repeats"),
    [
        (1, "", ""),
        (1, "565", "56"),
        (2, "5", ""),
        (2, "565", "6"),
        (2, "56575", "67"),
        (2, "55", "5"),
        (3, "56756", "7"),
        (3, "5675", ""),
        (3, "55", ""),
    ],
)
def test_what_completes_an_n_gram_again_costs_one(order: int, prefix: str, repeats: str) -> None:
    predictor = Repeat(order=order)
    for token in prefix:
        predictor.consume(int(token))
    row = predictor.predict_next().rows[0]
    assert [token for token in range(10) if row.get(token) == -1.0] == [int(token) for token in repeats]
    assert row.default == 0.0


@pytest.mark.parametrize(("width", "tokens"), [(1, None), (2, (6,))])
def test_lookahead_avoids_a_dead_end_that_is_one_token_away(width: int, tokens: tuple[int, ...] | None) -> None:
    lattice = Lattice({0: {5: (-0.1, 1), 6: (-1.0, 2)}, 1: {}, 2: {EOS: (0.0, 3)}})
    constellation = Constellation.of({"lattice": lattice})
    (root,) = constellation.roots([Source(id=1, tokens=(5,))])
    result = Lookahead(width).decode(SearchSpace(constellation, root))
    assert [hypothesis.tokens for hypothesis in result.hypotheses] == ([] if tokens is None else [tokens])
