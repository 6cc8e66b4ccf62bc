"""Steps: a vocabulary for targets of monotone hard attention, whose last token moves the attention forward by one.

The steps between the tokens of a target give the source position of each token: ``a STEP b c STEP`` has ``a`` at the
first position, ``b`` and ``c`` at the second, and no token at the third. The positions of the steps come from an
alignment: the minimum edit distance between the tokens of both sides. A target token that equals or replaces a source
token is at the position of that token, an inserted token is at the current position of the attention, and the
attention steps over a deleted source token; the last steps go to the end of the source. A replacement costs 3, an
insertion or a deletion 2: a replacement is cheaper than a deletion and an insertion together. Among alignments of
equal cost the one with the earliest pairs is chosen: inserted and deleted tokens come after them. (Junczys-Dowmunt
and Grundkiewicz 2017 align the longest common subsequence, which does not align replaced tokens.) The method suits
sides that are nearly the same text; tokens are compared as strings, so each side may have its own vocabulary.

Text has no steps: `with_steps` inserts them into the tokens of a target, given its source, and decoding to text
removes them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property

from sgdec.context import Vocabulary
from sgdec.errors import SgdecError
from sgdec.text.two_sources import TwoSources
from sgdec.text.vocabulary import StoredVocabulary

STEP = "<step>"
CHANGE, GAP = 3, 2
"""The cost of replacing a token, and of inserting or deleting one."""


class Stepping:
    """A `sgdec.context.Vocabulary` with the pieces of another one, followed by the step.

    >>> from sgdec.text.words import SPECIAL, WordVocabulary
    >>> letters = WordVocabulary([*SPECIAL, "a", "b", "c"])
    >>> stepping = Stepping(letters)
    >>> stepping.with_steps(letters, letters.encode("a b b c"), letters.encode("a c c"))
    [3, 6, 5, 6, 6, 5]
    >>> stepping.decode([3, 6, 5, 6, 6, 5])
    'a c c'
    """

    def __init__(self, plain: StoredVocabulary) -> None:
        self.plain = plain
        self.step = plain.size
        self._seen: tuple[str, dict[int, int]] = "", {}
        """By fingerprint of a source vocabulary, the target tokens with the same strings as its tokens."""

    @property
    def serialized(self) -> bytes:
        """The content of the file of ``plain``; it does not include the step."""
        return self.plain.serialized

    @property
    def size(self) -> int:
        return self.plain.size + 1

    @cached_property
    def fingerprint(self) -> str:
        """Different from that of ``plain``, so that models with and without steps cannot decode together."""
        return hashlib.sha256(f"stepping {self.plain.fingerprint}".encode()).hexdigest()

    def encode(self, text: str) -> tuple[int, ...]:
        """Always raises SgdecError: without its source, the steps of a text are unknown."""
        raise SgdecError(
            "a target of monotone hard attention has steps, which its text does not tell without the source; "
            "`sgdec score` puts them in, and token ids can hold them."
        )

    def encode_all(self, lines: Sequence[str]) -> list[list[int]]:
        """The tokens of lines, without steps; `with_steps` inserts these."""
        return self.plain.encode_all(lines)

    def with_steps(self, vocabulary: Vocabulary, source: Sequence[int], target: Sequence[int]) -> list[int]:
        """A target's tokens with the steps of its alignment to the source. The source is not empty; its tokens are
        those of ``vocabulary``.

        With two sources the target is aligned to the second one.
        """
        if isinstance(vocabulary, TwoSources):
            source = vocabulary.second_of(source)
            vocabulary = vocabulary.second
        same = self._same(vocabulary, source)
        stepped, place = [], 0
        for token, at in zip(target, align(same, target), strict=True):
            stepped += [self.step] * max(0, at - place) + [token]
            place = max(at, place)
        return stepped + [self.step] * (len(source) - 1 - place)

    def decode(self, tokens: Sequence[int]) -> str:
        """The line of these tokens; steps have no text."""
        return self.plain.decode(self.without_steps(tokens))

    def without_steps(self, tokens: Sequence[int]) -> list[int]:
        """The tokens that are not steps."""
        return [token for token in tokens if token != self.step]

    def piece(self, token: int) -> str:
        """The string of one token; IndexError outside the vocabulary."""
        return STEP if token == self.step else self.plain.piece(token)

    def token(self, piece: str) -> int:
        """The token of one string; 0 if there is none."""
        return self.step if piece == STEP else self.plain.token(piece)

    def _same(self, vocabulary: Vocabulary, source: Sequence[int]) -> Sequence[int]:
        """For each source token the target token with the same string, or an invalid token."""
        if vocabulary.fingerprint == self.plain.fingerprint:
            return source
        if self._seen[0] != vocabulary.fingerprint:
            self._seen = vocabulary.fingerprint, {}
        known = self._seen[1]
        for token in source:
            if token not in known:
                known[token] = self.plain.token(vocabulary.piece(token)) or -1
        return [known[token] for token in source]


def align(source: Sequence[int], target: Sequence[int]) -> list[int]:
    """The source position of each target token; an inserted token has the position of the token before it.

    Positions never fall. Cost: |source| x |target|, not counting their common beginning.

    >>> align([5, 6, 7, 8], [5, 9, 8, 4])
    [0, 1, 3, 3]
    """
    shortest = min(len(source), len(target))
    equal = next((n for n in range(shortest) if source[n] != target[n]), shortest)
    others = _align(source[equal:], target[equal:])
    return [*range(equal), *(max(0, equal + place) for place in others)]


def _align(source: Sequence[int], target: Sequence[int]) -> list[int]:
    """The same by dynamic programming; -1 for tokens that are inserted before the first source token."""
    costs = [list(range(0, GAP * len(target) + 1, GAP))]
    """``[source + 1, target + 1]``: the lowest cost of turning a source prefix into a target prefix"""
    for i, token in enumerate(source):
        before, row = costs[-1], [GAP * (i + 1)]
        for j, wanted in enumerate(target):
            changed = before[j] if token == wanted else before[j] + CHANGE
            row.append(min(changed, before[j + 1] + GAP, row[j] + GAP))
        costs.append(row)
    i, j, places = len(source), len(target), [0] * len(target)
    while j:  # from the end; deletions and insertions first, so that pairs are early
        if i and costs[i][j] == costs[i - 1][j] + GAP:
            i -= 1
        elif costs[i][j] == costs[i][j - 1] + GAP:
            j -= 1
            places[j] = i - 1
        else:
            i, j = i - 1, j - 1
            places[j] = i
    return places
