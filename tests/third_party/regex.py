"""``regex``: only outputs that a regular expression matches as a whole.

Literals, ``.``, ``[a-z]``, ``[^a-z]``, ``(a|b)``, ``*``, ``+``, ``?``, and ``\\`` before what is meant literally. The
state is what remains to be matched: the derivative of the expression (Brzozowski 1964). For vocabularies of pieces in
which U+2581 marks a space, as SentencePiece's are; the space before the first word does not count.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from typing import Annotated

from pydantic import Field

import sgdec
from sgdec import EOS, Context, Predictor, Scores, UsageError
from sgdec.protocol import Candidates, State

Regex = tuple  # ("none",), ("empty",), ("char", negated, characters), ("then", a, b), ("or", a, b), ("star", a)
NONE: Regex = ("none",)
EMPTY: Regex = ("empty",)
SPACE = "\N{LOWER ONE EIGHTH BLOCK}"


class RegexConstraint(Predictor):
    """0 for what the expression allows next; everything else is forbidden."""

    max_score = 0.0

    def __init__(
        self, pattern: Annotated[str, Field(description="what each output has to match")], context: Context
    ) -> None:
        """Raises UsageError without a target vocabulary, and for an expression that cannot be read."""
        vocabulary = context.vocabularies.target
        if vocabulary is None:
            raise UsageError("regex: matches text, and this run has no target vocabulary; give --tokenizer.")
        self._pieces = [(token, vocabulary.piece(token).replace(SPACE, " ")) for token in range(3, vocabulary.size)]
        expression, rest = alternatives(pattern)
        if rest:
            raise UsageError(f"regex: {pattern!r}: unexpected {rest[0]!r} {len(rest)} before the end.")
        self._start = then(either(char(" "), EMPTY), expression)
        self._allowed = lru_cache(4096)(self._follow)

    def initialize(self, source: sgdec.Source) -> None:
        self._left = self._start

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        tokens = sorted(self._allowed(self._left))
        return Scores.sparse(tokens, [0.0] * len(tokens))

    def consume(self, token: int) -> None:
        self._left = self._allowed(self._left)[token]

    def get_state(self) -> State:
        return self._left

    def set_state(self, state: State) -> None:
        self._left = state

    def state_key(self, states: list[State]) -> list[Hashable]:
        return list(states)

    def _follow(self, left: Regex) -> dict[int, Regex]:
        """What remains after each token that can follow."""
        after = {EOS: EMPTY} if nullable(left) else {}
        for token, piece in self._pieces:
            rest = left
            for letter in piece:
                rest = derivative(rest, letter)
            if rest != NONE and piece:
                after[token] = rest
        return after


def char(letters: str, negated: bool = False) -> Regex:
    return ("char", negated, frozenset(letters))


def then(a: Regex, b: Regex) -> Regex:
    if NONE in (a, b):
        return NONE
    return b if a == EMPTY else a if b == EMPTY else ("then", a, b)


def either(a: Regex, b: Regex) -> Regex:
    return b if a == NONE else a if b in (NONE, a) else ("or", a, b)


def nullable(r: Regex) -> bool:
    """Whether nothing at all matches."""
    match r[0]:
        case "empty" | "star":
            return True
        case "then":
            return nullable(r[1]) and nullable(r[2])
        case "or":
            return nullable(r[1]) or nullable(r[2])
    return False


@lru_cache(1 << 16)
def derivative(r: Regex, letter: str) -> Regex:
    """What has to follow after ``letter``."""
    match r[0]:
        case "char":
            return EMPTY if (letter in r[2]) != r[1] else NONE
        case "then":
            skipped = derivative(r[2], letter) if nullable(r[1]) else NONE
            return either(then(derivative(r[1], letter), r[2]), skipped)
        case "or":
            return either(derivative(r[1], letter), derivative(r[2], letter))
        case "star":
            return then(derivative(r[1], letter), r)
    return NONE


def alternatives(text: str) -> tuple[Regex, str]:
    """An expression at the beginning of ``text``, and what comes after it."""
    found, text = sequence(text)
    while text.startswith("|"):
        other, text = sequence(text[1:])
        found = either(found, other)
    return found, text


def sequence(text: str) -> tuple[Regex, str]:
    found = EMPTY
    while text and text[0] not in "|)":
        atom, text = one(text)
        while text and text[0] in "*+?":
            star = ("star", atom)
            atom = {"*": star, "+": then(atom, star), "?": either(atom, EMPTY)}[text[0]]
            text = text[1:]
        found = then(found, atom)
    return found, text


def one(text: str) -> tuple[Regex, str]:
    first, rest = text[0], text[1:]
    if first == "(":
        found, rest = alternatives(rest)
        if not rest.startswith(")"):
            raise UsageError("regex: an opening parenthesis is not closed.")
        return found, rest[1:]
    if first == "[":
        inside, closed, rest = rest.partition("]")
        if not closed:
            raise UsageError("regex: an opening bracket is not closed.")
        negated = inside.startswith("^")
        return char(ranges(inside[negated:]), negated), rest
    if first == ".":
        return char("", negated=True), rest
    if first in "*+?":
        raise UsageError(f"regex: nothing before {first!r} that could be repeated.")
    if first == "\\" and rest:
        return char(rest[0]), rest[1:]
    return char(first), rest


def ranges(inside: str) -> str:
    letters = ""
    while inside:
        if inside[1:2] == "-" and len(inside) > 2:
            letters += "".join(map(chr, range(ord(inside[0]), ord(inside[2]) + 1)))
            inside = inside[3:]
        else:
            letters, inside = letters + inside[0], inside[1:]
    return letters


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[Predictor]]:
    return {"regex": RegexConstraint}
