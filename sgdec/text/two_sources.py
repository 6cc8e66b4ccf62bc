"""Two sources a sentence: in text a line with a tab between them, in tokens one sequence with ``</s>`` between them.

Such as the text to translate and its machine translation. ``paste source.txt mt.txt`` makes such lines, and `sgdec
decode source.txt mt.txt` reads them so. Only the model knows of it: two sources are one `Source`.
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
    """A `sgdec.context.Vocabulary` of two: one for both sources, or one each.

    Two that differ do not share tokens: those of the second source begin where the first vocabulary ends.

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
        """The file of the first; that of the second is `second`'s own."""
        return self.first.serialized

    @property
    def size(self) -> int:
        return self._shift + self.second.size

    @cached_property
    def fingerprint(self) -> str:
        """Other than that of either."""
        both = f"two sources {self.first.fingerprint} {self.second.fingerprint}"
        return hashlib.sha256(both.encode()).hexdigest()

    def encode(self, text: str) -> tuple[int, ...]:
        """The tokens of a line. Raises SgdecError if it has not one tab, with something on both sides."""
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
        """Tokens of each vocabulary as one sequence of this one."""
        return [*first, EOS, *(token + self._shift for token in second)]

    def second_of(self, tokens: Sequence[int]) -> list[int]:
        """The tokens of the second source, in its own vocabulary."""
        return [token - self._shift for token in list(tokens)[list(tokens).index(EOS) + 1 :]]

    def decode(self, tokens: Sequence[int]) -> str:
        """The line that these tokens spell; without ``</s>`` it is all of the first source."""
        tokens = list(tokens)
        if EOS not in tokens:
            return self.first.decode(tokens)
        first = self.first.decode(tokens[: tokens.index(EOS)])
        return TAB.join([first, self.second.decode(self.second_of(tokens))])

    def piece(self, token: int) -> str:
        """The string of one token; IndexError outside both vocabularies."""
        return self.first.piece(token) if token < self.first.size else self.second.piece(token - self._shift)

    def token(self, piece: str) -> int:
        """The token of one string, in the first vocabulary where both have it; 0 if there is none."""
        token = self.first.token(piece)
        if token == 0 and (second := self.second.token(piece)):
            return second + self._shift
        return token
