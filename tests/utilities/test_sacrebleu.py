"""The promise: bundled utilities are sacreBLEU's sentence scores, and means of references are those of the paper.

The oracle of a mean of references is the same formula over dictionaries of counts.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

import sgdec
from sgdec.utility import Utility, aggregated, pairwise
from tests.helpers.breadth import examples

TEXTS = [
    "Two dogs run across the snow .", "Two dogs are running through the snow, quickly.", "", " ", "a", "A a a a a",
    "the the the cat", "the cat (the cat) the cat", "Zwei Hunde laufen\u00a0durch den Schnee", "😀😀 ẞ 漢字かな 漢字",
    "...", "1.5 % of 3,000 'em", "x" * 30, "snow the across run dogs Two .", "\udc80 broken",
]  # fmt: skip
"""Empty, shorter than the order, repetitive, outside the basic plane, with a lone surrogate."""
CASES: list[tuple[str, dict[str, Any], Any, int]] = [
    ("chrf", {}, CHRF(), 1),
    ("chrf", {"word_order": 2}, CHRF(word_order=2), 1),
    ("chrf", {"word_order": 2, "eps_smoothing": True, "lowercase": True}, CHRF(6, 2, 2, True, False, True), 1),
    ("chrf", {"char_order": 3, "beta": 1, "whitespace": True}, CHRF(3, 0, 1, whitespace=True), 1),
    ("bleu", {}, BLEU(effective_order=True), 1),
    ("bleu", {"order": 2, "smooth_method": "none", "tokenize": "none"},
     BLEU(max_ngram_order=2, smooth_method="none", tokenize="none", effective_order=True, force=True), 1),
    ("bleu", {"smooth_method": "add-k", "tokenize": "char"},
     BLEU(smooth_method="add-k", tokenize="char", effective_order=True), 1),
    ("bleu", {"smooth_method": "floor", "lowercase": True},
     BLEU(lowercase=True, smooth_method="floor", effective_order=True), 1),
    ("ter", {}, TER(), -1),
    ("ter", {"normalized": True, "no_punct": True, "case_sensitive": True}, TER(True, True, False, True), -1),
]  # fmt: skip
BY_COUNTS = [case for case in CASES if case[0] != "ter"]
IDS = [f"{name}-{'-'.join(options)}" for name, options, _, _ in CASES]
WORDS = st.text("aab B.,é", max_size=12)


def require_equal(utility: Utility, metric: Any, sign: int, hypotheses: list[str], references: list[str]) -> None:
    expected = [[sign * metric.sentence_score(h, [r]).score for r in references] for h in hypotheses]
    np.testing.assert_allclose(pairwise(utility, hypotheses, references), expected, rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize(("name", "options", "metric", "sign"), CASES, ids=IDS)
def test_all_pairs_are_those_of_sacrebleu(name: str, options: dict[str, Any], metric: Any, sign: int) -> None:
    require_equal(sgdec.load_utility(name, **options), metric, sign, TEXTS, TEXTS[3:])


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options", "metric", "sign"), BY_COUNTS, ids=IDS[: len(BY_COUNTS)])
@settings(max_examples=examples(30), deadline=None)
@given(hypotheses=st.lists(WORDS, min_size=1, max_size=3), references=st.lists(WORDS, min_size=1, max_size=3))
def test_all_pairs_of_random_texts_are_those_of_sacrebleu(
    name: str, options: dict[str, Any], metric: Any, sign: int, hypotheses: list[str], references: list[str]
) -> None:
    require_equal(sgdec.load_utility(name, **options), metric, sign, hypotheses, references)


def mean_counts(texts: list[list[str]], weights: list[float], n: int) -> dict[tuple[str, ...], float]:
    mean: Counter[tuple[str, ...]] = Counter()
    for text, weight in zip(texts, weights, strict=True):
        for start in range(len(text) - n + 1):
            mean[tuple(text[start : start + n])] += weight  # type: ignore[assignment]
    return dict(mean)


def chrf_of_mean(hypothesis: str, references: list[str], weights: list[float]) -> float:
    """Vamvas and Sennrich 2024, with sacreBLEU's mean over the orders that both have."""
    precisions, recalls = [], []
    for n in range(1, 7):
        own = mean_counts([list("".join(hypothesis.split()))], [1.0], n)
        mean = mean_counts([list("".join(text.split())) for text in references], weights, n)
        if own and mean:
            matches = sum(min(count, mean.get(gram, 0.0)) for gram, count in own.items())
            precisions.append(matches / sum(own.values()))
            recalls.append(matches / sum(mean.values()))
    p, r = (sum(each) / max(1, len(each)) for each in (precisions, recalls))
    return 100 * 5 * p * r / (4 * p + r) if p + r else 0.0


def bleu_of_mean(hypothesis: str, references: list[str], weights: list[float]) -> float:
    """BLEU with effective order and exponential smoothing."""
    words, logs, smoothing = hypothesis.split(), [], 1.0
    length = sum(w * len(text.split()) for text, w in zip(references, weights, strict=True))
    for n in range(1, min(4, len(words)) + 1):
        own = mean_counts([words], [1.0], n)
        mean = mean_counts([text.split() for text in references], weights, n)
        matches = sum(min(count, mean.get(gram, 0.0)) for gram, count in own.items())
        if n == 1 and not matches:
            return 0.0
        if not matches:
            smoothing *= 2
        logs.append(math.log((matches or 1 / smoothing) / sum(own.values())))
    return 100 * min(1, math.exp(1 - length / len(words))) * math.exp(sum(logs) / len(logs)) if words else 0.0


@settings(max_examples=examples(60), deadline=None)
@given(
    hypotheses=st.lists(WORDS, min_size=1, max_size=3),
    weighted=st.lists(st.tuples(WORDS, st.floats(0.01, 1)), min_size=1, max_size=4),
)
def test_a_mean_of_references_has_the_mean_of_their_counts(
    hypotheses: list[str], weighted: list[tuple[str, float]]
) -> None:
    references, weights = [text for text, _ in weighted], np.array([weight for _, weight in weighted])
    shares = (weights / weights.sum()).tolist()
    for name, options, oracle in (("chrf", {}, chrf_of_mean), ("bleu", {"tokenize": "none"}, bleu_of_mean)):
        found = aggregated(sgdec.load_utility(name, **options), hypotheses, references, weights[None])
        expected = [[oracle(each, references, shares)] for each in hypotheses]
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("name", "options", "metric", "sign"), BY_COUNTS, ids=IDS[: len(BY_COUNTS)])
def test_a_mean_of_one_reference_is_that_reference(
    name: str, options: dict[str, Any], metric: Any, sign: int
) -> None:
    utility = sgdec.load_utility(name, **options)
    found = aggregated(utility, TEXTS, TEXTS, np.eye(len(TEXTS)))
    np.testing.assert_allclose(found, pairwise(utility, TEXTS, TEXTS), rtol=1e-12, atol=1e-9)


def test_wide_counts_are_multiplied_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = pairwise(sgdec.load_utility("chrf"), TEXTS, TEXTS)
    monkeypatch.setattr("sgdec.utilities.ngrams.ELEMENTS", 64)
    assert (pairwise(sgdec.load_utility("chrf"), TEXTS, TEXTS) == whole).all()


def test_exact_compares_whole_texts() -> None:
    found = pairwise(sgdec.load_utility("exact"), ["a", "a ", "", "b"], ["b", "a", ""])
    assert found.tolist() == [[0, 1, 0], [0, 0, 0], [0, 0, 1], [1, 0, 0]]
