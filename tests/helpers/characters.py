"""A vocabulary whose tokens are characters, so that it can spell any text of JSON or of a grammar."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from sgdec_predictors.texts.spelling import Spelling

from sgdec.context import Context, Vocabularies
from sgdec.text.words import SPECIAL


class Characters:
    """The special tokens, and printable ASCII with the blanks of JSON and a few others."""

    fingerprint = "characters"

    def __init__(self) -> None:
        self._pieces = [*SPECIAL, *map(chr, range(32, 127)), "\n", "é", "\u2028", "😀", "\t", "\r"]
        self.size = len(self._pieces)

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(map(self.token, text))

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(map(self.piece, tokens))

    def piece(self, token: int) -> str:
        return self._pieces[token]

    def token(self, piece: str) -> int:
        return self._pieces.index(piece, len(SPECIAL))

    @cached_property
    def spelling(self) -> Spelling:
        return Spelling.of(self)

    @property
    def context(self) -> Context:
        return Context(vocabularies=Vocabularies(target=self), vocab_size=self.size)


CHARACTERS = Characters()
