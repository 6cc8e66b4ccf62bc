"""Finds phrases in a text that is read character by character.

A phrase is a set of patterns, its alternatives. The state holds the patterns that have begun, as a node: the longest
beginning of one with which the text ends (`sgdec_predictors.texts.phrase_prefixes`).

Word characters are letters, digits, marks and underscores (Unicode UTS #18, annex C). With whole words, a pattern
that begins (ends) with one does not match directly after (before) another one. So a match at the end of the text is
not certain until the next character is known, or the end.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import accumulate
from typing import NamedTuple

from sgdec_predictors.texts.characters import is_word
from sgdec_predictors.texts.phrase_prefixes import PhrasePrefixes


class Pattern(NamedTuple):
    """One text to find."""

    text: str
    """Folded."""
    data: bytes
    """The text in UTF-8."""
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
        return cls(text, text.encode(), phrase, begins, ends, offsets, tuple(marks) or offsets[-1:])


class PhraseRun(NamedTuple):
    """Tokens of single bytes that are decoded together, see `PretrainedVocabulary.byte_runs`."""

    broken: Reading | None
    """The state if they are not UTF-8; None = they are not, and the state is this one."""
    wrong: bool
    """Whether they complete an avoided phrase if they end here, and are UTF-8."""
    broken_wrong: bool
    """The same if they are not."""


class Reading(NamedTuple):
    """The state after a text: an immutable value."""

    rest: bytes
    """The bytes of a character that has not ended."""
    in_word: bool
    """Whether the last character is a word character."""
    wanted: int
    """The node of patterns of phrases that are not met. One of which all characters are matched awaits a boundary."""
    avoided: int
    """The node of the avoided patterns."""
    met: int
    """The phrases that are met as a bit mask; in order, their number."""
    run: PhraseRun | None = None
    """The bytes that have not ended; the fields above count them as UTF-8 as long as they can be."""


START = Reading(b"", False, 0, 0, 0)


class Matcher:
    """The patterns of one sentence."""

    def __init__(self, patterns: Sequence[Pattern], ordered: bool) -> None:
        self.patterns = tuple(patterns)
        self.phrases = 1 + max((pattern.phrase for pattern in patterns), default=-1)
        self.ordered = ordered
        self._starts = {pattern.text[0] for pattern in patterns}
        phrases: list[list[int]] = [[] for _ in range(self.phrases)]
        for number, pattern in enumerate(patterns):
            if pattern.phrase >= 0:
                phrases[pattern.phrase].append(number)
        self._avoided = Nodes(patterns, [number for number, pattern in enumerate(patterns) if pattern.phrase < 0])
        if ordered:  # only those of the next phrase can begin
            self._wanted = [Nodes(patterns, numbers) for numbers in [*phrases, []]]
        else:
            self._wanted = [Nodes(patterns, [number for numbers in phrases for number in numbers])]
        self._phrases_of = cache(self._find_phrases_of)
        self._needed = tuple(max((len(patterns[n].marks) for n in numbers), default=0) for numbers in phrases)
        self.needed = sum(self._needed)
        """The most that `progress` can be."""

    def read(self, before: Reading, text: str) -> tuple[Reading, bool]:
        """The state after more characters, and whether an avoided phrase is complete."""
        _, in_word, wanted, avoided, met, _ = before
        if not wanted and not avoided and self._starts.isdisjoint(text):
            return (before._replace(in_word=is_word(text[-1])) if text else before), False
        wrong = False
        for char in text:
            word = is_word(char)
            if not word:
                wrong |= self._avoided.awaits(avoided)
                wanted, met = self._confirmed(wanted, met)
            avoided = self._avoided.tree.after(avoided, char, in_word)
            wrong |= any(not self.patterns[number].ends_word for number in self._avoided.complete(avoided))
            wanted = self._nodes(met).tree.after(wanted, char, in_word)
            for number in list(self._nodes(met).complete(wanted)):
                if not self.patterns[number].ends_word:
                    wanted, met = self._meet(number, wanted, met)
            wanted = self._live(wanted, met)
            in_word = word
        return Reading(b"", in_word, wanted, avoided, met), wrong

    def at_end(self, state: Reading) -> tuple[bool, bool]:
        """Whether all phrases are met if the text ends here, and whether an avoided one is complete."""
        _, met = self._confirmed(state.wanted, state.met)
        everything = met == (self.phrases if self.ordered else (1 << self.phrases) - 1)
        return everything, self._avoided.awaits(state.avoided)

    def avoided_begun(self, state: Reading) -> Iterator[tuple[int, int]]:
        """The avoided patterns that have begun: the number of each, and its matched characters."""
        return self._avoided.begun(state.avoided)

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

    def left(self, state: Reading, most: int) -> list[bytes]:
        """The texts that would complete wanted patterns, or their first ``most`` bytes.

        These are the rests of those that have begun, and whole ones, with and without a blank before them.
        """
        continued = {(number, offset) for number, _, offset in self._reached(state)}
        _, met = self._confirmed(state.wanted, state.met)
        beginning = [
            pattern for number, pattern in enumerate(self.patterns)
            if self.is_live(number, met) or self.is_live(number, state.met)
        ]  # fmt: skip
        texts = [self.patterns[number].data[offset : offset + most] for number, offset in continued]
        texts += [pattern.data[:most] for pattern in beginning]
        texts += [b" " + pattern.data[: most - 1] for pattern in beginning]
        return list(filter(None, dict.fromkeys(texts)))

    def _reached(self, state: Reading) -> Iterable[tuple[int, int, int]]:
        """For each pattern that has begun its number, its matched characters, and its matched bytes."""
        begun = [each for each in self._nodes(state.met).begun(state.wanted) if self.is_live(each[0], state.met)]
        if state.rest:
            starts = [
                (number, 0) for number, pattern in enumerate(self.patterns)
                if self.is_live(number, state.met) and not (state.in_word and pattern.begins_word)
            ]  # fmt: skip
            begun += starts
        for number, size in begun:
            pattern = self.patterns[number]
            following = pattern.text[size : size + 1].encode()
            if not state.rest or not following:
                yield number, size, pattern.offsets[size]
            elif following.startswith(state.rest):
                yield number, size, pattern.offsets[size] + len(state.rest)

    def _nodes(self, met: int) -> Nodes:
        """The wanted patterns that can begin."""
        return self._wanted[met if self.ordered else 0]

    def _confirmed(self, wanted: int, met: int) -> tuple[int, int]:
        """After a boundary: patterns that awaited it are met."""
        for number in list(self._nodes(met).complete(wanted)):
            if self.patterns[number].ends_word:
                wanted, met = self._meet(number, wanted, met)
        return self._live(wanted, met), met

    def _meet(self, number: int, wanted: int, met: int) -> tuple[int, int]:
        phrase = self.patterns[number].phrase
        if self.ordered:
            return (0, met + 1) if phrase == met else (wanted, met)
        return wanted, met | 1 << phrase

    def _live(self, wanted: int, met: int) -> int:
        """The longest node of this one's suffixes that begins a phrase that is not met."""
        if not self.ordered:
            while wanted and not self._phrases_of(wanted) & ~met:
                wanted = self._wanted[0].tree.link(wanted)
        return wanted

    def _find_phrases_of(self, node: int) -> int:
        """The phrases that begin with a node as a bit mask."""
        bits = bytearray(self.phrases // 8 + 1)
        for number in self._wanted[0].beginning(node):
            phrase = self.patterns[number].phrase
            bits[phrase >> 3] |= 1 << (phrase & 7)
        return int.from_bytes(bits, "little")


class Nodes:
    """Some of the patterns of a sentence as nodes."""

    def __init__(self, patterns: Sequence[Pattern], numbers: Sequence[int]) -> None:
        self._patterns = patterns
        self._numbers = numbers
        whole_words = any(patterns[number].begins_word for number in numbers)
        self.tree = PhrasePrefixes([patterns[number].text for number in numbers], whole_words)

    def complete(self, node: int) -> Iterator[int]:
        """The numbers of the patterns with which a node ends."""
        return (self._numbers[each] for each in self.tree.ending(node))

    def awaits(self, node: int) -> bool:
        """Whether one of these awaits a boundary."""
        return any(self._patterns[number].ends_word for number in self.complete(node))

    def beginning(self, node: int) -> list[int]:
        """The numbers of the patterns that begin with a node."""
        return [self._numbers[each] for each in self.tree.beginning(node)]

    def begun(self, node: int) -> Iterator[tuple[int, int]]:
        """The patterns that have begun: the number of each, and its matched characters. Those that were complete
        without a boundary have ended."""
        for each in self.tree.suffixes(node):
            size = self.tree.sizes[each]
            for number in self.beginning(each):
                pattern = self._patterns[number]
                if size < len(pattern.text) or pattern.ends_word:
                    yield number, size
