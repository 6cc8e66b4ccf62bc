"""KenLM's layout ``probing``, with or without rest costs: a hash table for each order (Heafield 2011, section 3.1).

The key of a word is its 64-bit hash; that of an n-gram is made of its last word's number and then those of the words
before it, from right to left. So a search goes from the last word to longer n-grams, one look-up each.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from sgdec.arrays import Ints
from sgdec_predictors.ngrams.kenlm_header import REST_PROBING, Damaged, KenlmFile, Parts
from sgdec_predictors.ngrams.murmur import murmur_hash

Keys = npt.NDArray[np.uint64]
Singles = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]
_SPREAD_KEY, _SPREAD_WORD = 8978948897894561157, 17894857484156487943
"""The factors that combine the key of an n-gram with a word before it."""
_ALL_BITS = (1 << 64) - 1
_MOST_STEPS = 1 << 20
"""A search that takes more steps is in a damaged table: of a table with 1.5 places for an entry it takes a few."""
_ROWS = 1 << 18
"""The number of places that are looked at together."""
_BEYOND = "a word has a number beyond the unigrams"


class HashedNgrams:
    """The n-grams of one file, as `kenlm_file.Ngrams` describes them. A node is the key of an n-gram."""

    def __init__(self, file: KenlmFile) -> None:
        """Raises `Damaged`."""
        if not 1 <= file.multiplier < math.inf:
            raise Damaged(f"its hash tables are {file.multiplier} times as large as their content")
        self.order = len(file.counts)
        self._words = file.counts[0]
        parts = Parts(file)
        weights = 12 if file.layout == REST_PROBING else 8
        version, _ = parts.take(2, "<u4").tolist()
        if version != 0:
            raise Damaged(f"its vocabulary has version {version}")
        self._vocabulary = _Table(file, parts, file.counts[0], 4, "words")
        self._numbers = self._vocabulary.column("<u4", 0)
        self._unigrams = parts.take((self._words + 1) * weights // 4, "<f4").reshape(-1, weights // 4)
        self._tables = [
            _Table(file, parts, count, 4 if n == self.order else weights, f"{n}-grams")
            for n, count in enumerate(file.counts[1:], 2)
        ]
        file.check_words(parts.at)
        self._scores = [table.column("<f4", 0) for table in self._tables]
        self._backoffs = [table.column("<f4", 4) for table in self._tables[:-1]]
        self.sizes = [self._words + 1, *(table.size for table in self._tables[:-1])]

    def check(self) -> None:
        if self._numbers[self._vocabulary.keys != 0].max(initial=0) > self._words:
            raise Damaged(_BEYOND)

    def word(self, word: str) -> int:
        place = self._vocabulary.find(murmur_hash(word.encode()))
        number = 0 if place < 0 else int(self._numbers[place])
        if number > self._words:
            raise Damaged(_BEYOND)
        return number

    def unigram(self, word: int) -> tuple[float, float, int, bool]:
        score, backoff = self._unigrams[word, :2].tolist()
        return -abs(score), backoff, word, math.copysign(1.0, score) > 0

    def longer(self, n: int, before: int, node: int) -> tuple[int, float, float, int, bool] | None:
        key = _extended(before, node)
        place = self._tables[n - 2].find(key)
        if place < 0:
            return None
        score = float(self._scores[n - 2][place])
        return place, -abs(score), float(self._backoffs[n - 2][place]), key, math.copysign(1.0, score) > 0

    def longest(self, before: int, node: int) -> float | None:
        key = _extended(before, node)
        place = self._tables[-1].find(key)
        return None if place < 0 else float(self._scores[-1][place])

    def unigrams(self, words: Ints) -> tuple[Singles, Singles, Keys, Bools]:
        weights = self._unigrams[words]
        return -np.abs(weights[:, 0]), weights[:, 1], words.astype(np.uint64), ~np.signbit(weights[:, 0])

    def all_longer(self, n: int, before: Ints, nodes: Keys) -> tuple[Ints, Singles, Singles, Keys, Bools]:
        keys = _all_extended(before, nodes)
        places = self._tables[n - 2].find_all(keys)
        scores = self._scores[n - 2][places]
        return places, -np.abs(scores), self._backoffs[n - 2][places], keys, ~np.signbit(scores)

    def all_longest(self, before: Ints, nodes: Keys) -> tuple[Ints, Singles]:
        places = self._tables[-1].find_all(_all_extended(before, nodes))
        return places, self._scores[-1][places]


def _extended(before: int, key: int) -> int:
    """The key of an n-gram with one more word before."""
    return (key * _SPREAD_KEY & _ALL_BITS) ^ ((1 + before) * _SPREAD_WORD & _ALL_BITS)


def _all_extended(before: Ints, keys: Keys) -> Keys:
    return keys * np.uint64(_SPREAD_KEY) ^ (before.astype(np.uint64) + np.uint64(1)) * np.uint64(_SPREAD_WORD)


class _Table:
    """A hash table with linear probing: an entry is at the first place from key mod size that was free."""

    def __init__(self, file: KenlmFile, parts: Parts, entries: int, content: int, what: str) -> None:
        """``content``: the number of bytes after each key."""
        self.size = max(entries + 1, int(np.float32(file.multiplier) * np.float32(entries)))
        self._width, self._data, self._what = 8 + content, file.data, what
        self._begin = parts.skip(self.size * self._width)
        self.keys = self.column("<u8", -8)
        if not any((self.keys[first : first + _ROWS] == 0).any() for first in range(0, self.size, _ROWS)):
            raise Damaged(f"its hash table of {what} has no free place")

    def column(self, kind: str, offset: int) -> npt.NDArray[Any]:
        """A value of each entry, ``offset`` bytes after the key."""
        return np.ndarray((self.size,), kind, self._data, self._begin + 8 + offset, (self._width,))

    def find(self, key: int) -> int:
        """The place of a key, or -1."""
        place = key % self.size
        for _ in range(_MOST_STEPS):
            stored = self.keys.item(place)
            if stored == key:
                return place
            if not stored:
                return -1
            place = (place + 1) % self.size
        raise self._too_full()

    def find_all(self, keys: Keys) -> Ints:
        """`find` for each of an array."""
        found = np.full(len(keys), -1, np.int64)
        left, places = np.arange(len(keys)), (keys % np.uint64(self.size)).astype(np.int64)
        for _ in range(_MOST_STEPS):
            stored = self.keys[places]
            there = stored == keys
            found[left[there]] = places[there]
            on = ~there & (stored != 0)
            if not on.any():
                return found
            left, keys, places = left[on], keys[on], places[on] + 1
            places[places == self.size] = 0
        raise self._too_full()

    def _too_full(self) -> Damaged:
        return Damaged(f"its hash table of {self._what} has no free place within {_MOST_STEPS:,}")
