"""The texts of all tokens of a vocabulary, for quick answers to: which tokens are, begin with or contain this text?

A token's text depends on the state of the spelling before it (`sgdec_predictors.texts.spelling`). The texts of each
state are sorted, so those that begin with a text are a range, and joined into one string, in which C code finds a
text.
"""

from __future__ import annotations

from bisect import bisect_left
from codecs import utf_8_decode
from collections.abc import Callable, Iterator
from functools import cached_property

import numpy as np

from sgdec.arrays import Ints
from sgdec_predictors.texts.spelling import Spelling

BETWEEN = "\ufdd0"
"""Separates joined texts: no character, so no text has it."""
LAST = "\U0010ffff"


class TokenTexts:
    """The texts of all tokens in one state of the spelling, without parts of characters at their ends."""

    def __init__(self, spelling: Spelling, state: int, fold: Callable[[str], str]) -> None:
        """``fold``: maps each character to the one that it is compared as."""
        pieces = [(token, piece) for token, piece in enumerate(spelling.adds[state]) if piece is not None]
        texts = [fold(utf_8_decode(piece, "replace", False)[0]) for _, piece in pieces]
        order = sorted(range(len(texts)), key=texts.__getitem__)
        self._texts = [texts[place] for place in order]
        self._tokens = np.array([pieces[place][0] for place in order], np.int64)
        self._exact: dict[bytes, list[int]] = {}
        for (token, piece), text in zip(pieces, texts, strict=True):
            whole = utf_8_decode(piece, "replace", False)[1] == len(piece) and "\ufffd" not in text
            self._exact.setdefault(text.encode() if whole else piece, []).append(token)
        self.continuing: Ints = np.array([token for token, piece in pieces if piece[:1] and 0x80 <= piece[0] < 0xC0])
        """The tokens that can continue a character."""
        self.longest = max((len(piece) for _, piece in pieces), default=0)
        """The number of bytes of the longest piece."""

    def equal(self, text: bytes) -> list[int]:
        """The tokens that are these bytes."""
        return self._exact.get(text, [])

    def beginning(self, text: str) -> Iterator[tuple[int, str]]:
        """The tokens that begin with a text, and what follows it."""
        first, last = bisect_left(self._texts, text), bisect_left(self._texts, text + LAST)
        size = len(text)
        for token, found in zip(self._tokens[first:last].tolist(), self._texts[first:last], strict=True):
            yield token, found[size:]

    def containing(self, text: str) -> Iterator[tuple[int, str, str]]:
        """The tokens that contain a text, with what is before and after it; for each of its places in a token."""
        at = self._joined.find(text)
        while at >= 0:
            place = int(self._starts.searchsorted(at, "right")) - 1
            found, begin = self._texts[place], at - int(self._starts[place])
            yield int(self._tokens[place]), found[:begin], found[begin + len(text) :]
            at = self._joined.find(text, at + 1)

    def starting_as(self, allowed: Callable[[str], bool]) -> Ints:
        """The tokens whose first character is like this."""
        return self._tokens[[bool(text) and allowed(text[0]) for text in self._texts]]

    @cached_property
    def _joined(self) -> str:
        return BETWEEN.join(self._texts)

    @cached_property
    def _starts(self) -> Ints:
        """The place of each text in the joined one."""
        lengths = np.array([len(text) + 1 for text in self._texts], np.int64)
        starts: Ints = np.cumsum(lengths) - lengths
        return starts
