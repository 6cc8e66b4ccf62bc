"""The promise of ``wordlist``: a search finds exactly the token sequences all of whose words are listed, or none."""

from __future__ import annotations

import gzip
import itertools
import re
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from sgdec_decoders.dfs import DfsDecoder
from sgdec_predictors.wordlist import Mode, WordlistPredictor

from sgdec import Context, SgdecError, Source, UsageError
from sgdec.context import Vocabularies
from sgdec.protocol import BatchPredictor, Predictor
from sgdec.testing import Table
from sgdec.text.words import SPECIAL, WordVocabulary
from tests.helpers.contracts import PluginContract, V
from tests.helpers.oracles import tiny
from tests.helpers.random_spaces import search
from tests.helpers.spelled_vocabularies import KINDS, context_of, letters, spelling, vocabulary

pytest.importorskip("outlines_core")

LETTERS = WordVocabulary([*SPECIAL, "a", "b", "c", "ab", "d", "!"])
assert LETTERS.size == V


def listed(folder: Path, *words: str, name: str = "words.txt") -> str:
    (folder / name).write_text("".join(f"{word}\n" for word in words))
    return str(folder / name)


@pytest.mark.slow
class TestWordlistContract(PluginContract):
    plugin = "wordlist"
    mode: Mode = "only"
    context = Context(vocabularies=Vocabularies(target=LETTERS), vocab_size=V)

    def prepare(self, folder: Path) -> dict[str, Any]:
        return {"path": listed(folder, "a", "ab"), "mode": self.mode, "cache": str(folder), "context": self.context}

    def make(self) -> Predictor | BatchPredictor:
        return WordlistPredictor(**self.options)


@pytest.mark.slow
class TestNeverContract(TestWordlistContract):
    mode = "never"


@pytest.mark.slow
class TestListOfEachSentence(TestWordlistContract):
    own_sentences = True

    def prepare(self, folder: Path) -> dict[str, Any]:
        for source in self.sources:
            listed(folder, *["a", "b", "ab"][: 1 + source.id % 3], name=f"{source.id}.txt")
        return {"path": f"{folder}/{{id}}.txt", "cache": "none", "context": self.context}


@pytest.mark.slow
class TestNeverOfPieces(TestNeverContract):
    vocab_size = vocabulary("unigram").size
    context = context_of("unigram")


LISTS = (("a", "ab"), ("b",), ("é", "bab"), ("z",))
CASES = [(kind, words, mode) for kind in KINDS for words in LISTS for mode in get_args(Mode)]
"""Of these `make test` has each list of each vocabulary, in one of the modes, so that every pair is tried."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "words", "mode"),
    [
        pytest.param(
            kind, words, mode, id=f"{kind}-{' '.join(words)}-{mode}",
            marks=[pytest.mark.exhaustive] if number % 2 != (mode == "only") else [],
        )
        for kind, words, mode in CASES
        for number in [[*KINDS].index(kind) + LISTS.index(words)]
    ],
)  # fmt: skip
def test_a_search_finds_all_sequences_of_allowed_words(
    kind: str, words: tuple[str, ...], mode: Mode, tmp_path: Path
) -> None:
    longest, size = 2 if kind in ("mixed", "bytes") else 3, vocabulary(kind).size
    predictor = WordlistPredictor(listed(tmp_path, *words), mode, context=context_of(kind))
    chosen = letters(kind)
    scores = np.full((size, size), -np.inf)
    scores[:, [2, *chosen]] = np.random.default_rng(3).normal(size=(size, 1 + len(chosen))).round(2)
    space = tiny(longest, None, size, model=Table(scores), wordlist=predictor)
    result, _ = search(DfsDecoder(), space, nbest=100_000)
    expected = {
        sequence
        for length in range(longest + 1)
        for sequence in itertools.product(chosen, repeat=length)
        if allows(words, mode, spelling(kind).text(sequence))
    }
    assert {hypothesis.tokens for hypothesis in result.hypotheses} == expected
    assert len(expected) > 1 or mode == "only"


def allows(words: tuple[str, ...], mode: Mode, text: bytes | None) -> bool:
    if text is None:
        return False
    try:
        found = set(re.findall(r"\w+", text.decode()))
    except UnicodeDecodeError:
        return False
    return found <= set(words) if mode == "only" else not found & set(words)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["only", "never"])
def test_case_does_not_count_where_asked(mode: Mode, tmp_path: Path) -> None:
    words = WordVocabulary([*SPECIAL, "É", "é", "É!", "e", "STRASSE", "Straße", "STRAẞE"])
    context = Context(vocabularies=Vocabularies(words, words))
    path = listed(tmp_path, "é", "straße")
    for ignore_case, expected in ((False, {"é"}), (True, {"É", "é", "É!", "Straße", "STRAẞE"})):
        predictor = WordlistPredictor(path, mode, ignore_case, context=context)
        (row,) = predictor.predict_batch(predictor.initialize_batch([Source(1, (3,))])).rows
        found = {words.piece(token) for token in row.candidates if token > 2}
        everything = {words.piece(token) for token in range(3, words.size)}
        assert found == (expected if mode == "only" else everything - expected)


def test_lists_are_read_packed_and_kept_on_the_disk(tmp_path: Path) -> None:
    (tmp_path / "words.gz").write_bytes(gzip.compress("\ufeffab\r\n\n a \nab\n".encode()))
    for path in (str(tmp_path / "words.gz"), listed(tmp_path, "a", "ab")):
        predictor = WordlistPredictor(path, cache=str(tmp_path / "kept"), context=context_of("unigram"))
        assert predictor.predict_batch(predictor.initialize_batch([Source(1, (3,))])).rows
    assert len(list((tmp_path / "kept").iterdir())) == 1


def test_a_sentence_can_have_no_words_that_it_forbids(tmp_path: Path) -> None:
    context = context_of("unigram")
    (tmp_path / "1.txt").write_text("")
    (tmp_path / "2.txt").write_text("zzz\n")
    path = f"{tmp_path}/{{id}}.txt"
    predictor = WordlistPredictor(path, "never", context=context)
    none, another = predictor.predict_batch(predictor.initialize_batch([Source(1, (3,)), Source(2, (3,))])).rows
    assert {*another.candidates} <= {*none.candidates}
    with pytest.raises(SgdecError, match=r"1.txt: no words.* \(sentence 1\)"):
        WordlistPredictor(path, "only", context=context).initialize_batch([Source(1, (3,))])


def test_lists_that_cannot_be_used(tmp_path: Path) -> None:
    context = context_of("unigram")
    with pytest.raises(SgdecError, match=r"wordlist: .*words.txt: line 2: \"don't\" is not one word. "):
        WordlistPredictor(listed(tmp_path, "a", "don't"), context=context)
    with pytest.raises(SgdecError, match=r"words.txt: no words. Expected one word on each line"):
        WordlistPredictor(listed(tmp_path, "", " "), context=context)
    with pytest.raises(SgdecError, match=r"wordlist: .*none.txt"):
        WordlistPredictor(str(tmp_path / "none.txt"), context=context)
    with pytest.raises(UsageError, match="wordlist: it is about text, and this run has no target vocabulary"):
        WordlistPredictor(listed(tmp_path, "a"))
    each = WordlistPredictor(f"{tmp_path}/{{id}}.txt", context=context)
    with pytest.raises(SgdecError, match=r"7.txt.* \(sentence 7\). Expected a list for each sentence"):
        each.initialize_batch([Source(7, (3,))])
