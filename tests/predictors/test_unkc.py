"""The UNK count predictor is the Poisson distribution of a sentence's number of unknown tokens.

Oracle: the textbook formula lambda^n e^-lambda / n!.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sgdec_predictors.unkc import UnkCount

from sgdec.context import EOS, UNK
from sgdec.errors import UsageError
from sgdec.plugins.options import configure
from sgdec.protocol import Source
from sgdec.search.constellation import Constellation
from sgdec.testing.enumeration import enumerate_space, score_path

pytestmark = pytest.mark.slow
SENTENCE = Source(1, ())


def poisson(n: int, rate: float) -> float:
    return rate**n * math.exp(-rate) / math.factorial(n)


def total(tokens: list[int], *lambdas: float, source: tuple[int, ...] = ()) -> float:
    constellation = Constellation.of({"unkc": UnkCount(lambdas)}, vocab_size=10)
    return score_path(constellation, Source(1, source), tokens)[0]


@settings(deadline=None)
@given(st.lists(st.integers(0, 4)), st.floats(0.01, 20))
def test_a_total_is_the_log_probability_of_the_count(words: list[int], rate: float) -> None:
    tokens = [0 if word <= 1 else word + 1 for word in words]  # about as many unknown as known
    assert total(tokens, rate) == pytest.approx(math.log(poisson(tokens.count(UNK), rate)), abs=1e-9)


@pytest.mark.parametrize("rate", [0.1, 1.0, 2.2, 25.0])
def test_over_all_counts_the_probabilities_sum_to_one(rate: float) -> None:
    assert math.fsum(math.exp(total([UNK] * n, rate)) for n in range(100)) == pytest.approx(1.0, abs=1e-6)


def test_only_the_end_is_scored() -> None:
    _, ledger = score_path(Constellation.of({"unkc": UnkCount((2.0,))}), Source(1, ()), [UNK, 5, UNK])
    assert [row[0] for row in ledger[:-1]] == [0.0, 0.0, 0.0]
    assert ledger[-1][0] == pytest.approx(math.log(2 * math.exp(-2)))


@pytest.mark.parametrize(
    ("source", "rate"), [((), 0.3), ((7, 8), 0.3), ((7, 0), 0.9), ((0, 0), 2.2), ((0, 0, 0, 5, 0), 2.2)]
)
def test_the_rate_follows_the_unknown_words_of_the_source(source: tuple[int, ...], rate: float) -> None:
    expected = math.log(poisson(1, rate))
    assert total([5, UNK], 0.3, 0.9, 2.2, source=source) == pytest.approx(expected)


@pytest.mark.parametrize("rate", [0.2, 1.0, 2.5, 4.0, 9.7])
@pytest.mark.parametrize("limit", [0, 1, 3, 4])
def test_bounds_are_exactly_the_best_and_worst_ends(rate: float, limit: int) -> None:
    source = Source(1, (), None, max_length=limit)
    predictor = UnkCount((rate,))
    paths = enumerate_space(Constellation.of({"unkc": predictor}, vocab_size=4), source)  # 0, <s>, </s>, 3
    for prefix in [p.tokens[:length] for p in paths for length in range(len(p.tokens) + 1)]:
        states = [state_after(predictor, prefix, source)]
        ends = [p.total for p in paths if p.tokens[: len(prefix)] == prefix]
        assert predictor.best_remaining(states) == [pytest.approx(max(ends))]
        assert predictor.worst_remaining(states) == [pytest.approx(min(ends))]


def test_without_a_length_limit_the_best_count_is_the_mode_and_there_is_no_worst() -> None:
    predictor = UnkCount((3.5,))
    states = predictor.initialize_batch([Source(1, ())])
    assert predictor.best_remaining(states) == [pytest.approx(math.log(poisson(3, 3.5)))]
    assert predictor.worst_remaining(states) == [-math.inf]


def test_equal_counts_are_equal_keys() -> None:
    predictor = UnkCount((0.5,))
    states = [state_after(predictor, tokens) for tokens in ((UNK, 5), (5, 5, UNK), (UNK, UNK))]
    one, also_one, two = predictor.state_key(states)
    assert one == also_one != two


def test_the_end_itself_is_no_unknown_word() -> None:
    predictor = UnkCount((0.5,))
    before, after = predictor.predict_batch([state_after(predictor, tokens) for tokens in ((), (EOS,))]).rows
    assert before.get(EOS) == after.get(EOS)


def state_after(predictor: UnkCount, tokens: Sequence[int], source: Source = SENTENCE) -> int:
    (state,) = predictor.initialize_batch([source])
    for token in tokens:
        (state,) = predictor.consume_batch([state], [token])
    return state


@pytest.mark.parametrize("lambdas", ["0", "-1", "0.5,0", "", "x", "nan", "inf"])
def test_lambdas_have_to_be_positive_numbers(lambdas: Any) -> None:
    with pytest.raises(UsageError, match=r"--unkc\.lambdas"):
        configure(UnkCount, {"lambdas": lambdas}, name="unkc")


def test_a_wrong_lambda_is_all_that_is_complained_about() -> None:
    with pytest.raises(UsageError, match=r"^--unkc\.lambdas: '0' should be above 0 \("):
        configure(UnkCount, {"lambdas": "0"}, name="unkc")


def test_lambdas_are_given_as_a_comma_list() -> None:
    assert configure(UnkCount, {"lambdas": "0.5,1"}, name="unkc") == {"lambdas": (0.5, 1.0)}
