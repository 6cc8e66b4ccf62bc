"""The length predictor is a negative binomial distribution of the output's length, whose parameters the source sets.

Oracle: the textbook formula, with log Gamma.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sgdec_predictors.length import LengthPredictor

from sgdec import EOS, Context, SgdecError, Source, UsageError
from sgdec.context import Vocabularies
from sgdec.io.lengths import read_length_weights, write_length_weights
from sgdec.models.length import LengthWeights, NegativeBinomial, features_of
from sgdec.plugins.options import configure
from sgdec.search.constellation import Constellation
from sgdec.testing import enumerate_space, score_path
from sgdec.text.words import SPECIAL, WordVocabulary
from tests.helpers.breadth import examples
from tests.helpers.contracts import PluginContract, SearchContract

pytestmark = pytest.mark.slow

SGNMT = (0, 0.4, 0.1, 0.05, 0, 0, 0.01, 0, 0, 0.1, 2.0, -0.3)
"""The weights of the recorded cases."""
LINE = "this is , sentence number 0 ; with some-words: a."


def log_binomial(n: int, r: float, p: float) -> float:
    return math.lgamma(n + r) - math.lgamma(n + 1) - math.lgamma(r) + n * math.log(p) + r * math.log1p(-p)


def with_parameters(r: float, p: float, **options: Any) -> LengthPredictor:
    """A predictor with the same r and p for all sources."""
    return LengthPredictor((*[0.0] * 10, r, math.log(p / (1 - p))), **options)


def totals(predictor: LengthPredictor, longest: int, source: Source | None = None) -> list[float]:
    """Of hypotheses of 0, 1, ... tokens."""
    states = predictor.initialize_batch([source or Source(1, (3,))])
    found, so_far = [], 0.0
    for _ in range(longest + 1):
        (row,) = predictor.predict_batch(states).rows
        found.append(so_far + row.get(EOS))
        so_far += row.get(7)
        states = predictor.consume_batch(states, [7])
    return found


few = settings(max_examples=examples(30))
rs = st.floats(0.1, 60)
ps = st.floats(0.001, 0.9)
both_forms = pytest.mark.parametrize("point", [False, True])


@both_forms
@few
@given(r=rs, p=ps)
def test_a_total_is_the_log_probability_of_the_length(point: bool, r: float, p: float) -> None:
    found = totals(with_parameters(r, p, point=point), 40)
    assert found == pytest.approx([log_binomial(n, r, p) for n in range(41)], abs=1e-8)


@both_forms
@pytest.mark.parametrize("offset", [0, 3, -2])
@pytest.mark.parametrize(("r", "p"), [(0.1, 1e-5), (0.1, 0.9), (12.0, 0.45), (1e6, 2e-5), (300.0, 0.05)])
def test_over_all_lengths_the_probabilities_sum_to_one(point: bool, offset: int, r: float, p: float) -> None:
    found = totals(with_parameters(r, p, point=point, offset=offset), 400)
    assert math.fsum(map(math.exp, found)) == pytest.approx(1.0, abs=1e-6)


@few
@given(r=rs, p=ps)
def test_every_row_is_a_distribution_over_ending_and_going_on(r: float, p: float) -> None:
    predictor = with_parameters(r, p)
    states = predictor.initialize_batch([Source(1, (3,))])
    for _ in range(30):
        (row,) = predictor.predict_batch(states).rows
        assert math.exp(row.get(EOS)) + math.exp(row.get(7)) == pytest.approx(1.0, abs=1e-9)
        states = predictor.consume_batch(states, [7])


@few
@given(r=st.floats(0.1, 1e4), p=st.floats(1e-5, 1 - 1e-3), n=st.integers(0, 300))
def test_a_tail_is_what_the_probabilities_below_leave(r: float, p: float, n: int) -> None:
    lengths = NegativeBinomial(r, p)
    below = math.fsum(math.exp(lengths.log_probability(k)) for k in range(n))
    assert math.exp(lengths.log_tail(n)) == pytest.approx(1 - below, abs=1e-9)
    # Far out, where 1 - below has no digit left, it is as exact: P(n or more) = P(n) + P(n + 1 or more).
    whole = np.logaddexp(lengths.log_probability(n), lengths.log_tail(n + 1))
    assert lengths.log_tail(n) == pytest.approx(whole, abs=1e-9)


@few
@given(r=rs, p=ps)
def test_the_mode_is_the_most_probable_length(r: float, p: float) -> None:
    lengths = NegativeBinomial(r, p)
    mode = lengths.log_probability(lengths.mode)
    assert all(lengths.log_probability(n) <= mode + 1e-9 for n in range(2 * lengths.mode + 20))


def test_features_are_characters_words_punctuation_and_their_ratios() -> None:
    assert features_of(f" {LINE} \n") == (49, 10, 5, 49 / 10, 5 / 10)
    assert features_of("") == (0, 0, 0, 0, 0)


def test_parameters_are_linear_and_logistic_in_the_features() -> None:
    """As SGNMT: r of weights 0 to 4 and 10; p, a logistic function, of 5 to 9 and 11."""
    r = 0.4 * 10 + 0.1 * 5 + 0.05 * 49 / 10 + 2.0
    p = 1 / (1 + math.exp(-(0.01 * 10 + 0.1 * 5 / 10 - 0.3)))
    lengths = LengthWeights.of_numbers(SGNMT).distribution(LINE)
    assert lengths == (pytest.approx(r), pytest.approx(p))
    # Recorded from SGNMT for this line: a hypothesis of 2 tokens, one of 3.
    assert totals(LengthPredictor(SGNMT), 3, Source(1, (3,), LINE))[2:] == pytest.approx(
        [-2.4675675999508497, -2.1686548279379245], abs=1e-9
    )


def test_parameters_stay_within_their_bounds() -> None:
    low, high = [LengthWeights((*[0.0] * 5, s * 1e4), (*[0.0] * 5, s * 1e4)).distribution("a") for s in (-1, 1)]
    assert low == (0.1, 1e-5)
    assert high == (1e4, 1 - 1e-5)


def test_biases_may_be_left_out() -> None:
    assert LengthWeights.of_numbers(range(10)) == ((0, 1, 2, 3, 4, 0.0), (5, 6, 7, 8, 9, 0.0))


def test_the_text_of_token_ids_is_a_line_of_a_file(tmp_path: Path) -> None:
    """As SGNMT's ``src_test_raw``; `tests/whole/test_cases.py` compares it with SGNMT."""
    path = tmp_path / "raw.txt"
    path.write_text(f"another line\n{LINE}\n")
    expected = totals(LengthPredictor(SGNMT), 5, Source(1, (3,), LINE))
    for source in (Source(2, (31, 4)), Source(2, (31, 4), "31 4")):
        assert totals(LengthPredictor(SGNMT, text=str(path)), 5, source) == expected
    with pytest.raises(SgdecError, match=r"length: .*raw\.txt has 2 lines, so none for sentence 3\. Expected one"):
        LengthPredictor(SGNMT, text=str(path)).initialize_batch([Source(3, (31, 4))])
    with pytest.raises(SgdecError, match=r"length: .*none\.txt"):
        LengthPredictor(SGNMT, text=str(tmp_path / "none.txt"))


def test_the_text_of_token_ids_is_what_they_spell() -> None:
    words = WordVocabulary([*SPECIAL, "two", "words,"])
    predictor = LengthPredictor(SGNMT, context=Context(vocabularies=Vocabularies(source=words)))
    assert totals(predictor, 5, Source(1, (3, 4))) == totals(predictor, 5, Source(1, (3, 4), "two words,"))


def test_digits_of_token_ids_are_not_taken_for_text() -> None:
    with pytest.raises(UsageError, match=r"only token ids\. Give the text, .* as --length\.text FILE\.$"):
        LengthPredictor(SGNMT).initialize_batch([Source(1, (31, 4))])
    assert totals(with_parameters(3.0, 0.5), 2, Source(1, (31, 4))), "biases need no text"


def test_with_point_only_the_end_is_scored() -> None:
    _, ledger = score_path(Constellation.of({"length": with_parameters(3.0, 0.5, point=True)}), Source(1, ()), [5, 6])
    assert [row[0] for row in ledger] == [0.0, 0.0, pytest.approx(log_binomial(2, 3.0, 0.5))]


@both_forms
def test_lengths_below_the_offset_are_impossible(point: bool) -> None:
    found = totals(with_parameters(3.0, 0.5, point=point, offset=2), 6)
    assert found[:2] == [-math.inf] * 2
    assert found[2:] == pytest.approx([log_binomial(n, 3.0, 0.5) for n in range(5)], abs=1e-9)


@pytest.mark.parametrize("offset", [2, -2])
def test_the_offset_has_the_sign_of_sgnmts(offset: int) -> None:
    """``length_model_offset``: "applied to hypothesis length minus" it, and to 1 where that is less."""
    found = totals(with_parameters(3.0, 0.5, point=True, offset=offset), 9)
    sgnmt = [log_binomial(max(1, n - offset), 3.0, 0.5) for n in range(10)]
    first = max(1 + offset, 0)
    assert np.diff(found[first:]) == pytest.approx(np.diff(sgnmt[first:]), abs=1e-9)


@both_forms
def test_with_a_negative_offset_the_rest_is_renormalised(point: bool) -> None:
    """For a model fitted on lengths that count </s>."""
    found = totals(with_parameters(3.0, 0.5, point=point, offset=-1), 6)
    left = math.log1p(-math.exp(log_binomial(0, 3.0, 0.5)))
    assert found == pytest.approx([log_binomial(n, 3.0, 0.5) - left for n in range(1, 8)], abs=1e-9)


@both_forms
@pytest.mark.parametrize("offset", [0, 2, 9, -3])
@pytest.mark.parametrize(("r", "p"), [(0.5, 0.5), (3.0, 0.6), (9.0, 0.7)])
def test_bounds_are_exactly_the_best_and_worst_ends(point: bool, offset: int, r: float, p: float) -> None:
    limit = 8
    predictor = with_parameters(r, p, point=point, offset=offset)
    source = Source(1, (3,), max_length=limit)
    ends = totals(predictor, limit, source)
    states = predictor.initialize_batch([source])
    so_far = 0.0
    for n in range(limit + 1):
        left = [end - so_far for end in ends[n:] if end > -math.inf]
        assert predictor.best_remaining(states) == [pytest.approx(max(left, default=-math.inf), abs=1e-9)]
        assert predictor.worst_remaining(states) == [pytest.approx(min(left, default=math.inf), abs=1e-9)]
        so_far += predictor.predict_batch(states).rows[0].get(7)
        states = predictor.consume_batch(states, [7])


def test_without_a_length_limit_the_best_length_is_the_mode_and_there_is_no_worst() -> None:
    predictor = with_parameters(9.0, 0.7)
    states = predictor.initialize_batch([Source(1, ())])
    assert predictor.best_remaining(states) == [pytest.approx(max(log_binomial(n, 9.0, 0.7) for n in range(99)))]
    assert predictor.worst_remaining(states) == [-math.inf]


class TestLengthInSearch(SearchContract):
    vocab_size = 4

    def draw(self, rng: np.random.Generator) -> LengthPredictor:
        point = bool(rng.random() < 0.5)
        return with_parameters(rng.uniform(0.1, 60), rng.uniform(0.001, 0.9), point=point, offset=rng.integers(-1, 3))


def test_the_length_limit_cuts_the_distribution_and_changes_no_score() -> None:
    constellation = Constellation.of({"length": with_parameters(9.0, 0.7)}, vocab_size=3)
    paths = enumerate_space(constellation, Source(1, (3,), max_length=2))
    assert {len(path.tokens) for path in paths} == {0, 1, 2}
    for path in paths:
        assert path.total == pytest.approx(log_binomial(len(path.tokens), 9.0, 0.7), abs=1e-9)


def test_weights_are_a_file_or_numbers(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    weights = LengthWeights.of_numbers(tuple(math.sqrt(k) - 1.5 for k in range(12)))
    write_length_weights(path, weights, "made by hand")
    assert read_length_weights(path) == weights  # to the last bit
    numbers = ",".join(map(repr, (*weights.r[:5], *weights.p[:5], weights.r[5], weights.p[5])))
    given = configure(LengthPredictor, {"weights": numbers}, name="length")
    source = Source(1, (3,), LINE)
    assert totals(LengthPredictor(**given), 9, source) == totals(LengthPredictor(str(path)), 9, source)


@pytest.mark.parametrize(
    ("weights", "complaint"),
    [
        ("1,2,3", "length: 3 weights; expected 10, or 12 with biases"),
        (tuple(map(float, range(11))), "length: 11 weights"),
        (",".join(["nan"] * 10), "length: a weight is infinite or not a number"),
        ("{folder}/none", r"length: .*none: cannot be read \(No such file"),
        ("{folder}/words", "words: line 2: 'x' is not a number"),
        ("{folder}/inf", "inf: line 1: 'inf' is not finite"),
        ("{folder}/short", "short: there is no weight r.words"),
        ("{folder}/twice", "twice: line 2: expected each of r.characters, ..., p.bias once"),
    ],
)
def test_wrong_weights_are_one_line(tmp_path: Path, weights: Any, complaint: str) -> None:
    (tmp_path / "words").write_text("# comment\nr.words x\n")
    (tmp_path / "inf").write_text("r.words inf\n")
    (tmp_path / "short").write_text("r.characters 1\n")
    (tmp_path / "twice").write_text("r.words 1\nr.words 1\n")
    with pytest.raises(SgdecError, match=complaint) as error:
        LengthPredictor(weights.format(folder=tmp_path) if isinstance(weights, str) else weights)
    assert "\n" not in str(error.value)


class TestLength(PluginContract):
    plugin = "length"

    def prepare(self, folder: Path) -> dict[str, Any]:
        (folder / "raw.txt").write_text(f"{LINE}\nab.\n\n{LINE}\n")
        return {"weights": SGNMT, "text": str(folder / "raw.txt")}


class TestLengthAtOnce(TestLength):
    def prepare(self, folder: Path) -> dict[str, Any]:
        return {**super().prepare(folder), "point": True, "offset": 1}
