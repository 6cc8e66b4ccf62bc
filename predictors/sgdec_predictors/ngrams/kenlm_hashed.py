"""KenLM's layout ``probing``, with or without rest costs: a hash table for each order (Heafield 2011, section 3.1).

The key of a word is its 64-bit hash; that of an n-gram is made of its last word's number and then those of the words
before it, from right to left. So a search goes from the last word to longer n-grams, one look-up each.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from sgdec.arrays import Ints
from sgdec_predictors.ngrams.kenlm_header import (
    REST_PROBING,
    DamagedKenlm,
    Entries,
    Entry,
    FileParts,
    KenlmFile,
    Singles,
)
from sgdec_predictors.ngrams.murmur import murmur_hash

Keys = npt.NDArray[np.uint64]
_SPREAD_KEY, _SPREAD_WORD = 8978948897894561157, 17894857484156487943
"""The factors that combine the key of an n-gram with a word before it."""
_ALL_BITS = (1 << 64) - 1
_AT_ONCE, _MOST_AT_ONCE = 6, 1 << 20
"""Places that one search looks at together at first, and all searches at most. Two thirds of a table are full, so a
search looks at one to four places on average, and at dozens at most."""
_ROWS = 1 << 18
"""The number of places that are looked at together for a free one."""
_BEYOND = "a word has a number beyond the unigrams"


class HashedNgrams:
    """The n-grams of one file, as `kenlm_file.Ngrams` describes them."""

    def __init__(self, file: KenlmFile) -> None:
        """Raises `DamagedKenlm`."""
        if not 1 <= file.multiplier < math.inf:
            raise DamagedKenlm(f"its hash tables are {file.multiplier} times as large as their content")
        self.order = len(file.counts)
        self._words = file.counts[0]
        parts = FileParts(file)
        weights = 12 if file.layout == REST_PROBING else 8
        version, _ = parts.take(2, "<u4").tolist()
        if version != 0:
            raise DamagedKenlm(f"its vocabulary has version {version}")
        self._vocabulary = _Table(file, parts, file.counts[0], 4, "words", longest=True)
        self._numbers = self._vocabulary.column("<u4", 0)
        self._unigrams = parts.take((self._words + 1) * weights // 4, "<f4").reshape(-1, weights // 4)
        self._tables = [
            _Table(file, parts, count, 4 if n == self.order else weights, f"{n}-grams", longest=n == self.order)
            for n, count in enumerate(file.counts[1:], 2)
        ]
        file.check_words(parts.at)
        self._unigram, self._finds = cache(self._unigram_of), [table.find for table in self._tables]
        self.sizes = [self._words + 1, *(table.size for table in self._tables[:-1])]

    def check(self) -> None:
        if self._numbers[self._vocabulary.keys != 0].max(initial=0) > self._words:
            raise DamagedKenlm(_BEYOND)

    def word(self, word: str) -> int:
        entry = self._vocabulary.find(murmur_hash(word.encode()))
        number = 0 if entry is None else int(self._numbers[entry[0]])
        if number > self._words:
            raise DamagedKenlm(_BEYOND)
        return number

    def ending(self, word: int, before: Sequence[int]) -> list[Entry]:
        found, key = [self._unigram(word)], word
        for find, previous in zip(self._finds, before, strict=False):
            key = (key * _SPREAD_KEY & _ALL_BITS) ^ ((1 + previous) * _SPREAD_WORD & _ALL_BITS)
            entry = find(key)
            if entry is None:
                break
            found.append(entry)
        return found

    def unigrams(self, words: Ints) -> tuple[Singles, Singles]:
        weights = self._unigrams[words]
        return -np.abs(weights[:, 0]), weights[:, 1]

    def all_ending(self, words: Ints, before: Ints, known: Ints) -> Iterator[Entries]:
        left = np.flatnonzero(known)
        keys = words[left].astype(np.uint64)
        for column, table in enumerate(self._tables):
            keys = _all_extended(before[left, column], keys)
            places = table.find_all(keys)
            there = np.flatnonzero(places >= 0)
            left, places = left[there], places[there]
            scores = table.scores[places]
            if table.longest:
                yield left, places, scores, scores
                return
            yield left, places, -np.abs(scores), table.backoffs[places]
            longer = ~np.signbit(scores) & (known[left] > column + 1)
            left, keys = left[longer], keys[there[longer]]

    def _unigram_of(self, word: int) -> Entry:
        score, backoff = self._unigrams[word, :2].tolist()
        return word, -abs(score), backoff


def _all_extended(before: Ints, keys: Keys) -> Keys:
    """The keys of n-grams with one more word before."""
    return keys * np.uint64(_SPREAD_KEY) ^ (before.astype(np.uint64) + np.uint64(1)) * np.uint64(_SPREAD_WORD)


class _Table:
    """A hash table with linear probing: an entry is at the first place from key mod size that was free.

    One place at least is free, so that every search ends.
    """

    def __init__(
        self, file: KenlmFile, parts: FileParts, entries: int, content: int, what: str, *, longest: bool = False
    ) -> None:
        """``content``: the number of bytes after each key; ``longest``: scores have no back-offs."""
        self.size = max(entries + 1, int(np.float32(file.multiplier) * np.float32(entries)))
        self.width, self.longest, self._data, self._what = 8 + content, longest, file.data, what
        self.begin = parts.skip(self.size * self.width)
        self.keys = self.column("<u8", -8)
        self.scores = self.column("<f4", 0)
        self.backoffs = self.scores if longest else self.column("<f4", 4)
        self._key, self._score, self._backoff = self.keys.item, self.scores.item, self.backoffs.item
        if not any((self.keys[first : first + _ROWS] == 0).any() for first in range(0, self.size, _ROWS)):
            raise DamagedKenlm(f"its hash table of {what} has no free place")

    def column(self, kind: str, offset: int) -> npt.NDArray[Any]:
        """A value of each entry, ``offset`` bytes after the key."""
        return np.ndarray((self.size,), kind, self._data, self.begin + 8 + offset, (self.width,))

    def find(self, key: int) -> Entry | None:
        """The n-gram of a key."""
        place = key % self.size
        while stored := self._key(place):
            if stored == key:
                score = self._score(place)
                return (place, score, 0.0) if self.longest else (place, -abs(score), self._backoff(place))
            place = (place + 1) % self.size
        return None

    def find_all(self, keys: Keys) -> Ints:
        """The places of keys ``[n]``; -1 = not there."""
        found = (keys % np.uint64(self.size)).astype(np.int64)
        stored = self.keys[found]
        left = np.flatnonzero((stored != keys) & (stored != 0))
        found[stored == 0] = -1
        at_once = _AT_ONCE
        while len(left):  # the ways of some are long, so more and more places are looked at together
            places = found[left, None] + np.arange(1, 1 + at_once)
            places[places >= self.size] %= self.size
            stored, wanted = self.keys[places], keys[left]
            ends = (stored == wanted[:, None]) | (stored == 0)
            last = np.arange(len(left)), np.where(ends.any(axis=1), ends.argmax(axis=1), -1)
            found[left] = np.where(stored[last] == 0, -1, places[last])
            left = left[~ends[last]]
            at_once = max(1, min(8 * at_once, _MOST_AT_ONCE // max(1, len(left))))
        return found
