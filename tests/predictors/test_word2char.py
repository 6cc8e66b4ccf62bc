"""The promise of `word2char`: characters spell words, and each word scores where it ends, once."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sgdec_predictors.fsttok import FstTok
from sgdec_predictors.word2char import Word2Char

from sgdec import EOS, UNK, BatchPredictor, Predictor, SgdecError, Source
from sgdec.io.transducer import TransducerArc
from sgdec.lifting import lift
from sgdec.search.constellation import Constellation
from sgdec.testing import Bonus, OnDemandTable, PassThrough, PredictorContract, Table, score_path
from sgdec.testing.reading import read_row
from tests.helpers.breadth import examples
from tests.helpers.drawn_transducers import Drawn

pytestmark = pytest.mark.slow

SPELLINGS = {(3,): 4, (3, 4): 5, (4, 4): 6}
"""Of words 4, 5 and 6, in characters 3 and 4; 5 and 6 are boundaries."""
V_CHARACTERS, V = 7, 7
SOURCE = Source(1, (3,))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("spellings") / "map.txt"
    path.write_text("".join(f"{word} {' '.join(map(str, letters))}\n" for letters, word in SPELLINGS.items()))
    return str(path)


def table(seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-3, 0, (V, V))


def score(predictor: Predictor | BatchPredictor, tokens: Sequence[int]) -> list[float]:
    """By token, ``</s>`` last."""
    _, ledger = score_path(Constellation.of({"x": predictor}), SOURCE, tokens)
    return [row[0] for row in ledger]


def words_of(characters: Sequence[int]) -> list[int]:
    """Split at boundaries, looked up."""
    groups = itertools.groupby(characters, key=lambda character: character in (UNK, 3, 4))
    return [SPELLINGS.get(tuple(group), UNK) for inside, group in groups if inside]


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.sampled_from([0, 3, 4, 5, 6]), max_size=8))
def test_a_total_is_that_of_the_words(path: str, characters: list[int]) -> None:
    inner = Table(table())
    assert math.fsum(score(Word2Char(lift(inner), path), characters)) == pytest.approx(
        math.fsum(score(inner, words_of(characters)))
    )


def test_a_word_scores_at_its_boundary_and_at_the_end(path: str) -> None:
    inner = Table(table())
    found = score(Word2Char(lift(inner), path), (3, 4, 5, 6, 4, 4))
    first, second, end = score(inner, (5, 6))
    assert found == pytest.approx([0, 0, first, 0, 0, 0, second + end])


def test_it_is_a_functional_transducer_with_unlisted_words_unknown(path: str, tmp_path: Path) -> None:
    """Where every word is listed and ends with one boundary, `fsttok` with such a transducer says the same."""
    arcs: dict[int, list[TransducerArc]] = {
        0: [TransducerArc(3, 0, 0.0, 1), TransducerArc(4, 0, 0.0, 2)],
        1: [TransducerArc(5, 4, 0.0, 0), TransducerArc(4, 0, 0.0, 3)],
        2: [TransducerArc(4, 0, 0.0, 4)],
        3: [TransducerArc(5, 5, 0.0, 0)],
        4: [TransducerArc(5, 6, 0.0, 0)],
    }
    transducer = Drawn(arcs, {0: 0.0}).write(str(tmp_path / "t.fst"))
    for characters in ((3, 5), (3, 4, 5, 4, 4, 5), (4, 4, 5, 3, 5, 3, 5), ()):
        through = score(FstTok(lift(Table(table())), transducer, lookahead="none"), characters)
        assert score(Word2Char(lift(Table(table())), path), characters) == pytest.approx(through)


def test_candidates_are_all_that_is_asked_for(path: str) -> None:
    """Without </s> among them no word is consumed ahead of need."""
    wrapper = Word2Char(lift(OnDemandTable(table())), path)
    states = wrapper.consume_batch(wrapper.initialize_batch([SOURCE]), [3])
    full = read_row(wrapper.predict_batch(states), 0, V_CHARACTERS)
    few = wrapper.predict_batch(states, [[4, 5]]).rows[0]
    assert few.get(4) == full[4] == 0.0 and few.get(5) == full[5] and EOS not in few.tokens


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("4 3\n5 x\n", "line 2: expected 'word character character ...', ids, not '5 x'"),
        ("4\n", "line 1: expected a word and its characters"),
        ("4 3 2\n", "line 1: expected a word and its characters, none of them 0, 1 or 2"),
        (
            "4 3\n\n5 3\n",
            "line 3: not functional: 3 already spells word 4, not 5. Keep one",
        ),
    ],
)
def test_a_broken_file_is_one_clear_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "map.txt").write_text(text)
    with pytest.raises(SgdecError) as caught:
        Word2Char(lift(Bonus({})), str(tmp_path / "map.txt"))
    assert str(caught.value).startswith(f"word2char: {tmp_path}/map.txt: ") and message in str(caught.value)


def test_a_word_may_be_spelled_in_two_ways(tmp_path: Path) -> None:
    (tmp_path / "map.txt").write_text("4 3\n4 5\n")
    wrapper = Word2Char(lift(Bonus({4: -1.0})), str(tmp_path / "map.txt"))
    assert score(wrapper, (3, 6)) == score(wrapper, (5, 6)) == [0.0, -1.0, 0.0]


class Word2CharContract(PredictorContract):
    plugin = "word2char"
    vocab_size = V_CHARACTERS
    prefixes = ((3, 4, 5, 3), (3, 3, 6, 4, 4), (5, 5), (0, 3, 5), (3, 4, 5, 4, 4))

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _prepare(cls, path: str) -> None:
        cls.path = path

    def inner(self) -> Any:
        return Table(table())

    def make(self) -> BatchPredictor:
        return Word2Char(PassThrough(lift(self.inner())), self.path)


class TestWord2Char(Word2CharContract):
    pass


class TestWord2CharOnDemand(TestWord2Char):
    def inner(self) -> Any:
        return OnDemandTable(table())


class TestWord2CharThatForbids(TestWord2Char):
    def inner(self) -> Any:
        return Bonus({EOS: -0.5, 4: -1.0, 5: -2.0}, default=-math.inf)
