"""The promise: scores are sacreBLEU's, of one corpus or of many at once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sgdec import SgdecError
from sgdec.tuning.lists import FeatureLists
from sgdec.tuning.metrics import METRICS, _sacrebleu
from tests.helpers.breadth import examples
from tests.helpers.tuning_lists import random_lists

TEXT = st.lists(st.sampled_from(["the", "cat", "sat", "on", "a", "mat.", "Übung", "x", ""]), max_size=9).map(" ".join)


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=6), st.sampled_from(list(METRICS)))
def test_scores_of_sums_are_those_of_sacrebleu(pairs: list[tuple[str, str]], key: str) -> None:
    outputs, references = map(list, zip(*pairs, strict=True))
    metric = METRICS[key]
    sums = metric.statistics(outputs, references).sum(axis=0)
    expected = _sacrebleu(key).corpus_score(outputs, [references]).score
    assert float(metric.scores(sums)) == pytest.approx(expected, abs=1e-9)
    assert metric.scores(np.stack([sums, 2 * sums]))[0] == metric.scores(sums)


@pytest.mark.parametrize("longer", [True, False])
def test_brevity_is_that_of_sacrebleu(longer: bool) -> None:
    few, many = ["a b c d e f", "g h i j k"], ["a b c d e f x y", "g h i j k z"]
    outputs, references = (many, few) if longer else (few, many)
    metric = METRICS["bleu"]
    expected = _sacrebleu("bleu").corpus_score(outputs, [references]).score
    assert float(metric.scores(metric.statistics(outputs, references).sum(axis=0))) == pytest.approx(expected)
    assert 60 < expected < 99


@pytest.mark.parametrize(
    ("features", "starts", "message"),
    [
        ([[0.0, np.nan]], [0, 1], "sentence 1, hypothesis 1: feature 'b' is nan; expected a number."),
        ([[0.0, 1.0], [0.0, 1.0], [-np.inf, 0.0]], [0, 1, 3], "sentence 2, hypothesis 2: feature 'a' is -inf"),
        ([[0.0, 1.0]], [0, 1, 1], "sentence 2 has no hypotheses"),
        (np.zeros((0, 2)), [0], "there are no hypotheses"),
    ],
)
def test_wrong_lists_are_one_line(features: list[list[float]], starts: list[int], message: str) -> None:
    values = np.array(features)
    with pytest.raises(SgdecError) as raised:
        FeatureLists(("a", "b"), values, np.zeros((len(values), 2)), np.array(starts), METRICS["ter"])
    assert message in str(raised.value)


def test_of_equal_hypotheses_the_first_is_the_best() -> None:
    features, starts = np.array([[1.0], [2.0], [2.0]]), np.array([0, 1, 3])
    lists = FeatureLists(("a",), features, np.zeros((3, 2)), starts, METRICS["ter"])
    assert lists.best(np.array([1.0])).tolist() == [0, 1]
    assert lists.best(np.array([-1.0])).tolist() == [0, 1]


def test_constant_features_are_named() -> None:
    lists = random_lists(np.random.default_rng(1), features=3)
    values = lists.features.copy()
    values[:, 1] = np.repeat(np.arange(lists.sentences), np.diff(lists.starts))
    constant = FeatureLists(lists.names, values, lists.statistics, lists.starts, lists.metric)
    assert constant.constant == ["f1"]
