"""Some vocabularies decode tokens of single bytes together: one that is not UTF-8 makes all of them unknown
characters. `phrases` is about the text that ``decode`` gives then, and other constraints allow no such text."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sgdec_predictors.grammar import GrammarPredictor
from sgdec_predictors.regex import RegexPredictor
from sgdec_predictors.wordlist import WordlistPredictor

from sgdec import EOS, Context, SgdecError
from sgdec.context import Vocabularies
from tests.helpers.breadth import examples
from tests.helpers.phrases import is_allowed, places, predictor, row_after, scores
from tests.helpers.vocabularies import made

CONSTRAINTS: dict[str, Any] = {"regex": RegexPredictor, "wordlist": WordlistPredictor, "grammar": GrammarPredictor}


def in_bytes(vocabulary: Any, text: str) -> tuple[int, ...]:
    return tuple(vocabulary.token(f"<0x{byte:02X}>") for byte in text.encode())


CHARACTERS = "日é本a"
PIECES = ("▁", "a", "▁a", *(f"<0x{byte:02X}>" for byte in sorted({*CHARACTERS.encode(), 0xFF})))
BREAKING = ("<0xFF>", "<0xE6>", "<0xA9>", "<0x61>")
RUNS = st.lists(st.one_of(*map(st.sampled_from, (CHARACTERS, CHARACTERS, BREAKING, PIECES))), max_size=5)
IN_RUNS = ("日", "é", "a", "日本", "aé", "é a")


def of_runs(vocabulary: Any, parts: list[str]) -> tuple[int, ...]:
    """Characters as bytes, and pieces."""
    tokens = [in_bytes(vocabulary, each) if each in "日é本" else (vocabulary.token(each),) for each in parts]
    return tuple(token for each in tokens for token in each)


@settings(max_examples=examples(90))
@given(
    st.lists(st.sampled_from(IN_RUNS), max_size=1), st.lists(st.sampled_from(IN_RUNS), max_size=1), RUNS,
    st.booleans(), st.booleans(),
)  # fmt: skip
@example(["日"], [], ["日", "<0xE6>"], True, False)
@example([], ["日"], ["日", "<0xE6>"], True, False)
def test_a_phrase_is_in_the_text_that_decode_gives_of_broken_bytes(
    tmp_path_factory: pytest.TempPathFactory, wanted: list[str], avoid: list[str], parts: list[str],
    whole_words: bool, ordered: bool,
) -> None:  # fmt: skip
    vocabulary, _ = made("llama")
    tokens = of_runs(vocabulary, parts)
    lines = ["\t".join(phrases) + "\n" for phrases in (wanted, avoid)]
    options = {"whole_words": whole_words, "ordered": ordered, "vocabulary": vocabulary}
    try:
        phrases = predictor(tmp_path_factory.mktemp("runs"), *lines, **options)
    except SgdecError as error:
        assert "one of the avoided" in str(error)
        return
    lists = ([[each] for each in phrases] for phrases in (wanted, avoid))
    expected = is_allowed(vocabulary.decode(tokens), *lists, ordered, whole_words, False)
    assert (set(scores(phrases, (*tokens, EOS))) == {0.0}) == expected


@settings(max_examples=examples(60))
@given(st.sampled_from(IN_RUNS), RUNS, st.booleans())
@example("日", ["<0xE6>", "<0x97>"], False)
def test_a_row_forbids_the_bytes_after_which_an_avoided_phrase_is_certain(
    tmp_path_factory: pytest.TempPathFactory, avoid: str, parts: list[str], whole_words: bool
) -> None:
    """Oracle: it is in the text whatever follows: another piece, or bytes that continue or break those before."""
    vocabulary, _ = made("llama")
    tokens = of_runs(vocabulary, parts)
    phrases = predictor(
        tmp_path_factory.mktemp("runs"), None, avoid, whole_words=whole_words, vocabulary=vocabulary
    )
    row = row_after(phrases, tokens)
    if row is None:
        return
    tails = [of_runs(vocabulary, tail) for tail in (["a"], ["<0xFF>"], ["<0xA5>", "a"], ["<0x97>", "<0xA5>", "a"])]
    for token in map(vocabulary.token, PIECES):
        certain = all(
            places(avoid, vocabulary.decode((*tokens, token, *tail)), whole_words, False) for tail in tails
        )
        assert (row.get(token) == -math.inf) == certain, vocabulary.piece(token)


@pytest.mark.parametrize("kind", ["regex", "wordlist", "grammar"])
def test_other_constraints_allow_no_broken_bytes(tmp_path: Path, kind: str) -> None:
    """So what they allow is the text that decode gives."""
    vocabulary, _ = made("llama")
    (tmp_path / "words").write_text("日日\n", encoding="utf-8")
    (tmp_path / "g.lark").write_text("start: /日+/\n", encoding="utf-8")
    pytest.importorskip("llguidance")
    options = {
        "regex": {"pattern": "日+", "cache": "none"}, "wordlist": {"path": str(tmp_path / "words"), "cache": "none"},
        "grammar": {"path": str(tmp_path / "g.lark")},
    }  # fmt: skip
    context = Context(vocabularies=Vocabularies(vocabulary, vocabulary), vocab_size=vocabulary.size)
    constraint = CONSTRAINTS[kind](**options[kind], context=context)
    day = in_bytes(vocabulary, "日")
    assert vocabulary.decode((*day, day[0])) == "\ufffd" * 4
    assert scores(constraint, (*day, *day, EOS)) == [0.0] * 7
    assert scores(constraint, (*day, day[0], EOS))[-1] == scores(constraint, (*day, day[1]))[-1] == -math.inf
