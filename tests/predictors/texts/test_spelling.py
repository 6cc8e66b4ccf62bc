"""The promise: what tokens spell, one after the other, is the text that their vocabulary's ``decode`` gives, for
every kind of tokenizer; and each text of the tokenizer's own is spelled by its own tokens."""

from __future__ import annotations

import json
from itertools import chain, product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sgdec_predictors.texts.spelling import Spelling

from sgdec.errors import SgdecError
from sgdec.text.pretrained import load_pretrained
from sgdec.text.right_left import RightToLeft
from tests.helpers.pretrained_tokenizers import FAMILIES, TEXT
from tests.helpers.vocabularies import KINDS, made, trained


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_tokens_spell_what_decode_gives(kind: str, data: st.DataObject) -> None:
    vocabulary, spelling = made(kind)
    tokens = data.draw(st.lists(st.integers(3, vocabulary.size - 1), max_size=8))
    spelled = spelling.text(tokens)
    try:
        text = None if spelled is None else spelled.decode()
    except UnicodeDecodeError:
        return  # parts of characters, which decode replaces
    if text is not None:
        assert vocabulary.decode(tokens) == text


@pytest.mark.parametrize("kind", KINDS)
def test_a_tokenizers_own_tokens_spell_their_text(kind: str) -> None:
    vocabulary, spelling = made(kind)
    spelled = 0
    for line in {*TEXT, "", "a", "  the  cat ", "cat, 12"}:
        tokens = vocabulary.encode(line)
        if 0 not in tokens:
            found = spelling.text(tokens)
            spelled += found is not None
            assert found is None or found.decode() == vocabulary.decode(tokens)
    assert spelled > len(set(TEXT)) / 2


@pytest.mark.slow
@pytest.mark.parametrize("blanks", [[], ["▁▁"]])
@pytest.mark.parametrize("prefix", [True, False])
@pytest.mark.parametrize("remove", [True, False])
@pytest.mark.parametrize("model_type", ["unigram", "bpe", "char"])
def test_blanks_spell_what_decode_gives_in_pieces_and_as_bytes(
    model_type: str, remove: bool, prefix: bool, blanks: list[str]
) -> None:
    vocabulary = trained(
        ["a b ab  ba é"] * 5, vocab_size=285, byte_fallback=True, model_type=model_type, user_defined_symbols=blanks,
        add_dummy_prefix=prefix, remove_extra_whitespaces=remove,
    )  # fmt: skip
    spelling = Spelling.of(vocabulary)
    pieces = "▁", "▁▁", "<0x20>", "a", "▁b", "b▁", "<0xC3>", "<0xA9>"
    tokens = [token for token in map(vocabulary.token, pieces) if token]
    for output in chain.from_iterable(product(tokens, repeat=length) for length in range(5)):
        text, spelled = vocabulary.decode(output), spelling.text(output)
        assert spelled is None or "\ufffd" in text or spelled.decode() == text, output


LEFT_OUT = {
    "all": ("unigram", "bpe", "char", "no first blank", "bytes", "blanks end words", "marian", "marian-separate"),
    "one": ("all blanks", "bytes and all blanks", "t5", "mbart", "nllb", "llama"),
    "none": ("text as it is", "gpt2", "bart", "qwen", "neox"),
}
"""The blanks that decoding leaves out at the beginning, as the page on constraints says."""


@pytest.mark.parametrize("kind", [kind for kinds in LEFT_OUT.values() for kind in kinds])
def test_all_tokenisations_are_spelled_except_two_pieces_of_blanks_where_all_are_left_out(kind: str) -> None:
    vocabulary, spelling = made(kind)
    blank, letter = vocabulary.token("▁") or vocabulary.token("Ġ"), vocabulary.token("a")
    texts = [vocabulary.decode((*[blank] * count, letter)) for count in (1, 2)]
    assert texts == {"all": ["a", "a"], "one": ["a", " a"], "none": [" a", "  a"]}[
        next(left_out for left_out, kinds in LEFT_OUT.items() if kind in kinds)
    ]
    for output in chain.from_iterable(product((blank, letter), repeat=length) for length in range(6)):
        twice = [i for i in range(len(output)) if output[i : i + 2] == (blank, blank)]
        excluded = bool(twice) if kind.startswith("marian") else kind in LEFT_OUT["all"] and twice[:1] == [0]
        found = spelling.text(output)
        assert found == (None if excluded else vocabulary.decode(output).encode()), output


@pytest.mark.parametrize("kind", KINDS)
def test_the_special_tokens_have_no_text(kind: str) -> None:
    _, spelling = made(kind)
    assert all(pieces[:3] == (None, None, None) for pieces in spelling.adds)


@pytest.mark.parametrize("kind", KINDS)
def test_only_finitely_many_tokens_in_a_row_add_nothing(kind: str) -> None:
    """Otherwise one string would have outputs without end."""
    _, spelling = made(kind)
    silent = {
        (state, int(spelling.after[state, token]))
        for state, pieces in enumerate(spelling.adds)
        for token, piece in enumerate(pieces)
        if piece == b""
    }
    reached = {state for state, _ in silent}
    for _ in range(spelling.states):
        reached = {after for state, after in silent if state in reached}
    assert not reached


class Suffixes:
    """A vocabulary that marks ends of words, so that a blank appears only with the next token."""

    size = 6
    fingerprint = "suffixes"

    def encode(self, text: str) -> tuple[int, ...]:
        return ()

    def decode(self, tokens: Any) -> str:
        return "".join(self.piece(token).replace("$", " ") for token in tokens)[::-1]

    def piece(self, token: int) -> str:
        return ("<unk>", "<s>", "</s>", "a$", "b", "c$")[token]

    def token(self, piece: str) -> int:
        return 0


class Marked:
    """A vocabulary as BERT's: pieces of words begin with ``##``, and marks such as ``[PAD]`` are left out."""

    size = 7
    fingerprint = "marked"

    def encode(self, text: str) -> tuple[int, ...]:
        return ()

    def decode(self, tokens: Any) -> str:
        pieces = [self.piece(token) for token in tokens if token != 3]
        return " ".join(pieces).replace(" ##", "")

    def piece(self, token: int) -> str:
        return ("<unk>", "<s>", "</s>", "[PAD]", "cat", "##s", "a")[token]

    def token(self, piece: str) -> int:
        return 0


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_tokens_added_to_a_tokenizer_spell_their_text(family: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    FAMILIES[family](tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    known = {each["id"] for each in content["added_tokens"]} | set(content["model"]["vocab"].values())
    content["added_tokens"].append({**content["added_tokens"][-1], "id": max(known) + 1, "content": "<table>"})
    content["added_tokens"][-1]["special"] = False
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    (tmp_path / "config.json").unlink()
    vocabulary = load_pretrained(tmp_path)[1]
    tokens = vocabulary.encode("the cat<table> sat")
    assert vocabulary.token("<table>") in tokens
    text = Spelling.of(vocabulary).text(tokens)
    assert text == vocabulary.decode(tokens).encode() and b"cat<table> " in text


def test_marks_that_are_left_out_of_texts_have_no_text() -> None:
    spelling = Spelling.of(Marked())
    assert spelling.text((6, 4, 5)) == b"a cats" and spelling.text((3,)) is spelling.text((6, 3)) is None


def test_vocabularies_whose_text_depends_on_what_follows_are_refused() -> None:
    with pytest.raises(SgdecError, match="depends on tokens after them"):
        Spelling.of(Suffixes())
    with pytest.raises(SgdecError, match="from right to left"):
        Spelling.of(RightToLeft(trained()))
