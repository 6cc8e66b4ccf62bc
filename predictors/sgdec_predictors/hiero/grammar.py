"""Synchronous grammars (Chiang 2007): one rule per line, ``LHS SOURCE TARGET SCORE...``, as in SGNMT and HiFST.

The two sides are symbols joined by ``_``: token ids (``<oov>`` is 0), and non-terminals, a name of letters and a
number that links the two sides: ``X 10_X1_12 X1_29 -0.5``. An empty side is ``<dr>``. Lines that begin with ``#``
are comments.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from sgdec.context import UNK
from sgdec.errors import SgdecError, counted
from sgdec.files import read_lines, real_number, whole_number

EXPECTED = "Expected LHS SOURCE TARGET SCORE..., such as X 10_X1 X1_29 -0.5."
_NONTERMINAL = re.compile(r"([^0-9]+)([0-9]+)")


class Gap(NamedTuple):
    """A non-terminal on a right-hand side."""

    name: str
    number: int
    """The number of the gap, counted along the source side."""


Symbol: TypeAlias = int | Gap


class Rule(NamedTuple):
    """``name -> source, target``."""

    name: str
    source: tuple[Symbol, ...]
    target: tuple[Symbol, ...]
    """The same gaps, in any order."""
    score: float


def read_rules(path: str | Path, weights: Sequence[float] | None = None, vocab_size: int | None = None) -> list[Rule]:
    """The rules of a file; a rule's score is the sum of its scores, or of their products with ``weights``.

    Raises SgdecError naming the line; target tokens have to be less than ``vocab_size``.
    """
    rules = []
    for number, line in enumerate(read_lines(path), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            try:
                rules.append(_rule(line.split(), weights, vocab_size))
            except SgdecError as error:
                raise SgdecError(f"{path}: line {number}: {error}") from None
    return rules


def _rule(words: Sequence[str], weights: Sequence[float] | None, vocab_size: int | None) -> Rule:
    if len(words) < 4:
        raise SgdecError(f"{counted(len(words), 'column')}. {EXPECTED}")
    name, source_side, target_side, *columns = words
    gaps: dict[str, Gap] = {}
    source = tuple(_source_symbol(word, gaps) for word in _split(source_side))
    if not source:
        raise SgdecError("the source side is empty, so that any derivation could use this rule for ever. Remove it.")
    named = _split(target_side)
    target = tuple(gaps[word] if word in gaps else _token(word) for word in named)
    if sorted(word for word in named if word in gaps) != sorted(gaps):
        raise SgdecError(f"{target_side} must have each non-terminal of {source_side} once.")
    tokens = [symbol for symbol in target if isinstance(symbol, int)]
    if vocab_size is not None and max(tokens, default=0) >= vocab_size:
        raise SgdecError(f"token {max(tokens)} is outside the target vocabulary of {vocab_size} tokens.")
    return Rule(name, source, target, _score(columns, weights))


def _split(side: str) -> list[str]:
    return [] if side == "<dr>" else side.split("_")


def _source_symbol(word: str, gaps: dict[str, Gap]) -> Symbol:
    linked = _NONTERMINAL.fullmatch(word)
    if not linked or word == "<oov>":
        return _token(word)
    if word in gaps:
        raise SgdecError(f"{word} is twice on the source side. Number the non-terminals: X1, X2.")
    gaps[word] = Gap(linked[1], len(gaps))
    return gaps[word]


def _token(word: str) -> int:
    if word == "<oov>":
        return UNK
    token = whole_number(word)
    if token is None:
        raise SgdecError(f"{word!r} is neither a token id nor a non-terminal of the source side. {EXPECTED}")
    return token


def _score(columns: Sequence[str], weights: Sequence[float] | None) -> float:
    scores = [score for score in map(real_number, columns) if score is not None]
    if len(scores) < len(columns):
        raise SgdecError(f"a score is not a number: {' '.join(columns)}. {EXPECTED}")
    if not all(map(math.isfinite, scores)):
        raise SgdecError(f"a score is not finite: {' '.join(columns)}. Leave a rule out to forbid it.")
    if weights is not None and len(weights) != len(scores):
        found = f"{counted(len(scores), 'score')}, but {counted(len(weights), 'weight')}"
        raise SgdecError(f"{found}. Expected one weight a column.")
    return math.fsum(scores) if weights is None else math.fsum(w * s for w, s in zip(weights, scores, strict=True))
