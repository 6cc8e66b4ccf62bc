"""Finds phrases in a text that is read character by character.

A phrase is a set of patterns, its alternatives. The state holds the patterns that have begun: the suffixes of the
text that are beginnings of patterns, for which a node of an Aho-Corasick automaton stands (Aho and Corasick 1975).
They are kept as a set, and not as one node, because with whole words not all suffixes count.

Word characters are letters, digits, marks and underscores (Unicode UTS #18, annex C). With whole words, a pattern
that begins (ends) with one does not match directly after (before) another one. So a match at the end of the text is
not certain until the next character is known, or the end.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple, TypeAlias

from sgdec.constraints.characters import is_word

Begun: TypeAlias = tuple[tuple[int, int], ...]
"""Pairs of a pattern's number and the number of its characters that are matched, ascending."""


class Pattern(NamedTuple):
    """One text to find."""

    text: str
    """Folded."""
    phrase: int
    """The number of the wanted phrase of which it is an alternative; -1 = an avoided one."""
    begins_word: bool
    """Whether it must not follow a word character."""
    ends_word: bool
    """Whether it must not precede a word character."""
    offsets: tuple[int, ...]
    """The number of bytes before each character, and of all."""
    marks: tuple[int, ...]
    """The offsets at which the vocabulary's own tokens of this text end, ascending."""

    @classmethod
    def of(cls, text: str, phrase: int, whole_words: bool, marks: Sequence[int] = ()) -> Pattern:
        offsets = (0, *accumulate(len(char.encode()) for char in text))
        begins, ends = (whole_words and is_word(char) for char in (text[0], text[-1]))
        return cls(text, phrase, begins, ends, offsets, tuple(marks) or offsets[-1:])


class Reading(NamedTuple):
    """The state after a text: an immutable value."""

    rest: bytes
    """The bytes of a character that has not ended."""
    in_word: bool
    """Whether the last character is a word character."""
    wanted: Begun
    """Patterns of phrases that are not met. One of which all characters are matched awaits a boundary."""
    avoided: Begun
    met: int
    """The phrases that are met as a bit mask; in order, their number."""


START = Reading(b"", False, (), (), 0)


class Matcher:
    """The patterns of one sentence."""

    def __init__(self, patterns: Sequence[Pattern], ordered: bool) -> None:
        self.patterns = tuple(patterns)
        self.phrases = 1 + max((pattern.phrase for pattern in patterns), default=-1)
        self.ordered = ordered
        self._starts: dict[str, list[int]] = {}
        for number, pattern in enumerate(patterns):
            self._starts.setdefault(pattern.text[0], []).append(number)
        needed = [0] * self.phrases
        for pattern in patterns:
            if pattern.phrase >= 0:
                needed[pattern.phrase] = max(needed[pattern.phrase], len(pattern.marks))
        self._needed = tuple(needed)
        self.needed = sum(needed)
        """The most that `progress` can be."""

    def read(self, before: Reading, text: str) -> tuple[Reading, bool]:
        """The state after more characters, and whether an avoided phrase is complete."""
        _, in_word, wanted, avoided, met = before
        if not wanted and not avoided and self._starts.keys().isdisjoint(text):
            return (before._replace(in_word=is_word(text[-1])) if text else before), False
        wrong = False
        for char in text:
            word = is_word(char)
            if not word:
                wrong |= any(map(self._is_matched, avoided))
                wanted, met = self._confirmed(wanted, met)
            starts = [
                (number, 0)
                for number in self._starts.get(char, ())
                if not (in_word and self.patterns[number].begins_word)
            ]
            avoided, found = self._advanced((*avoided, *(s for s in starts if self._of(s).phrase < 0)), char)
            wrong |= bool(found)
            wanted, found = self._advanced((*wanted, *(s for s in starts if self.is_live(s[0], met))), char)
            for number in found:
                wanted, met = self._meet(number, wanted, met)
            in_word = word
        return Reading(b"", in_word, wanted, avoided, met), wrong

    def at_end(self, state: Reading) -> tuple[bool, bool]:
        """Whether all phrases are met if the text ends here, and whether an avoided one is complete."""
        _, met = self._confirmed(state.wanted, state.met)
        everything = met == (self.phrases if self.ordered else (1 << self.phrases) - 1)
        return everything, any(map(self._is_matched, state.avoided))

    def is_live(self, number: int, met: int) -> bool:
        """Whether a pattern belongs to a phrase that is still to be met; in order, the next one."""
        phrase = self.patterns[number].phrase
        return phrase == met if self.ordered else phrase >= 0 and not met >> phrase & 1

    def progress(self, state: Reading) -> int:
        """The number of the vocabulary's own tokens of the phrases that are in the text.

        A phrase that has begun counts with those of its tokens that are complete, a phrase that is met or awaits a
        boundary with those of its longest alternative.
        """
        met = range(state.met) if self.ordered else [i for i in range(self.phrases) if state.met >> i & 1]
        done = sum(self._needed[phrase] for phrase in met)
        begun: dict[int, int] = {}
        for number, size, offset in self._reached(state):
            pattern = self.patterns[number]
            whole = size == len(pattern.text)
            tokens = self._needed[pattern.phrase] if whole else bisect_right(pattern.marks, offset)
            begun[pattern.phrase] = max(begun.get(pattern.phrase, 0), tokens)
        return done + sum(begun.values())

    def left(self, state: Reading) -> list[bytes]:
        """The texts that would complete wanted patterns.

        These are the rests of those that have begun, and whole ones, with and without a blank before them.
        """
        continued = {(number, offset) for number, _, offset in self._reached(state)}
        _, met = self._confirmed(state.wanted, state.met)
        beginning = [
            pattern for number, pattern in enumerate(self.patterns)
            if self.is_live(number, met) or self.is_live(number, state.met)
        ]  # fmt: skip
        texts = [self.patterns[number].text.encode()[offset:] for number, offset in continued]
        texts += [pattern.text.encode() for pattern in beginning]
        texts += [b" " + pattern.text.encode() for pattern in beginning]
        return list(filter(None, dict.fromkeys(texts)))

    def _reached(self, state: Reading) -> Iterable[tuple[int, int, int]]:
        """For each pattern that has begun its number, its matched characters, and its matched bytes."""
        begun = state.wanted
        if state.rest:
            starts = [
                (number, 0) for number, pattern in enumerate(self.patterns)
                if self.is_live(number, state.met) and not (state.in_word and pattern.begins_word)
            ]  # fmt: skip
            begun = (*begun, *starts)
        for number, size in begun:
            pattern = self.patterns[number]
            following = pattern.text[size : size + 1].encode()
            if not state.rest or not following:
                yield number, size, pattern.offsets[size]
            elif following.startswith(state.rest):
                yield number, size, pattern.offsets[size] + len(state.rest)

    def _of(self, begun: tuple[int, int]) -> Pattern:
        return self.patterns[begun[0]]

    def _is_matched(self, begun: tuple[int, int]) -> bool:
        return begun[1] == len(self._of(begun).text)

    def _advanced(self, begun: Begun, char: str) -> tuple[Begun, list[int]]:
        """The patterns that continue with this character, and the numbers of those that it completes."""
        continued: set[tuple[int, int]] = set()
        found = []
        for number, size in begun:
            pattern = self.patterns[number]
            if pattern.text[size : size + 1] == char:
                if size + 1 == len(pattern.text) and not pattern.ends_word:
                    found.append(number)
                else:
                    continued.add((number, size + 1))
        return tuple(sorted(continued)), found

    def _confirmed(self, wanted: Begun, met: int) -> tuple[Begun, int]:
        """After a boundary: patterns that awaited it are met."""
        for each in wanted:
            if self._is_matched(each):
                wanted, met = self._meet(each[0], wanted, met)
        return wanted, met

    def _meet(self, number: int, wanted: Begun, met: int) -> tuple[Begun, int]:
        phrase = self.patterns[number].phrase
        if self.ordered:
            return ((), met + 1) if phrase == met else (wanted, met)
        left = tuple(each for each in wanted if self._of(each).phrase != phrase)
        return left, met | 1 << phrase
