"""The promise: modified Kneser-Ney as the formulas say, every distribution sums to one, the same numbers as lmplz.

Oracles: the formulas over dictionaries, one n-gram at a time (`Formulas`); and two models that lmplz (KenLM 0.3.0)
estimated from ``tests/data/numbers.txt`` with ``-o 3 --discount_fallback``, one of them with ``--prune 0 0 1``. (In
its counts of counts lmplz takes the very last n-gram of each order by its plain count, not the adjusted one; the text
ends so that both are 1.)
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sgdec_predictors.ngrams.backoff import BackoffTable

from sgdec.context import BOS, EOS, UNK
from sgdec.errors import UsageError
from sgdec.estimation.kneser_ney import FALLBACK, estimate, join
from sgdec.io.arpa import LN_10, Arpa, read_arpa
from tests.helpers.places import DATA

Gram = tuple[int, ...]


def names(size: int) -> list[str]:
    return ["<unk>", "<s>", "</s>", *map(str, range(3, size))]


class Formulas:
    """Chen & Goodman 1998, n-gram by n-gram; pruning as in lmplz."""

    def __init__(
        self,
        sentences: Sequence[Sequence[int]],
        size: int,
        order: int,
        prune: Sequence[int],
        discounts: tuple[float, ...] | None = None,
    ) -> None:
        self.size, self.order = size, order
        self.prune = [*prune, *[prune[-1]] * order][:order] if prune else [0] * order
        self.raw: Counter[Gram] = Counter()
        before: dict[Gram, set[int]] = defaultdict(set)
        for sentence in sentences:
            if not sentence:
                continue
            text = (BOS, *sentence, EOS)
            for end in range(1, len(text) + 1):
                for n in range(1, order + 1):
                    if end - n >= 0:
                        self.raw[text[end - n : end]] += 1
                        if end - n > 0:
                            before[text[end - n : end]].add(text[end - n - 1])
        self.adjusted = {
            gram: count if len(gram) == order or gram[0] == BOS else len(before[gram])
            for gram, count in self.raw.items()
            if gram != (BOS,)
        }
        self.discounts = [self.discounts_of(n) if discounts is None else discounts for n in range(1, order + 1)]

    def discounts_of(self, n: int) -> tuple[float, ...]:
        having = Counter(count for gram, count in self.adjusted.items() if len(gram) == n)
        if not (having[1] and having[2] and having[3]):
            return FALLBACK
        y = having[1] / (having[1] + 2 * having[2])
        found = tuple(k - (k + 1) * y * having[k + 1] / having[k] for k in (1, 2, 3))
        return found if min(found) >= 0 else FALLBACK

    def discount(self, gram: Gram) -> float:
        return self.discounts[len(gram) - 1][min(self.adjusted[gram], 3) - 1]

    def kept(self, gram: Gram) -> bool:
        return self.raw[gram] > self.prune[len(gram) - 1]

    def p(self, gram: Gram) -> float:
        """p(last word | the others), interpolated all the way down."""
        if not gram:
            return 1 / (self.size - 1)
        *history, _ = gram
        following = [g for g in self.adjusted if len(g) == len(gram) and g[:-1] == tuple(history)]
        total = sum(self.adjusted[g] for g in following)
        if not total:
            return self.p(gram[1:])
        freed = sum(self.discount(g) if self.kept(g) else self.adjusted[g] for g in following)
        own = self.adjusted[gram] - self.discount(gram) if gram in self.adjusted and self.kept(gram) else 0.0
        return own / total + freed / total * self.p(gram[1:])


def largest_deviation(model: Arpa) -> float:
    """How far the probabilities of all words but ``<s>`` are from a sum of one, over all histories of the model."""
    table = BackoffTable(model, model.words)
    histories = np.arange(1 + sum(len(ngrams.scores) for ngrams in model.orders[:-1]))  # 0 = the empty one
    worst = 0.0
    for block in np.array_split(histories, 1 + len(histories) // 2000):
        rows = np.exp(table.rows(block.tolist()).astype(np.float64))  # [histories, words]
        worst = max(worst, float(np.abs(np.delete(rows, BOS, axis=1).sum(axis=1) - 1).max()))
    return worst


CORPORA = st.lists(st.lists(st.sampled_from([0, 3, 4, 5, 6]), max_size=7), min_size=1, max_size=12).filter(
    lambda corpus: any(len(sentence) >= 2 for sentence in corpus)
)


@given(CORPORA, st.integers(1, 4), st.sampled_from([(), (0, 1), (0, 0, 1), (0, 0, 2)]))
def test_every_score_is_that_of_the_formulas(corpus: list[list[int]], order: int, prune: tuple[int, ...]) -> None:
    size, prune = 9, prune[:order]
    formulas = Formulas(corpus, size, order, prune)
    model = estimate(join(corpus), names(size), order=order, prune=prune, fallback=True).model
    for ngrams in model.orders:
        for gram, score in zip(map(tuple, ngrams.words.tolist()), ngrams.scores, strict=True):
            if gram == (BOS,):
                assert score == pytest.approx(-99 * LN_10)
            else:
                assert math.exp(score) == pytest.approx(formulas.p(gram), abs=1e-9)
    listed = {tuple(gram) for ngrams in model.orders for gram in ngrams.words.tolist()}
    assert listed == {(w,) for w in range(size)} | {g for g in formulas.raw if formulas.kept(g)}


@given(CORPORA, st.integers(1, 4), st.sampled_from([(), (0, 1), (0, 0, 1)]))
def test_backoffs_complete_the_formulas(corpus: list[list[int]], order: int, prune: tuple[int, ...]) -> None:
    size, prune = 9, prune[:order]
    formulas = Formulas(corpus, size, order, prune)
    model = estimate(join(corpus), names(size), order=order, prune=prune, fallback=True).model
    table = BackoffTable(model, model.words)
    for gram in [g for g in formulas.raw if len(g) < order and g[0] == BOS and g[-1] != EOS]:
        history = table.start
        for word in gram[1:]:
            history = table.advance(history, model.words[word])
        for word in (UNK, EOS, 3, 6, 8):
            p = math.exp(table.score(history, model.words[word]))
            assert p == pytest.approx(formulas.p((*gram, word)[-order:]), rel=1e-5)


@given(CORPORA, st.integers(1, 4), st.sampled_from([(), (0, 1), (0, 0, 1), (0, 0, 0, 3)]))
def test_every_history_sums_to_one(corpus: list[list[int]], order: int, prune: tuple[int, ...]) -> None:
    model = estimate(join(corpus), names(9), order=order, prune=prune[:order], fallback=True).model
    assert largest_deviation(model) < 1e-5


def random_text(tokens: int, size: int, seed: int = 1) -> np.ndarray:
    """Sentences whose words follow each other in a Zipf-like way."""
    rng = np.random.default_rng(seed)
    words = 3 + (rng.zipf(1.3, tokens) % (size - 3))
    ends = np.sort(rng.choice(tokens, tokens // 12, replace=False))
    return join([part.tolist() for part in np.split(words, ends)])


@pytest.mark.parametrize("prune", [(), (0, 0, 1), (0, 1, 1, 2)])
def test_a_larger_model_sums_to_one_after_every_history(prune: tuple[int, ...]) -> None:
    model, discounts = estimate(random_text(20_000, 400), names(420), order=4, prune=prune, fallback=True)
    assert discounts[1] != FALLBACK
    assert largest_deviation(model) < 1e-5


@pytest.mark.parametrize(("name", "prune"), [("numbers.lmplz", ()), ("numbers.lmplz.prune-0-0-1", (0, 0, 1))])
def test_lmplz_estimates_the_same_model(name: str, prune: tuple[int, ...]) -> None:
    words = ["<unk>", "<s>", "</s>"]
    sentences = []
    for line in (DATA / "numbers.txt").read_text().splitlines():
        words += [word for word in dict.fromkeys(line.split()) if word not in words]
        sentences.append([words.index(word) for word in line.split()])
    model = estimate(join(sentences), words, order=3, prune=prune, fallback=True).model
    ours, theirs = as_dictionary(model), as_dictionary(read_arpa(DATA / f"{name}.arpa"))
    assert ours.keys() == theirs.keys()
    for gram, (score, backoff) in theirs.items():
        if gram != ("<s>",):  # which lmplz gives the probability 1
            assert ours[gram][0] == pytest.approx(score, abs=1e-5)
        assert ours[gram][1] == pytest.approx(backoff, abs=1e-5)


def as_dictionary(model: Arpa) -> dict[tuple[str, ...], tuple[float, float]]:
    return {
        tuple(model.words[i] for i in gram): (score, backoff)
        for ngrams in model.orders
        for gram, score, backoff in zip(ngrams.words.tolist(), ngrams.scores, ngrams.backoffs, strict=True)
    }


def test_discounts_are_those_of_equation_26() -> None:
    """Worked by hand: ten unigrams of count 1, six of 2, three of 3, two of 4 in a unigram model."""
    counts = [1] * 10 + [2] * 6 + [3] * 3 + [4] * 2
    tokens = [3 + i for i, count in enumerate(counts) for _ in range(count)]
    # One sentence a token gives </s> a count of its own, 39, which is 3 or more but not 3.
    ((d1, d2, d3),) = estimate(join([[token] for token in tokens]), names(40), order=1).discounts
    y = 10 / (10 + 2 * 6)
    assert d1 == pytest.approx(1 - 2 * y * 6 / 10)
    assert d2 == pytest.approx(2 - 3 * y * 3 / 6)
    assert d3 == pytest.approx(3 - 4 * y * 2 / 3)


def test_given_discounts_are_used_for_all_orders_or_each() -> None:
    corpus = [[3, 4, 5], [3, 4], [4, 4, 6]]
    for given_discounts in ([(0.4, 0.9, 1.2)], [(0.4, 0.9, 1.2), (0.1, 0.2, 0.3), (1.0, 2.0, 3.0)]):
        model, used = estimate(join(corpus), names(8), order=3, discounts=given_discounts)
        assert used == (given_discounts * 3)[:3]
        assert largest_deviation(model) < 1e-5
    formulas = Formulas(corpus, 8, 3, (), (0.4, 0.9, 1.2))
    model = estimate(join(corpus), names(8), order=3, discounts=[(0.4, 0.9, 1.2)]).model
    for gram, score in zip(model.orders[2].words.tolist(), model.orders[2].scores, strict=True):
        assert math.exp(score) == pytest.approx(formulas.p(tuple(gram)), abs=1e-9)


def test_unseen_tokens_share_alike_with_unk() -> None:
    model = estimate(join([[3, 4], [3, 5], [4, 4, 3]]), names(10), order=2, fallback=True).model
    unigrams = model.orders[0].scores
    assert len(unigrams) == 10
    assert unigrams[UNK] == unigrams[7] == unigrams[9] < unigrams[5]


def test_sentences_do_not_run_into_each_other_and_empty_ones_do_not_count() -> None:
    assert join([[3], [], [4, 5]]).tolist() == [BOS, 3, EOS, BOS, 4, 5, EOS]
    model = estimate(join([[3], [4]] * 3), names(5), order=2, fallback=True).model
    bigrams = {tuple(gram) for gram in model.orders[1].words.tolist()}
    assert bigrams == {(BOS, 3), (3, EOS), (BOS, 4), (4, EOS)}


def test_an_order_that_is_pruned_away_is_not_listed() -> None:
    model = estimate(join([[3, 4, 5], [4, 3]]), names(7), order=3, prune=(0, 0, 9), fallback=True).model
    assert len(model.orders) == 2


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"order": 3}, "does not determine the discounts of 1-grams: .* Set --discount-fallback"),
        ({"order": 9, "fallback": True}, "order 9 is too high: no sentence, with <s> and </s>, is 6 words long"),
        ({"order": 2, "prune": (1,)}, "--prune 1: expected"),
        ({"order": 3, "prune": (0, 2, 1)}, "--prune 0 2 1: expected"),
        ({"order": 2, "prune": (0, 0, 1)}, "--prune 0 0 1: expected at most 2 counts"),
        ({"order": 3, "discounts": [(0.5, 1, 1.5)] * 2}, "expected three numbers, or 9"),
        ({"order": 3, "discounts": [(0.5, 1)]}, "expected D1, D2, D3"),
        ({"order": 3, "discounts": [(1.5, 1, 1)]}, "expected D1, D2, D3"),
    ],
)
def test_what_cannot_be_estimated_is_said(options: dict[str, object], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        estimate(join([[3, 4, 5], [4, 3]]), names(7), **options)  # type: ignore[arg-type]


def test_a_text_without_sentences_is_refused() -> None:
    with pytest.raises(UsageError, match="no sentence"):
        estimate(join([[], []]), names(7))


def test_discounts_out_of_range_are_refused_or_replaced() -> None:
    """One unigram of count 1, one of 2 and five of 3: D2 comes out negative."""
    tokens = [3, 4, 4, *[5, 6, 7, 8, 9] * 3]
    random.Random(1).shuffle(tokens)
    with pytest.raises(UsageError, match=r"the formula gives .*-"):
        estimate(join([tokens]), names(10), order=1)
    assert estimate(join([tokens]), names(10), order=1, fallback=True).discounts == [FALLBACK]
