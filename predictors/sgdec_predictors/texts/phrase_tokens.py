"""Phrases in an output of tokens: the state after a token, and the tokens that a state forbids.

Most tokens are harmless in most states. So the tokens that complete a phrase are not found by reading all of them,
but by looking up the missing text: tokens that begin with the rest of a phrase that has begun, and tokens that
contain a whole one.

Some vocabularies decode tokens of single bytes together: all of them are unknown characters if they are not UTF-8 as
a whole. So what such bytes spell is certain only when other text follows, or the end. Until then the state has both
readings, and each such token is tried.
"""

from __future__ import annotations

import math
from codecs import utf_8_decode
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cache

import numpy as np

from sgdec import EOS
from sgdec.arrays import Ints
from sgdec.context import Vocabulary
from sgdec.protocol import FORBIDDEN, SparseRow
from sgdec_predictors.texts.characters import is_word
from sgdec_predictors.texts.phrase_matcher import Matcher, PhraseRun, Reading
from sgdec_predictors.texts.phrase_prefixes import PhrasePrefixes
from sgdec_predictors.texts.phrase_spelling import Speller
from sgdec_predictors.texts.spelling import Spelling
from sgdec_predictors.texts.token_texts import TokenTexts

Two = tuple[int, ...]
"""At most two phrases."""
UNKNOWN = "\ufffd"
"""Stands for tokens whose text is not known, and for bytes that are not UTF-8."""


class SpelledTokens:
    """The tokens of a vocabulary as texts: all sentences share them."""

    def __init__(self, vocabulary: Vocabulary, spelling: Spelling, fold: Callable[[str], str]) -> None:
        self.spelling = spelling
        self.fold = fold
        adds = np.array([[piece is not None for piece in pieces] for pieces in spelling.adds])  # [S, V]
        has_text = adds.any(axis=0)
        self.blocked = [np.flatnonzero(has_text & ~now) for now in adds]
        """By state of the spelling the tokens that have a text, but not here."""
        self.invisible = frozenset(
            token for token in np.flatnonzero(~has_text).tolist() if vocabulary.decode((token,)) == ""
        )
        """The tokens that ``decode`` leaves out."""
        self.texts = cache(lambda state: TokenTexts(spelling, state, fold))
        self.not_words = cache(lambda state: self.texts(state).starting_as(lambda char: not is_word(char)))
        """By state the tokens that end a word before them."""
        self.all = np.arange(spelling.size)
        self.speller = Speller(spelling, fold)
        self.byte_runs: frozenset[int] = getattr(vocabulary, "byte_runs", frozenset())
        """The tokens of single bytes that are decoded together."""


class PhraseTokens:
    """The phrases of one sentence, over tokens."""

    def __init__(self, spelled: SpelledTokens, matcher: Matcher) -> None:
        self._spelled = spelled
        self.matcher = matcher
        self._avoided = [pattern for pattern in matcher.patterns if pattern.phrase < 0]
        self._within = cache(self._find_within)
        self._rows: dict[tuple[object, ...], SparseRow] = {}
        self._advancing: dict[tuple[int, Reading], list[int]] = {}
        longest = max(spelled.texts(state).longest for state in range(spelled.spelling.states))
        self.least = -(-least_bytes(matcher) // max(longest, 1))
        """A lower bound on the number of tokens that the wanted phrases take."""

    def after(self, spelling: int, reading: Reading, token: int) -> tuple[int, Reading]:
        """The states after one more token."""
        return self._after(spelling, reading, token)[:2]

    def row(self, spelling: int, reading: Reading) -> SparseRow:
        """The scores of all tokens: 0, and -inf for those that are listed."""
        ended, completed = self._ended(reading)
        everything, wrong = self.matcher.at_end(ended)
        ends = everything and not wrong and not completed
        key = spelling, reading.rest, reading.in_word, reading.avoided, reading.run, ends
        if key not in self._rows:
            tokens = self._forbidden(spelling, reading)
            tokens = np.setdiff1d(tokens, [EOS]) if ends else np.union1d(tokens, [EOS])
            self._rows[key] = SparseRow(tokens.tolist(), [FORBIDDEN] * len(tokens), default=0.0)
        return self._rows[key]

    def advancing(self, spelling: int, reading: Reading) -> list[int]:
        """The tokens that add to the progress and spell only the rest of a phrase, or its beginning."""
        key = spelling, reading
        if key not in self._advancing:
            texts, row = self._spelled.texts(spelling), self.row(spelling, reading)
            now = self.matcher.progress(reading)
            left = self.matcher.left(reading, texts.longest)
            beginnings = {text[:size] for text in left for size in range(1, len(text) + 1)}
            tokens = {token for text in beginnings for token in texts.equal(text)}
            self._advancing[key] = [
                token for token in sorted(tokens)
                if row.get(token) == 0.0 and self.matcher.progress(self.after(spelling, reading, token)[1]) > now
            ]  # fmt: skip
        return self._advancing[key]

    def _after(self, spelling: int, reading: Reading, token: int) -> tuple[int, Reading, bool]:
        """The same, and whether it completes an avoided phrase."""
        spelled = self._spelled
        piece = spelled.spelling.adds[spelling][token]
        if piece is None and token in spelled.invisible:
            return spelling, reading, False
        after = int(spelled.spelling.after[spelling, token])
        if token in spelled.byte_runs and piece is not None:
            return after, *self._after_byte(reading, piece)
        reading, completed = self._ended(reading)
        data = reading.rest + (UNKNOWN.encode() if piece is None else piece)
        text, used = utf_8_decode(data, "replace", False)
        read, wrong = self.matcher.read(reading, spelled.fold(text))
        return after, read._replace(rest=data[used:]), wrong or completed

    def _after_byte(self, reading: Reading, byte: bytes) -> tuple[Reading, bool]:
        """The state after one more byte of a run, and whether it is certain that an avoided phrase is complete."""
        run = reading.run or PhraseRun(reading, False, False)
        if run.broken is None:
            read, wrong = self.matcher.read(reading, UNKNOWN)
            return read._replace(run=run), wrong
        broken, wrong = self.matcher.read(run.broken, UNKNOWN)
        wrong |= run.broken_wrong
        data = reading.rest + byte
        try:
            text, used = utf_8_decode(data, "strict", False)
        except UnicodeDecodeError:
            return broken._replace(run=PhraseRun(None, False, False)), wrong
        read, completed = self.matcher.read(reading, self._spelled.fold(text))
        return read._replace(rest=data[used:], run=PhraseRun(broken, run.wrong or completed, wrong)), False

    def _ended(self, reading: Reading) -> tuple[Reading, bool]:
        """The state if a run of bytes ends here, and whether it completes an avoided phrase."""
        run = reading.run
        if run is None or run.broken is None:
            return reading._replace(run=None), False
        return (run.broken, run.broken_wrong) if reading.rest else (reading._replace(run=None), run.wrong)

    def _forbidden(self, spelling: int, reading: Reading) -> Ints:
        """The tokens that complete an avoided phrase, or that have no text here."""
        if not self._avoided:
            return self._spelled.blocked[spelling]
        runs = self._spelled.byte_runs
        if not runs:
            return self._forbidden_without_runs(spelling, reading)
        ended, completed = self._ended(reading)
        others = self._visible if completed else self._forbidden_without_runs(spelling, ended)
        wrong = [token for token in runs if self._after(spelling, reading, token)[2]]
        return np.union1d(np.setdiff1d(others, as_ints(runs)), as_ints(wrong))

    def _forbidden_without_runs(self, spelling: int, reading: Reading) -> Ints:
        """The same without tokens of bytes that are decoded together."""
        if reading.rest:
            return self._forbidden_within_character(spelling, reading)
        always, at_beginning = self._within(spelling)
        found = [self._spelled.blocked[spelling], always]
        if not reading.in_word:
            found.append(at_beginning)
        longest = self._spelled.texts(spelling).longest
        if self.matcher.at_end(reading)[1]:
            found += [self._spelled.not_words(spelling), self._without_text]
        for number, size in self.matcher.avoided_begun(reading):
            pattern = self.matcher.patterns[number]
            if size < len(pattern.text) <= size + longest:
                rest = self._spelled.texts(spelling).beginning(pattern.text[size:])
                found.append(as_ints(token for token, after in rest if _ends(pattern.ends_word, after)))
        return np.unique(np.concatenate(found))

    def _forbidden_within_character(self, spelling: int, reading: Reading) -> Ints:
        """The same if the bytes of a character have begun: few tokens continue it, all others end it as unknown."""
        continuing = self._spelled.texts(spelling).continuing
        wrong = [token for token in continuing.tolist() if self._after(spelling, reading, token)[2]]
        ended, is_wrong = self.matcher.read(reading, UNKNOWN)
        ended = ended._replace(rest=b"")
        others = self._visible if is_wrong else self._forbidden_without_runs(spelling, ended)
        blocked = self._spelled.blocked[spelling]
        return np.union1d(np.union1d(np.setdiff1d(others, continuing), as_ints(wrong)), blocked)

    def _find_within(self, spelling: int) -> tuple[Ints, Ints]:
        """The tokens that contain an avoided phrase: in any case, and if they do not continue a word."""
        always, at_beginning = set(), set()
        for pattern in self._avoided:
            for token, before, after in self._spelled.texts(spelling).containing(pattern.text):
                if _ends(pattern.ends_word, after):
                    if not pattern.begins_word or (before and not is_word(before[-1])):
                        always.add(token)
                    elif not before:
                        at_beginning.add(token)
        return as_ints(always), as_ints(at_beginning)

    @property
    def _visible(self) -> Ints:
        """The tokens that ``decode`` does not leave out."""
        return np.setdiff1d(self._spelled.all, as_ints(self._spelled.invisible))

    @property
    def _without_text(self) -> Ints:
        """The tokens that stand between words, and have no text."""
        adds = self._spelled.spelling.adds
        return as_ints(token for token in self._visible.tolist() if all(row[token] is None for row in adds))


def _ends(ends_word: bool, after: str) -> bool:
    """Whether a phrase is certain to end before this text."""
    return not ends_word or (bool(after) and not is_word(after[0]))


def least_bytes(matcher: Matcher) -> int:
    """A lower bound on the number of bytes of texts with all phrases, of which one can overlap another.

    In the order in which they begin, each adds all but the beginning that it can share with an earlier one: all of
    it if that one contains it, otherwise the longest with which that one ends.
    """
    wanted = [pattern for pattern in matcher.patterns if pattern.phrase >= 0]
    shortest = [math.inf] * matcher.phrases
    for pattern in wanted:
        shortest[pattern.phrase] = min(shortest[pattern.phrase], len(pattern.data))
    if matcher.ordered or len(shortest) < 2:
        return int(sum(shortest))
    phrases_of: dict[str, Two] = {}
    for pattern in wanted:
        phrases_of[pattern.text] = two(phrases_of.get(pattern.text, ()), (pattern.phrase,))
    texts = list(phrases_of)
    tree = PhrasePrefixes(texts)
    last = [tree.path(text)[-1] for text in texts]
    beginning: list[Two] = [()] * len(tree.children)
    """By node the phrases that begin with it."""
    ending: defaultdict[int, Two] = defaultdict(tuple)
    """By node the phrases that end with it, and have more before it."""
    for node, phrases in zip(last, phrases_of.values(), strict=True):
        beginning[node] = phrases
        for suffix in tree.suffixes(tree.link(node)):
            ending[suffix] = two(ending[suffix], phrases)
    within: list[Two] = [()] * len(texts)
    """The phrases that contain each text."""
    for node in range(len(tree.children) - 1, 0, -1):  # children before their parents
        for child in tree.children[node].values():
            beginning[node] = two(beginning[node], beginning[child])
        for number in tree.ending(node):
            within[number] = two(within[number], beginning[node])
    contained = dict(zip(texts, within, strict=True))
    added = [math.inf] * matcher.phrases
    for pattern in wanted:
        itself = (pattern.phrase,)
        shared = len(pattern.text)
        if contained[pattern.text] == itself:
            nodes = (node for node in reversed(tree.path(pattern.text)[:-1]) if ending[node] not in ((), itself))
            shared = tree.sizes[next(nodes, 0)]
        added[pattern.phrase] = min(added[pattern.phrase], len(pattern.data) - pattern.offsets[shared])
    return int(max(sum(added), max(shortest)))


def two(some: Two, more: Two) -> Two:
    """The first two of some phrases. If there are two, one of them is another than any given one."""
    return some if len(some) == 2 or some == more else tuple(dict.fromkeys((*some, *more)))[:2]


def as_ints(tokens: Iterable[int]) -> Ints:
    return np.array(sorted(tokens), np.int64)
