"""ngramc adds up the scores of the n-grams of a hypothesis, each time they occur, discounted.

Oracle: the n-grams read off the whole string ``<s> tokens </s>``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sgdec_predictors.ngramc import NgramCounts

from sgdec import BOS, EOS, Context, SgdecError, Source
from sgdec.io.ngrams import Ngram, read_ngrams, write_ngrams
from sgdec.search.constellation import Constellation
from sgdec.testing import enumerate_space, score_path
from tests.helpers.breadth import examples
from tests.helpers.contracts import PluginContract, SearchContract

pytestmark = pytest.mark.slow

V = 5


def gain(ngrams: Mapping[Ngram, float], tokens: Sequence[int], discount: float = 1.0) -> float:
    """``<s>`` only begins and ``</s>`` only ends a sentence: a token 1 within is no word of any n-gram."""
    string = ["<s>", *("inside" if token == BOS else token for token in tokens), EOS]
    listed = {
        tuple("<s>" if i == 0 and t == BOS else t for i, t in enumerate(ngram)): s for ngram, s in ngrams.items()
    }
    found = Counter(tuple(string[i:j]) for j in range(2, len(string) + 1) for i in range(j))
    return math.fsum(
        listed[ngram] * sum(discount**earlier for earlier in range(times))
        for ngram, times in found.items()
        if ngram in listed
    )


def random_ngrams(seed: int, positive: bool = False, size: int = V) -> dict[Ngram, float]:
    """Up to 14 n-grams of 1 to 4 tokens; not every beginning of one is another."""
    rng = np.random.default_rng(seed)
    found: dict[Ngram, float] = {}
    for _ in range(rng.integers(0, 15)):
        ngram = tuple(rng.integers(0, size, rng.integers(1, 5)).tolist())
        found[ngram] = float(rng.choice([0.25, 0.5, 1.0] if positive else [-1.0, -0.5, 0.25, 0.5, 1.0]))
    return found


def written(folder: Path, ngrams: Mapping[Ngram, float]) -> str:
    write_ngrams(folder / "1.txt", ngrams)
    return str(folder / "{id}.txt")


seeds = st.integers(0, 2**32)
discounts = st.sampled_from([1.0, 0.5, 0.0])


@settings(max_examples=examples(60))
@given(seed=seeds, tokens=st.lists(st.integers(0, V - 1).filter(lambda t: t != EOS), max_size=7), discount=discounts)
def test_a_total_is_the_sum_over_all_ngrams(
    tmp_path_factory: pytest.TempPathFactory, seed: int, tokens: list[int], discount: float
) -> None:
    ngrams = random_ngrams(seed)
    predictor = NgramCounts(written(tmp_path_factory.mktemp("ngrams"), ngrams), discount=discount)
    found, _ = score_path(Constellation.of({"ngramc": predictor}), Source(1, ()), tokens)
    assert found == pytest.approx(gain(ngrams, tokens, discount), abs=1e-9)


def test_an_order_leaves_out_all_others(tmp_path: Path) -> None:
    ngrams = {(3,): 1.0, (3, 4): 2.0, (1, 3): 4.0, (3, 4, 3): 8.0}
    path = written(tmp_path, ngrams)
    for order, total in [(0, 16.0), (1, 2.0), (2, 6.0), (3, 8.0), (4, 0.0)]:
        constellation = Constellation.of({"ngramc": NgramCounts(path, order=order)})
        assert score_path(constellation, Source(1, ()), (3, 4, 3))[0] == total


def test_the_begin_of_a_sentence_scores_nothing(tmp_path: Path) -> None:
    """SGNMT's files list ``<s>`` itself."""
    constellation = Constellation.of({"ngramc": NgramCounts(written(tmp_path, {(1,): 1.0, (1, 2): 0.5}))})
    assert score_path(constellation, Source(1, ()), ())[0] == 0.5


@pytest.mark.parametrize("discount", [1.0, 0.5, 0.0])
@settings(max_examples=examples(25))
@given(seed=seeds, limit=st.integers(0, 3))
def test_bounds_hold_and_are_exact_for_posteriors(
    tmp_path_factory: pytest.TempPathFactory, discount: float, seed: int, limit: int
) -> None:
    for positive in (True, False):
        ngrams = random_ngrams(seed, positive)
        path = written(tmp_path_factory.mktemp("ngrams"), ngrams)
        predictor = NgramCounts(path, discount=discount)
        source = Source(1, (), max_length=limit)
        # One token more than the n-grams have: the bound allows for a token that is in none.
        paths = enumerate_space(
            Constellation.of({"n": NgramCounts(path, discount=discount)}, vocab_size=V + 1), source
        )
        predictor.initialize(source)
        start = predictor.get_state()
        for prefix in {found.tokens[:t]: None for found in paths for t in range(min(len(found.tokens), 2) + 1)}:
            predictor.set_state(start)
            spent = 0.0
            for token in prefix:
                spent += predictor.predict_next().rows[0].get(token)
                predictor.consume(token)
            left = [found.total - spent for found in paths if found.tokens[: len(prefix)] == prefix]
            (best,) = predictor.best_remaining([predictor.get_state()])
            (worst,) = predictor.worst_remaining([predictor.get_state()])
            assert best >= max(left) - 1e-9 and worst <= min(left) + 1e-9
            if positive and discount == 1.0:
                assert best == pytest.approx(max(left), abs=1e-9)


def test_without_a_length_limit_only_discounts_bound_what_repeats(tmp_path: Path) -> None:
    path = written(tmp_path, {(3,): 0.5, (3, 4): -0.25})
    for discount, best, worst in [(1.0, math.inf, -math.inf), (0.5, 1.0, -0.5), (0.0, 0.5, -0.25)]:
        predictor = NgramCounts(path, discount=discount)
        predictor.initialize(Source(1, ()))
        assert predictor.best_remaining([predictor.get_state()]) == [best]
        assert predictor.worst_remaining([predictor.get_state()]) == [worst]


def test_a_key_forgets_what_no_ngram_needs_and_keeps_what_a_discount_needs(tmp_path: Path) -> None:
    path = written(tmp_path, {(3,): 1.0, (4, 3): 1.0})
    for discount, same in [(1.0, True), (0.5, False)]:
        predictor = NgramCounts(path, discount=discount)
        states = []
        for tokens in ((3, 3, 4), (0, 3, 4), (3, 0, 4)):
            predictor.initialize(Source(1, ()))
            for token in tokens:
                predictor.consume(token)
            states.append(predictor.get_state())
        twice, once, also_once = predictor.state_key(states)
        assert once == also_once
        assert (twice == once) == same


class TestNgramCountsInSearch(SearchContract):
    vocab_size = 4

    def draw(self, rng: np.random.Generator) -> NgramCounts:
        path = written(self.folder, random_ngrams(int(rng.integers(2**32)), size=4))
        return NgramCounts(path, discount=float(rng.choice([1.0, 0.5, 0.0])))


def test_a_file_keeps_what_is_written_to_it(tmp_path: Path) -> None:
    ngrams = {(1, 7): 0.1234567890123, (2,): 1.0, (7, 7, 12): 3e-17}
    write_ngrams(tmp_path / "ngrams", ngrams)
    assert read_ngrams(tmp_path / "ngrams") == {key: pytest.approx(value) for key, value in ngrams.items()}
    assert (tmp_path / "ngrams").read_text().startswith("1 7 : 0.123456789\n2 : 1\n")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (None, r"ngramc: .*3.txt: cannot be read \(No such file or directory\) \(sentence 3\)\."),
        ("3 4 : 0.5\n\n3 0.5\n", r"3.txt: line 3: '3 0.5' is not an n-gram"),
        ("3 x : 0.5\n", "line 1: '3 x : 0.5' is not an n-gram"),
        (" : 0.5\n", "is not an n-gram"),
        ("3 : 1_0\n", "line 1: '3 : 1_0' is not an n-gram"),
        ("3 : nan\n", "line 1: '3 : nan' is not an n-gram"),
        ("3 : 1\n3 : 1\n", r"line 2: the n-gram 3 is listed twice \(sentence 3\)\."),
        ("3 9 : 1\n", r"line 1: token 9 is outside the target vocabulary of 9 tokens \(sentence 3\)\."),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, text: str | None, complaint: str) -> None:
    if text is not None:
        (tmp_path / "3.txt").write_text(text)
    predictor = NgramCounts(f"{tmp_path}/{{id}}.txt", context=Context(vocab_size=9))
    with pytest.raises(SgdecError, match=complaint) as error:
        predictor.initialize(Source(3, ()))
    assert "\n" not in str(error.value)


def test_one_file_may_be_for_all_sentences(tmp_path: Path) -> None:
    written(tmp_path, {(3,): 1.0})
    constellation = Constellation.of({"ngramc": NgramCounts(str(tmp_path / "1.txt"))})
    assert score_path(constellation, Source(7, ()), (3,))[0] == 1.0
    with pytest.raises(SgdecError, match=r"ngramc: .*none: cannot be read"):
        NgramCounts(str(tmp_path / "none"))


class TestNgramCounts(PluginContract):
    plugin = "ngramc"
    prefixes = ((3, 4, 3, 4), (3, 4, 3), (4, 4, 4), (1, 3), (0, 4, 3, 4))

    def prepare(self, folder: Path) -> dict[str, Any]:
        ngrams = {
            (3,): 0.5,
            (1, 3): 0.25,
            (3, 4): 0.75,
            (4, 3, 4): -0.5,
            (4,): 0.125,
            (4, 2): 0.25,
            (2,): 1.0,
            (1,): 1.0,
        }
        for number in (1, 2, 3):
            write_ngrams(folder / f"{number}.txt", {**ngrams, (number + 3, 5): 0.5})
        return {"path": f"{folder}/{{id}}.txt"}


class TestDiscountedNgramCounts(TestNgramCounts):
    def prepare(self, folder: Path) -> dict[str, Any]:
        return {**super().prepare(folder), "discount": 0.5}


class TestNgramCountsOnlyOnce(TestNgramCounts):
    def prepare(self, folder: Path) -> dict[str, Any]:
        return {**super().prepare(folder), "discount": 0.0}
