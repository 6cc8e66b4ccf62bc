"""Steps: a vocabulary for targets of monotone hard attention, whose last token moves the attention on by one.

A target with steps says, between its tokens, which source position each is about: ``a STEP b c STEP`` is an ``a`` at
the first position, ``b`` and ``c`` at the second, and nothing at the third. Where the steps stand is learnt from an
alignment: the least edit distance between the tokens of both sides. A target token that equals or replaces a source
token is at its position, an inserted one where the attention is, and a deleted source token is stepped over; the last
steps go to the end of the source. To replace costs 3, to insert or to delete 2: a replacement is cheaper than both,
but not than a token that is kept. Among alignments of equal cost the one with the earliest pairs is taken:
inserted and deleted tokens come after them. (Junczys-Dowmunt and Grundkiewicz 2017 align the longest common
subsequence, which leaves out what was replaced.) It fits sides that are nearly the same text; tokens are compared as
strings, so each side may have its own vocabulary.

Text has no steps: they are put in where a target meets its source (`with_steps`), and left out where tokens become
text.
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
    """A `sgdec.context.Vocabulary` with the pieces of another, and the step behind them.

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
        """The fingerprint of a source vocabulary, and the target tokens of the same strings."""

    @property
    def serialized(self) -> bytes:
        """The file is that of ``plain``; its readers must know of the step."""
        return self.plain.serialized

    @property
    def size(self) -> int:
        return self.plain.size + 1

    @cached_property
    def fingerprint(self) -> str:
        """Other than that of ``plain``, so that models with and without steps are never asked about one prefix."""
        return hashlib.sha256(f"stepping {self.plain.fingerprint}".encode()).hexdigest()

    def encode(self, text: str) -> tuple[int, ...]:
        """Raises SgdecError: without its source, where the steps of a text are is not known."""
        raise SgdecError(
            "a target of monotone hard attention has steps, which its text does not tell without the source; "
            "`sgdec score` puts them in, and token ids can hold them."
        )

    def encode_all(self, lines: Sequence[str]) -> list[list[int]]:
        """The tokens of lines, without steps: `with_steps` puts them in."""
        return self.plain.encode_all(lines)

    def with_steps(self, vocabulary: Vocabulary, source: Sequence[int], target: Sequence[int]) -> list[int]:
        """A target's tokens, with the steps of the alignment to its source, tokens of ``vocabulary``; not empty.

        With two sources it is aligned to the second.
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
        """The line that these tokens spell; steps spell nothing."""
        return self.plain.decode(self.without_steps(tokens))

    def without_steps(self, tokens: Sequence[int]) -> list[int]:
        """The tokens that spell something."""
        return [token for token in tokens if token != self.step]

    def piece(self, token: int) -> str:
        """The string of one token; IndexError outside the vocabulary."""
        return STEP if token == self.step else self.plain.piece(token)

    def token(self, piece: str) -> int:
        """The token of one string; 0 if there is none."""
        return self.step if piece == STEP else self.plain.token(piece)

    def _same(self, vocabulary: Vocabulary, source: Sequence[int]) -> Sequence[int]:
        """For each source token the target token of the same string, or an invalid one."""
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
    """For each target token the source position that it is about, or, of an inserted one, that of the one before.

    Positions never fall. Cost: |source| x |target|, without what is equal at the beginning of both.

    >>> align([5, 6, 7, 8], [5, 9, 8, 4])
    [0, 1, 3, 3]
    """
    shortest = min(len(source), len(target))
    equal = next((n for n in range(shortest) if source[n] != target[n]), shortest)
    others = _align(source[equal:], target[equal:])
    return [*range(equal), *(max(0, equal + place) for place in others)]


def _align(source: Sequence[int], target: Sequence[int]) -> list[int]:
    """The same by dynamic programming; -1 for what is inserted before the first."""
    costs = [list(range(0, GAP * len(target) + 1, GAP))]
    """[source + 1, target + 1] of the cheapest way from a beginning of the source to one of the target"""
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
