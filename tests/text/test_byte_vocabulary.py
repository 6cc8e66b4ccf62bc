"""The promise: any text is the tokens of its bytes, and constraints read it byte by byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sgdec_predictors.regex import RegexPredictor
from sgdec_predictors.texts.spelling import Spelling

from sgdec import Context, Source
from sgdec.context import BOS, EOS, UNK, Vocabularies
from sgdec.vocabularies import ByteVocabulary

OWN = ByteVocabulary()


@given(st.text())
def test_a_text_is_its_bytes_and_comes_back(text: str) -> None:
    tokens = OWN.encode(text)
    assert bytes(token - 3 for token in tokens) == text.encode() and OWN.decode(tokens) == text
    assert OWN.encode_all([text]) == [list(tokens)]


@given(st.binary())
def test_bytes_that_are_not_utf8_are_shown(data: bytes) -> None:
    assert OWN.decode([token + 3 for token in data]) == data.decode(errors="replace")


def test_half_a_surrogate_pair_comes_back_as_in_other_vocabularies() -> None:
    assert OWN.decode(OWN.encode("a\ud800")) == "a\ud800"


def test_each_token_has_its_own_piece() -> None:
    pieces = [OWN.piece(token) for token in range(OWN.size)]
    assert pieces[:4] == ["<unk>", "<s>", "</s>", "<0x00>"] and pieces[-1] == "<0xFF>" and len({*pieces}) == 259
    assert [OWN.token(piece) for piece in pieces] == list(range(259)) and OWN.token("a") == UNK
    for outside in (-1, 259):
        with pytest.raises(IndexError, match=rf"token {outside} is outside the vocabulary 0\.\.258"):
            OWN.piece(outside)


def test_marks_add_no_text() -> None:
    assert OWN.decode((BOS, *OWN.encode("é"), UNK, EOS)) == "é"
    assert [OWN.bytes_of(token) for token in (UNK, BOS, EOS, 3, 258)] == [None, None, None, b"\0", b"\xff"]


def test_texts_of_tokens_and_of_words() -> None:
    assert [OWN.text_of(token) for token in (EOS, *OWN.encode(" aé"))] == [None, "▁", "a", None, None]
    assert OWN.words_in(" a  dog ") == ["a", "dog"]


def test_constraints_read_parts_of_characters() -> None:
    spelling = Spelling.of(OWN)
    assert spelling.states == 1 and spelling.text(OWN.encode("é 日")) == "é 日".encode()
    pytest.importorskip("outlines_core")
    pytest.importorskip("llguidance")
    context = Context(vocabularies=Vocabularies(target=OWN), vocab_size=OWN.size)
    regex = RegexPredictor("(é|日)+", cache="none", context=context)
    states, found = regex.initialize_batch([Source(1, ())]), []
    for token in (*OWN.encode("é日"), EOS):
        (row,) = regex.predict_batch(states).rows
        found.append(len(row.tokens))
        assert row.get(token) == 0.0
        states = regex.consume_batch(states, [token])
    assert found == [2, 1, 3, 1, 1, 3]
