"""Characters of words, and their case, as constraints on words understand them."""

from __future__ import annotations

import unicodedata
from functools import lru_cache

WORD = r"[\p{L}\p{N}\p{M}_]"
"""`is_word` as a regular expression."""


@lru_cache(1 << 16)
def is_word(char: str) -> bool:
    """Whether a character is part of words: a letter, a number, a mark, or ``_``.

    >>> list(map(is_word, "aé1_ -'"))
    [True, True, True, True, False, False, False]
    """
    return char.isalnum() or char == "_" or unicodedata.category(char)[0] == "M"


def fold(text: str) -> str:
    """The text without case, with as many characters.

    >>> fold("Straße"), fold("ΣΊΣΥΦΟΣ") == fold("σίσυφος")
    ('straße', True)
    """
    return "".join(map(_folded, text))


@lru_cache(1 << 16)
def _folded(char: str) -> str:
    return next((other for other in (char.casefold(), char.lower()) if len(other) == 1), char)
