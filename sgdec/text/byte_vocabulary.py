"""The 256 bytes as a vocabulary: any text is its bytes in UTF-8, for predictors of the next byte."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property

from sgdec.context import UNK
from sgdec.text.words import BLANK, SPECIAL

FIRST = len(SPECIAL)
"""The token of byte 0."""
BYTES = 256


class ByteVocabulary:
    """A `sgdec.context.Vocabulary` of 259 tokens: token 3 + b is the byte b.

    >>> own = ByteVocabulary()
    >>> own.encode("né"), own.decode((113, 198)), own.piece(198)
    ((113, 198, 172), 'n\ufffd', '<0xC3>')
    """

    size = FIRST + BYTES
    unit = "bytes"
    """The unit of lengths, which the signature of a run names."""

    @cached_property
    def fingerprint(self) -> str:
        """The same for all vocabularies of bytes, and for no other."""
        return hashlib.sha256("\n".join(map(self.piece, range(self.size))).encode()).hexdigest()

    def encode(self, text: str) -> tuple[int, ...]:
        """The tokens of a text, without ``<s>`` and ``</s>``."""
        return tuple(FIRST + byte for byte in text.encode("utf-8", "surrogatepass"))

    def encode_all(self, lines: Sequence[str]) -> list[list[int]]:
        """`encode` for many lines."""
        return [list(self.encode(line)) for line in lines]

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of these tokens; U+FFFD for bytes that are not UTF-8. ``<unk>`` and marks add nothing."""
        spelled = bytes(token - FIRST for token in tokens if token >= FIRST)
        try:
            return spelled.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            return spelled.decode("utf-8", "replace")

    def piece(self, token: int) -> str:
        """The string of one token, such as ``<0x41>``; IndexError outside the vocabulary."""
        if not 0 <= token < self.size:
            raise IndexError(f"token {token} is outside the vocabulary 0..{self.size - 1}")
        return SPECIAL[token] if token < FIRST else f"<0x{token - FIRST:02X}>"

    def token(self, piece: str) -> int:
        """The token of one string; `UNK` if there is none."""
        return self._tokens.get(piece, UNK)

    def text_of(self, token: int) -> str | None:
        """The text of a token, ``▁`` for a blank; None for a token without text, such as a part of a character."""
        value = token - FIRST
        return None if not 0 <= value < 128 else BLANK if value == ord(" ") else chr(value)

    def bytes_of(self, token: int) -> bytes | None:
        """The byte of a token; None for ``<unk>`` and marks."""
        return None if token < FIRST else bytes([token - FIRST])

    def words_in(self, line: str) -> list[str]:
        """The words of a line, split at blanks."""
        return line.split()

    @cached_property
    def _tokens(self) -> dict[str, int]:
        return {self.piece(token): token for token in range(self.size)}
