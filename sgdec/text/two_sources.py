"""Two sources per sentence: in text a line with a tab between them, in tokens one sequence with ``</s>`` between
them.

An example is a text and its machine translation. ``paste source.txt mt.txt`` makes such lines, and
`sgdec decode source.txt mt.txt` reads two files in the same way. Only the model separates the sources: all other code
sees one `Source`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property

from sgdec.context import EOS
from sgdec.errors import SgdecError
from sgdec.text.vocabulary import StoredVocabulary

TAB = "\t"


class TwoSources:
    """A `sgdec.context.Vocabulary` made from two: one for both sources, or one for each.

    If the two differ, they share no tokens: the numbers of the second source begin after those of the first
    vocabulary.

    >>> from sgdec.text.words import SPECIAL, WordVocabulary
    >>> english, german = (WordVocabulary([*SPECIAL, word]) for word in ("dog", "Hund"))
    >>> TwoSources(english, english).encode("dog dog\\tdog"), TwoSources(english, german).encode("dog\\tHund")
    ((3, 3, 2, 3), (3, 2, 7))
    """

    def __init__(self, first: StoredVocabulary, second: StoredVocabulary) -> None:
        self.first, self.second = first, second
        self.shared = first.fingerprint == second.fingerprint
        self._shift = 0 if self.shared else first.size

    @property
    def serialized(self) -> bytes:
        """The content of the file of the first vocabulary; the second vocabulary has its own file."""
        return self.first.serialized

    @property
    def size(self) -> int:
        return self._shift + self.second.size

    @cached_property
    def fingerprint(self) -> str:
        """Different from the fingerprint of either vocabulary."""
        both = f"two sources {self.first.fingerprint} {self.second.fingerprint}"
        return hashlib.sha256(both.encode()).hexdigest()

    def encode(self, text: str) -> tuple[int, ...]:
        """The tokens of a line. Raises SgdecError unless it has exactly one tab, with text on both sides."""
        sides = text.split(TAB)
        if len(sides) != 2:
            raise SgdecError(f"expected two sources with one tab between them; here are {len(sides)}.")
        first, second = self.first.encode(sides[0]), self.second.encode(sides[1])
        if not first or not second:
            raise SgdecError(f"the {'second' if first else 'first'} of two sources is empty.")
        return tuple(self.join(first, second))

    def encode_all(self, lines: Sequence[str]) -> list[list[int]]:
        """`encode` for many lines."""
        return [list(self.encode(line)) for line in lines]

    def join(self, first: Sequence[int], second: Sequence[int]) -> list[int]:
        """Join the tokens of each source into one sequence of this vocabulary."""
        return [*first, EOS, *(token + self._shift for token in second)]

    def second_of(self, tokens: Sequence[int]) -> list[int]:
        """The tokens of the second source, in its own vocabulary."""
        return [token - self._shift for token in list(tokens)[list(tokens).index(EOS) + 1 :]]

    def decode(self, tokens: Sequence[int]) -> str:
        """The line of these tokens; without ``</s>`` all of them belong to the first source."""
        tokens = list(tokens)
        if EOS not in tokens:
            return self.first.decode(tokens)
        first = self.first.decode(tokens[: tokens.index(EOS)])
        return TAB.join([first, self.second.decode(self.second_of(tokens))])

    def piece(self, token: int) -> str:
        """The string of one token; IndexError outside both vocabularies."""
        return self.first.piece(token) if token < self.first.size else self.second.piece(token - self._shift)

    def token(self, piece: str) -> int:
        """The token of one string, in the first vocabulary if both have it; 0 if there is none."""
        token = self.first.token(piece)
        if token == 0 and (second := self.second.token(piece)):
            return second + self._shift
        return token
