"""GLEU is what the paper says (Wu et al. 2016, section 5): min of n-gram precision and recall, symmetric, 0 to 1."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgdec.text.gleu import gleu, gleu_of_each, mean_gleu

Tokens = list[int]
FEW_TOKENS = st.lists(st.integers(3, 6), max_size=9)
"""From four kinds of tokens, so that many n-grams are there more than once."""


def by_crossing_out(output: Tokens, reference: Tokens) -> float:
    """The paper's words, slowly: list all n-grams, cross out what matches, take the smaller ratio."""
    lists = [
        [tuple(tokens[i : i + n]) for n in (1, 2, 3, 4) for i in range(len(tokens) - n + 1)]
        for tokens in (output, reference)
    ]
    got, wanted = lists
    left, matches = list(wanted), 0
    for ngram in got:
        if ngram in left:
            left.remove(ngram)
            matches += 1
    if not got and not wanted:
        return 1.0
    ratios = [Fraction(matches, len(ngrams)) if ngrams else Fraction(0) for ngrams in lists]
    return float(min(ratios))


@given(FEW_TOKENS, FEW_TOKENS)
def test_gleu_is_the_smaller_of_precision_and_recall(output: Tokens, reference: Tokens) -> None:
    assert gleu(output, reference) == by_crossing_out(output, reference)


@given(FEW_TOKENS, FEW_TOKENS)
def test_gleu_is_symmetric_between_0_and_1_and_1_only_where_all_ngrams_match(a: Tokens, b: Tokens) -> None:
    assert gleu(a, b) == gleu(b, a)
    assert 0 <= gleu(a, b) <= 1
    assert gleu(a, a) == 1
    assert gleu(a, b) == gleu(a[::-1], b[::-1]), "right to left it is the same"
    assert (gleu(a, b) == 0) == (set(a).isdisjoint(b) and bool(a or b))
    if len(a) <= 4:  # a sequence of up to four tokens is one of its own n-grams
        assert (gleu(a, b) == 1) == (a == b)


@pytest.mark.parametrize(
    ("output", "reference", "expected"),
    [
        ([], [5], Fraction(0)),
        ([5], [], Fraction(0)),
        ([5], [5], Fraction(1)),
        ([6], [5], Fraction(0)),
        ([5, 5, 5], [5], Fraction(1, 6)),  # of 3 + 2 + 1 n-grams one matches, once
        ([5, 6, 7, 8], [5, 6, 7, 9], Fraction(6, 10)),  # 3 + 2 + 1 of 4 + 3 + 2 + 1
        ([5, 6, 7, 8, 9], [5, 6, 7, 8], Fraction(10, 14)),  # all recalled, precision counts
        ([5, 6, 7, 8], [5, 6, 7, 8, 9], Fraction(10, 14)),  # all precise, recall counts
        ([8, 7, 6, 5], [5, 6, 7, 8], Fraction(4, 10)),  # words right, order wrong
    ],
)
def test_gleu_of_cases_counted_by_hand(output: Tokens, reference: Tokens, expected: Fraction) -> None:
    assert gleu(output, reference) == float(expected)


@given(st.lists(FEW_TOKENS, min_size=1, max_size=5), FEW_TOKENS)
def test_many_outputs_of_one_reference_are_scored_as_each_alone(outputs: list[Tokens], reference: Tokens) -> None:
    assert gleu_of_each(outputs, reference) == [gleu(output, reference) for output in outputs]
    mean = mean_gleu(outputs, [reference] * len(outputs))
    assert mean == pytest.approx(sum(gleu(output, reference) for output in outputs) / len(outputs))


def test_gleu_of_words_is_that_of_nltks_documentation() -> None:
    """The examples of nltk.translate.gleu_score: 29 of 66 and 30 of 38 n-grams; it prints their mean, 0.6144."""
    pairs = [
        (
            "It is a guide to action which ensures that the military always obeys the commands of the party",
            "It is a guide to action that ensures that the military will forever heed Party commands",
        ),
        (
            "he read the book because he was interested in world history",
            "he was interested in world history because he read the book",
        ),
    ]
    numbers: dict[str, int] = {}
    outputs, references = [
        [[numbers.setdefault(word, len(numbers)) for word in pair[side].split()] for pair in pairs] for side in (0, 1)
    ]
    assert [*map(gleu, outputs, references)] == [29 / 66, 30 / 38]
    assert str(mean_gleu(outputs, references)).startswith("0.6144")
