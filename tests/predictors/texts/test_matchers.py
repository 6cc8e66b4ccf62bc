"""The promise: of all token sequences, exactly those can be produced whose text is in the language of the grammar,
for every kind of vocabulary, and what is said of a prefix depends on nothing but its tokens."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sgdec_predictors.texts.grammars import DIRECTIVES, Grammar
from sgdec_predictors.texts.matchers import BYTES, FIRST_BYTE, Language, MatchedPrefix, Tokens

from sgdec.context import EOS
from sgdec.errors import SgdecError
from tests.helpers.spelled_vocabularies import FAMILIES_OF_MODELS, KINDS, spelled, vocabulary

pytest.importorskip("llguidance")

LONGEST = 4
"""Tokens in the longest sequences; fewer if there are many tokens."""


def balanced(text: str) -> bool:
    half = len(text) // 2
    return half > 0 and text == "a" * half + "b" * half


def matches(pattern: str) -> Callable[[str], bool]:
    return lambda text: re.fullmatch(pattern, text) is not None


GRAMMARS: dict[str, Callable[[str], bool]] = {
    'start: "a" start? "b"': balanced,
    "start: /a(b|é)*/": matches("a(b|é)*"),
    'start: word (" " word)*\nword: "a" | "ab" | "é" "b"?': matches("(a|ab|éb?)( (a|ab|éb?))*"),
    "start: /[^a]*/": matches("[^a]*"),
    'start: "ab"? " "? "b"?': matches("(ab)? ?b?"),
    'start: "é"': matches("é"),
    'start: ""': matches(""),
    "start: / .*/": matches(" .*"),
    "start: /(a|b).{1,3}/": matches("(a|b).{1,3}"),
}


@cache
def tokens_of(kind: str) -> Tokens:
    return Tokens(spelled(kind)[0], vocabulary(kind).size)


def language(kind: str, lark: str) -> Language:
    return Language(tokens_of(kind), Grammar(lark + DIRECTIVES, "g.lark", of_schema=False))


def allowed(prefix: MatchedPrefix) -> set[int]:
    mask = prefix.mask()
    if mask is None:
        return set()
    bits = int.from_bytes(mask[FIRST_BYTE:], "little")
    return {token for token in range(8 * (len(mask) - FIRST_BYTE)) if bits >> token & 1}


def sequences(tokens: Sequence[int]) -> Iterator[tuple[int, ...]]:
    longest = LONGEST if len(tokens) <= 6 else LONGEST - 1
    for length in range(longest + 1):
        yield from itertools.product(tokens, repeat=length)


@pytest.mark.slow
@pytest.mark.parametrize("lark", GRAMMARS)
@pytest.mark.parametrize(
    "kind", [*KINDS, *(pytest.param(family, marks=pytest.mark.slow) for family in FAMILIES_OF_MODELS)]
)
def test_exactly_the_sequences_whose_text_is_in_the_language_can_be_produced(kind: str, lark: str) -> None:
    spelling, tokens = spelled(kind)
    try:
        prefixes = {(): language(kind, lark).empty}
    except SgdecError as error:  # all texts begin with a blank, and the vocabulary's never do
        assert lark == "start: / .*/" and "spells no text" in str(error)
        prefixes = {}
    for sequence in sequences(tokens):
        text = spelling.text(sequence)
        try:
            expected = text is not None and GRAMMARS[lark](text.decode())
        except UnicodeDecodeError:
            expected = False
        if sequence and sequence not in prefixes:
            before = prefixes.get(sequence[:-1])
            if before is not None and sequence[-1] in allowed(before):
                prefixes[sequence] = before.then(sequence[-1])
        found = sequence in prefixes and EOS in allowed(prefixes[sequence])
        assert found == expected, (sequence, text)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_prefix_is_matched_alike_in_any_order_and_however_it_was_reached(kind: str) -> None:
    """Matchers are made when they are first needed, from whatever earlier matcher there is."""
    lark = 'start: word (" " word)*\nword: /[ab]{1,3}/ | "é"'
    tokens = spelled(kind)[1]
    draw = random.Random(1)
    for _ in range(20):
        sequence = draw.choices(tokens, k=5)
        eager, lazy = [language(kind, lark).empty], [language(kind, lark).empty]
        for token in sequence:
            eager[-1].mask()
            eager.append(eager[-1].then(token))
            lazy.append(lazy[-1].then(token))
        draw.shuffle(order := list(range(len(lazy))))
        for place in order:
            assert allowed(lazy[place]) == allowed(eager[place]), (sequence[:place], order)


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_without_text_cannot_follow_and_nothing_follows_them(kind: str) -> None:
    empty = language(kind, "start: /.*/").empty
    spelling, tokens = spelled(kind)
    assert not allowed(empty) & {0, 1}
    for token in (0, 1, EOS, spelling.size):
        after = empty.then(token)
        assert (after.mask(), after.then(tokens[0]).mask(), after.text) == (None, None, None)


Rules = dict[str, list[list[str]]]
SYMBOLS = ("start", "x", "y")


def texts(rules: Rules, longest: int) -> set[str]:
    """The language up to this length: the least fixed point of the rules."""
    found: dict[str, set[str]] = {name: set() for name in rules}
    while True:
        before = sum(map(len, found.values()))
        for name, bodies in rules.items():
            for body in bodies:
                parts = [found.get(symbol, {symbol}) for symbol in body]
                found[name] |= {text for text in map("".join, itertools.product(*parts)) if len(text) <= longest}
        if sum(map(len, found.values())) == before:
            return found["start"]


BODY = st.lists(st.sampled_from((*SYMBOLS[1:], "a", "b")), max_size=3)


@given(rules=st.fixed_dictionaries({name: st.lists(BODY, min_size=1, max_size=3) for name in SYMBOLS}))
def test_random_grammars_allow_what_their_rules_derive(rules: Rules) -> None:
    def body(symbols: list[str]) -> str:
        return " ".join(symbol if symbol in SYMBOLS else f'"{symbol}"' for symbol in symbols) or '""'

    lark = "\n".join(f"{name}: {' | '.join(map(body, bodies))}" for name, bodies in rules.items())
    expected = texts(rules, longest=5)
    try:
        empty = language("text as it is", lark).empty
    except SgdecError as error:
        assert "allows no text" in str(error) and not expected
        return
    letters = {letter: vocabulary("text as it is").token(letter) for letter in "ab"}
    level = [("", empty)]
    for _ in range(6):
        for text, prefix in level:
            assert (EOS in allowed(prefix)) == (text in expected), (lark, text)
        level = [
            (text + letter, prefix.then(token))
            for text, prefix in level
            for letter, token in letters.items()
            if token in allowed(prefix)
        ]


def test_the_longest_lexeme_counts() -> None:
    """The lexer of llguidance is greedy, as that of Lark: the page on constraints says so."""
    assert EOS not in allowed(walk(language("char", 'start: "a" "b" | "ab" "é"').empty, "ab"))
    assert EOS in allowed(walk(language("char", 'start: "a" "b" | "ab" "é"').empty, "abé"))


def walk(prefix: MatchedPrefix, text: str) -> MatchedPrefix:
    for token in vocabulary("char").encode(text)[1:]:  # without the blank before the first word
        prefix = prefix.then(token)
    return prefix


def test_tokens_that_llguidance_would_force_are_no_others() -> None:
    """Without ``no_forcing`` only its own segmentation of a forced text could follow, also if a grammar says so."""
    for directive in ("", '\n%llguidance {"no_forcing": false}'):
        empty = language("text as it is", f'start: "ab ba"{directive}').empty
        texts = {spelled("text as it is")[0].adds[0][token] for token in allowed(empty)}
        assert texts == {b"a", b"ab"}


def test_a_language_without_a_text_is_refused() -> None:
    with pytest.raises(SgdecError, match=r"^g.lark: allows no text"):
        language("char", "start: /[a&&b]/")


@pytest.mark.parametrize("effort", [1e-9, 0.001, 0.005])
def test_a_grammar_that_takes_too_much_work_says_where(effort: float) -> None:
    tokens = Tokens(spelled("char")[0], vocabulary("char").size, effort)
    lark = 'start: x*\nx: "a" | "a" x | "b" x x | x x'
    with pytest.raises(SgdecError, match=r"^g.lark: .*raise --grammar.effort\.$"):
        prefix = Language(tokens, Grammar(lark + DIRECTIVES, "g.lark", of_schema=False)).empty
        for _ in range(50):
            prefix.mask()
            prefix = prefix.then(vocabulary("char").token("a"))


def test_the_bits_of_tokens_begin_at_a_byte() -> None:
    assert FIRST_BYTE * 8 == BYTES


def test_a_long_chain_of_rules_does_not_end_the_process() -> None:
    """llguidance follows rules by recursion."""
    chain = "\n".join(f"r{n}: r{n + 1}" for n in range(5000))
    found = language("unigram", f'start: r0\n{chain}\nr5000: "a"')
    tokens = [token for token in allowed(found.empty) if spelled("unigram")[0].text((token,)) == b"a"]
    assert tokens and all(EOS in allowed(found.empty.then(token)) for token in tokens)
