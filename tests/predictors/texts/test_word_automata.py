"""Automata of lists of words, and the characters that words are made of."""

from __future__ import annotations

import re
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sgdec_predictors.texts.characters import fold, is_word
from sgdec_predictors.texts.word_automata import ByteTrie, character_classes, word_automaton

from sgdec.errors import SgdecError

pytest.importorskip("outlines_core")


def test_the_automata_of_characters_know_what_a_word_character_is() -> None:
    """Characters that Python's Unicode tables do not have yet are left out; most others are drawn."""
    word, other = character_classes()
    drawn = [*range(0x3000), *range(0x3000, sys.maxunicode + 1, 37)]
    for code in drawn:
        char = chr(code)
        if unicodedata.category(char) not in ("Cn", "Cs"):
            assert (word.accepts(char.encode()), other.accepts(char.encode())) == (is_word(char), not is_word(char))


WORDS = st.text("abAéß_", min_size=1, max_size=3)


TEXTS = st.lists(st.text("abAé_ .'ß-", max_size=9), min_size=5)


@pytest.mark.slow
@given(st.lists(WORDS, max_size=6), TEXTS, st.booleans(), st.booleans())
def test_texts_are_allowed_by_their_words(words: list[str], texts: list[str], only: bool, ignore_case: bool) -> None:
    automaton = word_automaton(words, only=only, ignore_case=ignore_case)
    change = fold if ignore_case else str
    listed = set(map(change, words))
    for text in ["", *words, *texts]:
        found = set(map(change, re.findall(r"\w+", text)))
        assert automaton.accepts(text.encode()) == (found <= listed if only else not found & listed)


@pytest.mark.parametrize("entry", ["", "don't", "a b", " a", "-"])
def test_an_entry_is_one_word(entry: str) -> None:
    with pytest.raises(SgdecError, match="is not one word"):
        word_automaton([entry], only=True)


@pytest.mark.parametrize("ignore_case", [False, True])
def test_words_share_their_last_bytes(ignore_case: bool) -> None:
    """Otherwise a table would have a row of 256 numbers for each beginning of a word."""
    endings = ["ed", "ing", "é", "és"]
    words = [f"{first}{second}{ending}" for first in "abcdefgh" for second in "xyz" for ending in ("", *endings)]
    trie = ByteTrie()
    for word in words:
        trie.add(word, lambda char: (char.upper(), char) if ignore_case else (char,))
    merged = trie.merged()
    assert len(trie.children) > 200 and len(merged.children) < 15
    for text in (*words, "ax", "axe", "axesed", "xed", "AXÉS", ""):
        assert (ends_at(merged, text) in merged.ends) == (ends_at(trie, text) in trie.ends)


def ends_at(trie: ByteTrie, text: str) -> int | None:
    node: int | None = 0
    for byte in text.encode():
        node = None if node is None else trie.children[node].get(byte)
    return node


def test_lists_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["abc", "bcd", "cde"]
    monkeypatch.setattr("sgdec_predictors.texts.word_automata.NODES", 9)
    with pytest.raises(SgdecError, match="take more than 9 nodes of a prefix tree"):
        word_automaton(words, only=True)
    word_automaton(words[:2], only=True)
    for most in (6, 20):  # fewer than the nodes of the trie, and than the states that are made of them
        monkeypatch.setattr("sgdec_predictors.texts.word_automata.STATES", most)
        with pytest.raises(SgdecError, match="the words need more than"):
            word_automaton(words[:2], only=False)
