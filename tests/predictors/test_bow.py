"""The bag-of-words predictor allows exactly the orders of a bag: all, with subsets, with repetitions."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sgdec_predictors.bow import BagOfWords

from sgdec import Context, SgdecError, Source
from sgdec.context import Vocabularies
from sgdec.testing import enumerate_space
from tests.helpers.contracts import PluginContract, SearchContract
from tests.helpers.oracles import tiny

pytestmark = pytest.mark.slow

BAGS = ["3 4 5", "3 3 4", "6", ""]
LONGEST = 4


def bow(folder: Path, *bags: str, **options: Any) -> BagOfWords:
    path = folder / "bags.ids"
    path.write_text("".join(f"{bag}\n" for bag in bags))
    return BagOfWords(str(path), **options)


def allowed(bag: str, subsets: bool, duplicates: bool) -> set[tuple[int, ...]]:
    """All outputs of up to `LONGEST` tokens, by their counts."""
    wanted = Counter(map(int, bag.split()))
    found = set()
    for length in range(LONGEST + 1):
        for tokens in itertools.product(sorted(wanted), repeat=length):
            counts = Counter(tokens)
            enough = subsets or counts >= wanted
            not_too_many = duplicates or counts <= wanted
            if enough and not_too_many:
                found.add(tokens)
    return found


@pytest.mark.parametrize("duplicates", [False, True])
@pytest.mark.parametrize("subsets", [False, True])
@pytest.mark.parametrize("bag", BAGS)
def test_the_space_is_the_set_of_orders(tmp_path: Path, bag: str, subsets: bool, duplicates: bool) -> None:
    predictor = bow(tmp_path, bag, accept_subsets=subsets, accept_duplicates=duplicates)
    space = tiny(LONGEST, bow=predictor)
    paths = enumerate_space(space.constellation(), space.source)
    assert {path.tokens for path in paths} == allowed(bag, subsets, duplicates)
    assert len(paths) == len(allowed(bag, subsets, duplicates))
    assert {path.total for path in paths} <= {0.0}


def test_prefixes_of_the_same_words_have_one_key_and_others_do_not(tmp_path: Path) -> None:
    predictor = bow(tmp_path, "3 4 4 5")

    def state(*tokens: int) -> Any:
        predictor.initialize(Source(1, ()))
        for token in tokens:
            predictor.consume(token)
        return predictor.get_state()

    keys = predictor.state_key([state(3, 4), state(4, 3), state(4, 4), state(3)])
    assert keys[0] == keys[1] and len(set(keys)) == 3


def test_a_word_that_is_not_left_has_no_way_on(tmp_path: Path) -> None:
    predictor = bow(tmp_path, "3 4")
    for wrong in ((3, 3), (5,), (3, 4, 4)):
        predictor.initialize(Source(1, ()))
        for token in wrong:
            predictor.consume(token)
        assert dict(predictor.predict_next().rows[0].lookup) == {}
        assert predictor.best_remaining([predictor.get_state()]) == [-float("inf")]
        assert predictor.worst_remaining([predictor.get_state()]) == [float("inf")]


class Words:
    """A vocabulary of words."""

    pieces = ("<unk>", "<s>", "</s>", "a", "b")
    size = 5
    fingerprint = "words"

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(map(self.token, text.split()))

    def decode(self, tokens: Any) -> str:
        return " ".join(map(self.piece, tokens))

    def piece(self, token: int) -> str:
        return self.pieces[token]

    def token(self, piece: str) -> int:
        return self.pieces.index(piece) if piece in self.pieces else 0


def test_text_is_read_through_the_target_vocabulary(tmp_path: Path) -> None:
    context = Context(vocabularies=Vocabularies(target=Words()), vocab_size=5)
    predictor = bow(tmp_path, "b a b", context=context)
    predictor.initialize(Source(1, ()))
    assert predictor.get_state() == (1, 2)
    with pytest.raises(SgdecError) as error:
        bow(tmp_path, "a", "a zebra b", context=context).initialize(Source(2, ()))
    assert str(error.value) == (
        f"bow: {tmp_path}/bags.ids: line 2: 'zebra' is not in the target vocabulary (sentence 2). "
        "Remove the word from the bag, or replace it."
    )


@pytest.mark.parametrize(
    ("bag", "complaint"),
    [
        ("3 word", "line 1: 'word' is not a token id. Without a target vocabulary, words are token ids."),
        ("3 2 4", "line 1: 2 stands for <s> or </s>. Leave both out; they are added."),
        ("3 9", "line 1: 9 is outside the target vocabulary of 9 tokens."),
        ("3 0", "line 1: '0' is not in the target vocabulary (sentence 1). Remove the word"),
    ],
)
def test_a_bag_that_cannot_be_is_one_line(tmp_path: Path, bag: str, complaint: str) -> None:
    with pytest.raises(SgdecError) as error:
        bow(tmp_path, bag, context=Context(vocab_size=9)).initialize(Source(1, ()))
    assert str(error.value).startswith(f"bow: {tmp_path}/bags.ids: {complaint}")
    assert "\n" not in str(error.value) and str(error.value).endswith(".")


def test_a_missing_bag_or_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(SgdecError) as error:
        bow(tmp_path, "3").initialize(Source(2, ()))
    assert str(error.value) == (
        f"bow: {tmp_path}/bags.ids has 1 line, so none for sentence 2. Expected one bag per source sentence."
    )
    with pytest.raises(SgdecError, match=r"^bow: none\.ids: cannot be read"):
        BagOfWords("none.ids")


class TestBowInSearch(SearchContract):
    vocab_size = 6

    def draw(self, rng: np.random.Generator) -> BagOfWords:
        bag = " ".join(map(str, rng.integers(3, 6, rng.integers(0, 4))))
        subsets, duplicates = (rng.random(2) < 0.5).tolist()
        return bow(self.folder, bag, accept_subsets=subsets, accept_duplicates=duplicates)


class TestBow(PluginContract):
    plugin = "bow"
    options_given: dict[str, Any] = {}  # noqa: RUF012 - as the kit has it

    def prepare(self, folder: Path) -> dict[str, Any]:
        (folder / "bags.ids").write_text("3 4 4 5\n8 7\n5 6 5 5 3 7\n")
        return {"path": str(folder / "bags.ids"), **self.options_given}


class TestBowWithSubsets(TestBow):
    options_given = {"accept_subsets": True}  # noqa: RUF012


class TestBowWithDuplicates(TestBow):
    options_given = {"accept_duplicates": True}  # noqa: RUF012
