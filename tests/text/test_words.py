"""Mixed vocabularies give every line back; word ones keep the first and last letters of what they do not know."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgdec.context import UNK
from sgdec.errors import SgdecError, UsageError
from sgdec.text.sentencepiece import train_vocabulary
from sgdec.text.vocabulary import load_vocabulary, train
from sgdec.text.words import EMPTY, SPECIAL, MixedVocabulary, WordVocabulary, unknown_symbol

pytestmark = pytest.mark.slow

CORPUS = ["ein Hund rennt", "ein Mann rennt", "ein Hund und ein Mann", "Zoë <B>x <unk> <s> a_UNK_b <empty> <0x41>"]
MIXED = MixedVocabulary.train(CORPUS, 2000)
FEW = MixedVocabulary.train(CORPUS, MIXED.size - 4)
WORDS = WordVocabulary.train(CORPUS, 9)

anything = st.text(st.characters(codec=None)) | st.text(st.sampled_from("Hund ein<B>M E_UNK 0x41>é\U0001f600\ud800"))


@given(anything)
def test_every_line_comes_back_from_the_mixed_vocabulary(line: str) -> None:
    for vocabulary in (MIXED, FEW):
        tokens = vocabulary.encode(line)
        assert vocabulary.decode(tokens) == line
        assert all(2 < token < vocabulary.size for token in tokens)


@pytest.mark.parametrize("word", [*SPECIAL, EMPTY, "<B>x", "<M>u", "<B><0x41>", "<0x41>", "a_UNK_b"])
def test_a_word_that_looks_like_a_symbol_comes_back_as_a_word(word: str) -> None:
    for line in (word, f"ein {word}  {word}"):
        tokens = MIXED.encode(line)
        assert MIXED.decode(tokens) == line
        assert not {0, 1, 2} & set(tokens)


@given(st.lists(st.integers(0, MIXED.size - 1)))
def test_whatever_a_model_writes_is_read(tokens: list[int]) -> None:
    line = MIXED.decode(tokens)
    assert MIXED.decode(MIXED.encode(line)) == line


def test_a_word_of_the_vocabulary_is_one_token_and_another_is_spelled_with_its_place() -> None:
    pieces = [MIXED.piece(token) for token in MIXED.encode("Hund nun n  ö")]
    assert pieces == ["Hund", "<B>n", "<M>u", "<E>n", "<B>n", EMPTY, "<B><0xC3>", "<E><0xB6>"]


def test_frequent_words_come_first_and_all_characters_are_there() -> None:
    words = [MIXED.piece(token) for token in range(MIXED.size)][-8:]
    assert words == ["ein", "Hund", "Mann", "rennt", "<0x41>", "Zoë", "a_UNK_b", "und"]
    assert MIXED.token("<M>ë") > 0
    assert FEW.size == MIXED.size - 4


@given(anything)
def test_a_word_that_is_unknown_keeps_its_first_and_last_letter_or_is_unk(line: str) -> None:
    for word, token in zip(line.split(), WORDS.encode(line), strict=True):
        if WORDS.is_unknown(token):
            assert WORDS.piece(token) in ("<unk>", unknown_symbol(word))
        else:
            assert WORDS.piece(token) == word


def test_symbols_are_kept_for_the_words_that_need_them_most() -> None:
    frequent = [f"v{i}" for i in range(20)]
    words = WordVocabulary.train([" ".join([*frequent, *frequent, "xab", "xbb", "xcb", "yaa", "zaa"])], 3 + 20)
    assert [words.piece(token) for token in range(3, 5)] == ["x_UNK_b", "y_UNK_a"]
    assert {words.piece(token) for token in range(5, words.size)} < set(frequent)
    assert words.encode("x---b zaa") == (3, UNK)


@pytest.mark.parametrize("vocabulary", [MIXED, WORDS, train_vocabulary(CORPUS, 40, kind="char")])
def test_a_file_holds_all_of_a_vocabulary(vocabulary: MixedVocabulary, tmp_path: Path) -> None:
    (tmp_path / "vocabulary").write_bytes(vocabulary.serialized)
    loaded = load_vocabulary(tmp_path / "vocabulary")
    assert type(loaded) is type(vocabulary)
    assert loaded.fingerprint == vocabulary.fingerprint
    assert [loaded.piece(token) for token in range(loaded.size)] == [
        vocabulary.piece(token) for token in range(vocabulary.size)
    ]


def test_vocabularies_of_two_kinds_differ_though_their_pieces_are_the_same() -> None:
    pieces = [*SPECIAL, EMPTY, *[p + u for u in "ab" for p in ("<B>", "<M>", "<E>")], "ab"]
    assert WordVocabulary(pieces).fingerprint != MixedVocabulary(pieces).fingerprint


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "this is not a vocabulary of words of format 1"),
        (b'{"kind": "word", "pieces": ["a"]}', "this is not a vocabulary of words of format 1"),
        (b'{"sgdec_vocabulary": 2, "kind": "word", "pieces": []}', "this is not a vocabulary of words of format 1"),
        (b'{"sgdec_vocabulary": 1, "kind": "word", "pieces": ["a"]}', "expected <unk>, <s>, </s> and then pieces"),
        (b'{"sgdec_vocabulary": 1, "kind": "word", "pieces": ["<unk>", "<s>", "</s>", "a", "a"]}', "each once"),
        (b"abc", "this is not a SentencePiece model"),
        (b"<eps>\t0\n<s>\t1\n", "give --input-format ids, and the table as --ngram.words"),
        (b"<eps> 0\r\n<s> 1\r\n", "this is a symbol table"),
    ],
)
def test_a_damaged_file_is_one_line(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "vocabulary"
    path.write_bytes(content)
    with pytest.raises(SgdecError) as caught:
        load_vocabulary(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_size_without_room_for_words_is_refused() -> None:
    with pytest.raises(UsageError, match="--vocab-size 100 leaves no room for words"):
        train(CORPUS, 100, "mixed")
    with pytest.raises(UsageError, match="--vocab-size 3 leaves no room for words: 3 pieces"):
        train(CORPUS, 3, "word")
    with pytest.raises(IndexError, match=r"token 9 is outside the vocabulary 0\.\.8"):
        WORDS.piece(9)
