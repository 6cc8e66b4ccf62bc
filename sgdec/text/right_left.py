"""Right to left: a vocabulary that reverses the tokens of each line, so that a model learns to predict lines
backwards.

Tokens are reversed when text is encoded, and again when tokens are decoded; no other code depends on the direction. A
model that was trained in this way can rescore the outputs of left-to-right models (`sgdec score`), as in Marian's
recipe (Junczys-Dowmunt et al. 2018, section 3.1.3).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property

from sgdec.context import Vocabulary
from sgdec.text.vocabulary import StoredVocabulary


class RightToLeft:
    """A `sgdec.context.Vocabulary` with the pieces of another, and the tokens of each line in reverse.

    >>> from sgdec.text.words import SPECIAL, WordVocabulary
    >>> backwards = RightToLeft(WordVocabulary([*SPECIAL, "ein", "Hund"]))
    >>> backwards.encode("ein Hund"), backwards.decode((4, 3))
    ((4, 3), 'ein Hund')
    """

    def __init__(self, forwards: StoredVocabulary) -> None:
        self.forwards = forwards

    @property
    def serialized(self) -> bytes:
        """The content of the file of ``forwards``; it does not include the direction."""
        return self.forwards.serialized

    @property
    def size(self) -> int:
        return self.forwards.size

    @cached_property
    def fingerprint(self) -> str:
        """Different from that of ``forwards``, so that models of both directions cannot decode together."""
        return hashlib.sha256(f"right to left {self.forwards.fingerprint}".encode()).hexdigest()

    def encode(self, text: str) -> tuple[int, ...]:
        """The tokens of a line, the last one first."""
        return self.forwards.encode(text)[::-1]

    def encode_all(self, lines: Sequence[str]) -> list[list[int]]:
        """`encode` for many lines."""
        return [tokens[::-1] for tokens in self.forwards.encode_all(lines)]

    def decode(self, tokens: Sequence[int]) -> str:
        """The line of these reversed tokens."""
        return self.forwards.decode(list(tokens)[::-1])

    def piece(self, token: int) -> str:
        """The string of one token; IndexError outside the vocabulary."""
        return self.forwards.piece(token)

    def token(self, piece: str) -> int:
        """The token of one string; 0 if there is none."""
        return self.forwards.token(piece)


def pieces_of(vocabulary: Vocabulary) -> Vocabulary:
    """The vocabulary without its direction: equal pieces under equal numbers can share embeddings."""
    return vocabulary.forwards if isinstance(vocabulary, RightToLeft) else vocabulary
