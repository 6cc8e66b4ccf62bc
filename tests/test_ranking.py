"""Rank scores are those of equation 14 of Wu et al. 2016, worked out by hand, and bounds on them are bounds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgdec.ranking import Ranking, add_attention

# total, |Y| with </s>, attention sums by source token, ranking -> rank score, worked out by hand
TABLE = [
    # alpha = beta = 0: "our decoder falls back to pure beam search by probability"
    (-7.0, 4, [], Ranking(), -7.0),
    # lp = (5 + 7) / 6 = 2
    (-7.0, 7, [], Ranking(alpha=1.0), -3.5),
    # lp = sqrt(24 / 6) = 2
    (-4.0, 19, [], Ranking(alpha=0.5), -2.0),
    # one token: lp = (6 / 6)^alpha = 1 whatever alpha
    (-4.0, 1, [], Ranking(alpha=0.7), -4.0),
    # a positive total shrinks as well
    (6.0, 13, [], Ranking(alpha=1.0), 2.0),
    # cp = 0.5 (log 0.5 + log 1 + log 1) = 0.5 * -0.693147; attention beyond one is cut off
    (-3.0, 2, [[0.5, 1.0, 2.0]], Ranking(beta=0.5), -3.346574),
    # both: -7 / 2 + (log 0.25 + log 1) = -3.5 - 1.386294
    (-7.0, 7, [[0.25, 1.2]], Ranking(alpha=1.0, beta=1.0), -4.886294),
    # two predictors, each over its own source: the mean of log 0.5 and log 0.25 + log 1
    (0.0, 3, [[0.5], [0.25, 1.0]], Ranking(beta=1.0), -1.039721),
    # |Y|^alpha: 4 and 2
    (-8.0, 4, [], Ranking(alpha=1.0, normalize="length"), -2.0),
    (-8.0, 4, [], Ranking(alpha=0.5, normalize="length"), -4.0),
]


@pytest.mark.parametrize(("total", "length", "attended", "ranking", "expected"), TABLE)
def test_rank_scores_are_those_of_equation_14(
    total: float, length: int, attended: list[list[float]], ranking: Ranking, expected: float
) -> None:
    coverage = tuple(np.array(row) for row in attended)
    assert ranking.score(total, length, coverage) == pytest.approx(expected, abs=1e-6)


def test_coverage_is_the_sum_of_attention_over_target_tokens() -> None:
    coverage = add_attention((), [np.array([0.75, 0.25])])
    coverage = add_attention(coverage, [np.array([0.0, 1.0])])
    np.testing.assert_allclose(coverage[0], [0.75, 1.25])


def test_a_source_token_without_any_attention_costs_much_but_not_everything() -> None:
    score = Ranking(beta=0.2).score(-1.0, 3, (np.array([0.0, 1.0]),))
    assert math.isfinite(score) and score < -10


@given(
    bound=st.floats(-50, 50),
    below=st.floats(0, 50),
    shortest=st.integers(1, 20),
    more=st.integers(0, 20),
    alpha=st.floats(-1, 2),
    normalize=st.sampled_from(["gnmt", "length"]),
    attended=st.floats(0, 2),
    limited=st.booleans(),
)
def test_no_hypothesis_ranks_above_the_best_possible(
    bound: float, below: float, shortest: int, more: int, alpha: float, normalize: str, attended: float, limited: bool
) -> None:
    ranking = Ranking(alpha, 0.3, normalize)  # type: ignore[arg-type]
    longest = shortest + more if limited else None
    possible = ranking.best_possible(bound, shortest, longest)
    for length in range(shortest, shortest + more + 1):
        assert ranking.score(bound - below, length, (np.array([attended]),)) <= possible + 1e-9


def test_what_has_no_way_to_an_end_cannot_rank() -> None:
    assert Ranking(alpha=1.0).best_possible(-math.inf, 1, None) == -math.inf
    assert Ranking().best_possible(-math.inf, 1, 9) == -math.inf
