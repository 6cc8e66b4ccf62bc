"""Vocabularies of every kind that spells texts of the letters a and b, with the few tokens that tests search over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from sgdec_predictors.texts.spelling import Spelling

from sgdec.context import EOS, Context, Vocabularies, Vocabulary
from sgdec.text.words import SPECIAL, MixedVocabulary, WordVocabulary
from tests.helpers.vocabularies import pretrained, trained

TEXT = ["a b ab ba", "aab abb é", "ab ab aab b a", "ba bab é a"] * 5
LETTERS = frozenset("ab é")


def _trained(**options: Any) -> Vocabulary:
    return trained(TEXT, **{"vocab_size": 16, **options})


KINDS: dict[str, Callable[[], Vocabulary]] = {
    "unigram": _trained,
    "bpe": lambda: _trained(model_type="bpe", vocab_size=14),
    "char": lambda: _trained(model_type="char"),
    "bytes": lambda: _trained(vocab_size=275, byte_fallback=True),
    "text as it is": lambda: _trained(add_dummy_prefix=False, remove_extra_whitespaces=False),
    "all blanks": lambda: _trained(remove_extra_whitespaces=False),
    "word": lambda: WordVocabulary([*SPECIAL, "a", "b", "ab", "é"]),
    "mixed": lambda: MixedVocabulary.train(TEXT, 810),
}
FAMILIES_OF_MODELS = ("gpt2", "marian", "llama")
"""These need transformers."""


@cache
def vocabulary(kind: str) -> Vocabulary:
    return pretrained(kind) if kind in FAMILIES_OF_MODELS else KINDS[kind]()


@cache
def spelling(kind: str) -> Spelling:
    return Spelling.of(vocabulary(kind))


@cache
def letters(kind: str) -> Sequence[int]:
    """The tokens that spell nothing but `LETTERS`, or a byte of é."""
    pieces = zip(*spelling(kind).adds, strict=True)
    return [
        token
        for token, adds in enumerate(pieces)
        if token > EOS and any(adds) and all(piece is None or _of_letters(piece) for piece in adds)
    ]


@cache
def spelled(kind: str) -> tuple[Spelling, Sequence[int]]:
    """The spelling, and up to 12 `letters` that are spelled differently."""
    adds = spelling(kind).adds
    different = {tuple(pieces[token] for pieces in adds): token for token in reversed(letters(kind))}
    return spelling(kind), sorted(different.values())[:12]


def _of_letters(piece: bytes) -> bool:
    return piece.lstrip() in ("é".encode()[:1], "é".encode()[1:]) or set(piece.decode(errors="replace")) <= LETTERS


def context_of(kind: str) -> Context:
    found = vocabulary(kind)
    return Context(vocabularies=Vocabularies(target=found), vocab_size=found.size)
