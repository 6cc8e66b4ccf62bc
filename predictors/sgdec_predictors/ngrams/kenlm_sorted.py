"""KenLM's layout ``trie``: sorted arrays of bits, one for each order (Heafield 2011, section 3.2).

The trie grows to the left: below a word are the words before it. An entry is a word, its weights (a score without
its sign in 31 bits and a back-off in 32; quantised: the numbers of both in tables), and where the entries of its
longer n-grams begin, which is where those of the entry before end. Array-compressed, the upper bits of these
beginnings are where an index stands in a list of the first entry that has each (Raj and Whittaker 2003).
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from sgdec.arrays import Ints
from sgdec_predictors.ngrams.kenlm_header import (
    ARRAY_TRIE,
    QUANTISED_ARRAY_TRIE,
    QUANTISED_TRIE,
    DamagedKenlm,
    Entries,
    Entry,
    FileParts,
    KenlmFile,
    Singles,
)
from sgdec_predictors.ngrams.murmur import murmur_hash

Range = tuple[int, int]
_SIGN = 1 << 31
_ROWS = 1 << 18
"""The number of entries that are checked together."""


class SortedNgrams:
    """The n-grams of one file, as `kenlm_file.Ngrams` describes them."""

    def __init__(self, file: KenlmFile) -> None:
        """Raises `DamagedKenlm`."""
        self.order = len(file.counts)
        parts = FileParts(file)
        (words,) = parts.take(1, "<u8").tolist()
        if words > file.counts[0]:
            raise DamagedKenlm("it has more words than unigrams")
        self._hashes = parts.take(file.counts[0], "<u8")[:words].data
        quantised = file.layout in (QUANTISED_TRIE, QUANTISED_ARRAY_TRIE)
        fields = _quantised(self.order, parts) if quantised else _whole(self.order)
        self._unigrams = parts.take(
            file.counts[0] + 2, [("score", "<f4"), ("backoff", "<f4"), ("next", "<u8")]
        )
        self._unigram, self._most = cache(self._unigram_of), file.counts[1]
        compressed = file.layout in (ARRAY_TRIE, QUANTISED_ARRAY_TRIE)
        self._levels = [_Level(file, parts, n, fields[n - 2], compressed) for n in range(2, self.order)]
        self._longest = _Longest(file, parts, fields[-1])
        file.check_words(parts.at)
        self.sizes = [file.counts[0] + 1, *file.counts[1:-1]]

    def check(self) -> None:
        _checked(self._ends(np.arange(len(self._hashes) + 1)), self._most, 2)
        for level in self._levels:
            level.check()

    def word(self, word: str) -> int:
        wanted = murmur_hash(word.encode())
        place = bisect_left(self._hashes, wanted)
        return place + 1 if place < len(self._hashes) and self._hashes[place] == wanted else 0

    def ending(self, word: int, before: Sequence[int]) -> list[Entry]:
        score, backoff, begin, end = self._unigram(word)
        found = [(word, score, backoff)]
        for level, previous in zip([*self._levels, self._longest], before, strict=False):
            place = level.find(previous, begin, end)
            if place < 0:
                break
            if isinstance(level, _Level):
                found.append((place, level.score(place), level.backoff(place)))
                begin, end = level.range(place)
            else:
                found.append((place, level.score(place), 0.0))
        return found

    def _unigram_of(self, word: int) -> tuple[float, float, int, int]:
        """Score, back-off, and the range of longer n-grams."""
        (score, backoff, begin), (_, _, end) = self._unigrams[word : word + 2].tolist()
        if not begin <= end <= self._most:
            raise _leads_out(2)
        return score, backoff, begin, end

    def unigrams(self, words: Ints) -> tuple[Singles, Singles]:
        entries = self._unigrams[words]
        return entries["score"], entries["backoff"]

    def all_ending(self, words: Ints, before: Ints, known: Ints) -> Iterator[Entries]:
        left = np.flatnonzero(known)
        ranges = _checked(self._ends(words[left]), self._most, 2)
        for column, level in enumerate(self._levels):
            places = level.find_all(before[left, column], ranges)
            left, places = left[places >= 0], places[places >= 0]
            yield left, places, level.scores(places), level.backoffs(places)
            longer = known[left] > column + 1
            left, ranges = left[longer], level.ranges(places[longer])
        places = self._longest.find_all(before[left, -1], ranges)
        left, places = left[places >= 0], places[places >= 0]
        scores = self._longest.scores(places)
        yield left, places, scores, scores

    def _ends(self, words: Ints) -> Ints:
        """The ranges of the longer n-grams of words, ``[n, 2]``."""
        return np.stack([self._unigrams["next"][words], self._unigrams["next"][words + 1]], axis=1).astype(np.int64)


@dataclass(frozen=True)
class _Field:
    """A number in each entry: its bits, and their offset after the word."""

    offset: int
    bits: int
    decoded: Callable[[int], float]
    all_decoded: Callable[[Any], Singles]


def _whole(order: int) -> list[tuple[_Field, _Field]]:
    """Score and back-off of the entries of each order from 2 on."""
    score = _Field(0, 31, lambda code: _single(code | _SIGN), lambda codes: _singles(codes | np.uint64(_SIGN)))
    return [(score, _Field(31, 32, _single, _singles))] * (order - 1)


def _single(code: int) -> float:
    number: float
    (number,) = struct.unpack("<f", struct.pack("<I", code))
    return number


def _singles(codes: npt.NDArray[np.uint64]) -> Singles:
    return codes.astype(np.uint32).view(np.float32)


def _quantised(order: int, parts: FileParts) -> list[tuple[_Field, _Field]]:
    """The same for entries that have the numbers of values in tables."""
    version, scores, backoffs, *_ = parts.take(8, np.uint8).tolist()
    if version != 2 or not (1 <= scores <= 25 and 1 <= backoffs <= 25):
        raise DamagedKenlm(f"its numbers have version {version}, {scores} and {backoffs} bits")
    fields = []
    for n in range(2, order + 1):
        of_scores = parts.take(1 << scores, "<f4")
        of_backoffs = parts.take(1 << backoffs, "<f4") if n < order else np.zeros(1, np.float32)
        backoff = _Field(0, backoffs if n < order else 0, of_backoffs.item, of_backoffs.__getitem__)
        fields.append((_Field(backoff.bits, scores, of_scores.item, of_scores.__getitem__), backoff))
    return fields


class _Longest:
    """The entries of the highest order: word and score."""

    def __init__(self, file: KenlmFile, parts: FileParts, fields: tuple[_Field, _Field]) -> None:
        """Raises `DamagedKenlm`."""
        self._score, _ = fields
        self._lay(file, parts, file.counts[-1], self._score.bits)

    def _lay(self, file: KenlmFile, parts: FileParts, entries: int, bits: int) -> None:
        """Take the packed entries: a word, and ``bits`` more bits."""
        self._entries, self._word_bits = entries, file.counts[0].bit_length()
        self._entry_bits = self._word_bits + bits
        size = ((1 + entries) * self._entry_bits + 7) // 8 + 8
        begin = parts.skip(size)
        self._bytes = file.data[begin : begin + size].data
        self._eights = np.ndarray((size - 7,), "<u8", file.data, begin, strides=(1,))
        """Eight bytes from each offset."""

    def find(self, word: int, begin: int, end: int) -> int:
        """The place of a word in a range, or -1."""
        data, bits, mask = self._bytes, self._entry_bits, (1 << self._word_bits) - 1
        while begin < end:
            middle = (begin + end) // 2
            at = middle * bits
            found = int.from_bytes(data[at >> 3 : (at >> 3) + 8], "little") >> (at & 7) & mask  # as `_number`
            if found == word:
                return middle
            if found < word:
                begin = middle + 1
            else:
                end = middle
        return -1

    def score(self, place: int) -> float:
        return self._score.decoded(self._number(place, self._word_bits + self._score.offset, self._score.bits))

    def find_all(self, words: Ints, ranges: Ints) -> Ints:
        """`find` for each of an array."""
        begin, end = ranges.T
        last, wanted = end, words.astype(np.uint64)
        while (left := begin < end).any():
            middle = (begin + end) // 2
            less = self._numbers(middle, 0, self._word_bits) < wanted
            begin = np.where(left & less, middle + 1, begin)
            end = np.where(left & ~less, middle, end)
        there = begin < last
        there &= self._numbers(np.where(there, begin, 0), 0, self._word_bits) == wanted
        return np.where(there, begin, -1)

    def scores(self, places: Ints) -> Singles:
        score = self._score
        return score.all_decoded(self._numbers(places, self._word_bits + score.offset, score.bits))

    def _number(self, place: int, offset: int, bits: int) -> int:
        """``bits`` bits of an entry, ``offset`` bits from its beginning."""
        at = place * self._entry_bits + offset
        eight = int.from_bytes(self._bytes[at >> 3 : (at >> 3) + 8], "little")
        return eight >> (at & 7) & ((1 << bits) - 1)

    def _numbers(self, places: Ints, offset: int, bits: int) -> npt.NDArray[np.uint64]:
        """`_number` for each of an array."""
        at = places * self._entry_bits + offset
        found: npt.NDArray[np.uint64] = self._eights[at >> 3] >> (at & 7).astype(np.uint64)
        return found & np.uint64((1 << bits) - 1)


class _Level(_Longest):
    """The entries of another order: word, score, back-off, and where its longer n-grams begin."""

    def __init__(
        self, file: KenlmFile, parts: FileParts, n: int, fields: tuple[_Field, _Field], compressed: bool
    ) -> None:
        """Raises `DamagedKenlm`."""
        self._score, self._backoff = fields
        self._n, self._most, self._compressed = n + 1, file.counts[n], compressed
        entries, bits = file.counts[n - 1], self._most.bit_length()
        self._firsts = np.zeros(1, np.uint64)
        """Array-compressed: by upper bits of a beginning, the first entry that has them."""
        if compressed:
            head = parts.at
            version, most_chopped = parts.take(2, np.uint8).tolist()
            if version != 0:
                raise DamagedKenlm(f"its compressed pointers have version {version}")
            chopped = _chopped(entries + 1, self._most, bits, most_chopped)
            count = (self._most >> (bits - chopped)) + 1
            parts.at = head + -head % 8 + 8
            self._firsts = parts.take(count, "<u8")
            parts.at = head + 8 * (count + 1) + 7
            bits -= chopped
        self._lower_bits = bits
        self._next = self._score.bits + self._backoff.bits
        self._lay(file, parts, entries, self._next + bits)
        self._next += self._word_bits

    def check(self) -> None:
        """Raises `DamagedKenlm` if a reference leads out of the file."""
        if (self._firsts[1:] < self._firsts[:-1]).any():
            raise _leads_out(self._n)
        for first in range(0, self._entries, _ROWS):
            self.ranges(np.arange(first, min(self._entries, first + _ROWS)))

    def backoff(self, place: int) -> float:
        backoff = self._backoff
        return backoff.decoded(self._number(place, self._word_bits + backoff.offset, backoff.bits))

    def range(self, place: int) -> Range:
        """The entries one word longer. Raises `DamagedKenlm`."""
        begin, end = map(self._end, (place, place + 1))
        if not 0 <= begin <= end <= self._most:
            raise _leads_out(self._n)
        return begin, end

    def _end(self, place: int) -> int:
        upper = bisect_right(self._firsts.data, place) - 1 if self._compressed else 0
        return upper << self._lower_bits | self._number(place, self._next, self._lower_bits)

    def backoffs(self, places: Ints) -> Singles:
        backoff = self._backoff
        return backoff.all_decoded(self._numbers(places, self._word_bits + backoff.offset, backoff.bits))

    def ranges(self, places: Ints) -> Ints:
        """`range` for each of an array, ``[n, 2]``."""
        ends = np.stack([places, places + 1], axis=1)
        found = self._numbers(ends, self._next, self._lower_bits).astype(np.int64)
        if self._compressed:
            found |= np.searchsorted(self._firsts, ends.astype(np.uint64), "right") - 1 << self._lower_bits
        return _checked(found, self._most, self._n)


def _chopped(entries: int, most: int, bits: int, most_chopped: int) -> int:
    """The number of bits of pointers in the list: that which makes both smallest, the least among equals."""
    return min(range(min(bits, most_chopped) + 1), key=lambda chop: (most >> (bits - chop)) * 64 - entries * chop)


def _checked(ranges: Ints, most: int, n: int) -> Ints:
    begin, end = ranges.T
    if not ((begin >= 0) & (begin <= end) & (end <= most)).all():
        raise _leads_out(n)
    return ranges


def _leads_out(n: int) -> DamagedKenlm:
    return DamagedKenlm(f"a reference to {n}-grams leads out of them")
