"""A language model in KenLM's binary format, mapped into memory and queried in its own layout (Heafield 2011).

The n-grams of a file are stored by their last word first. A look-up goes from the word to longer n-grams that end
with it, as long as the history and the file have more; its score is that of the longest, plus the back-offs of the
histories longer than its own. Scores are equal to KenLM's bit for bit: sums of float32 numbers in its order.

A history is the place in the file of the longest n-gram that KenLM keeps as its state: the longest one that ends the
prefix and has longer n-grams or a back-off. Its words and their back-offs are kept when it is met.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from math import copysign

import numpy as np
import numpy.typing as npt

from sgdec.arrays import Ints
from sgdec.files import LN_10
from sgdec_predictors.ngrams.backoff import _single
from sgdec_predictors.ngrams.kenlm_file import read_kenlm, translated

Singles = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]
ROWS_KEPT = 256
"""A row is a look-up for each column, because no layout lists the words that a history has."""
_FIRST = 1024
"""The number of histories that there is room for at first."""


class KenlmModel:
    """Scores of words after a history; the methods are those of `BackoffTable`."""

    def __init__(self, path: str, columns: Sequence[str]) -> None:
        """Raises `SgdecError` for a file that is damaged."""
        self._path = path
        self._ngrams = read_kenlm(path)
        self.order = self._ngrams.order
        self._first = [*accumulate(self._ngrams.sizes, initial=1)]
        """By order - 1: the number of the history that is the first n-gram of that order; 0 is the empty history."""
        self._row_of = np.zeros(self._first[-1], np.int32)
        """Where each history is kept; 0 = it has not been met. Memory is taken by those that are met."""
        self._rows = _Histories(self.order - 1)
        self._row = lru_cache(ROWS_KEPT)(self._score_columns)
        self._columns = np.array([self.symbol(column) for column in columns], np.int64)
        begin = self.symbol("<s>")
        _, backoff, _, _ = translated(path, lambda: self._ngrams.unigram(begin))
        self.start = 1 + begin
        self._row_of[self.start] = self._rows.add((begin,), (backoff,))

    def __contains__(self, word: str) -> bool:
        return self.symbol(word) != 0

    def rows(self, histories: Sequence[int]) -> Singles:
        """``[rows, columns]``: ln p of every column after each history; the last rows are kept."""
        return np.stack([self._row(history) for history in histories])

    def _score_columns(self, history: int) -> Singles:
        histories = np.full(len(self._columns), history)
        scores, _ = translated(self._path, lambda: self._look_up(histories, self._columns))
        with np.errstate(over="ignore"):  # an infinite score is an error of the search
            return (scores.astype(np.float64) * LN_10).astype(np.float32)

    def score(self, history: int, word: str) -> float:
        """ln p of one word."""
        return self.step(history, self.symbol(word))[0]

    def symbol(self, word: str) -> int:
        """The number of a word in `step` and `step_all`. Raises `SgdecError`."""
        return translated(self._path, lambda: self._ngrams.word(word))

    def step(self, history: int, symbol: int) -> tuple[float, int]:
        """ln p of one word, and the history after it. Raises `SgdecError`."""
        score, after = translated(self._path, lambda: self._look_up_one(history, symbol))
        return score * LN_10, after

    def step_all(self, histories: Ints, symbols: Ints) -> tuple[npt.NDArray[np.float64], Ints]:
        """`step` for arrays ``[n]``, with bit-equal numbers."""
        scores, (places, lengths, backoffs) = translated(self._path, lambda: self._look_up(histories, symbols))
        new = np.flatnonzero((self._row_of[places] == 0) & (places > 0))
        if len(new):
            _, once = np.unique(places[new], return_index=True)
            for at in new[once].tolist():
                words = (int(symbols[at]), *self._rows.words[self._row_of[histories[at]]].tolist())
                length = int(lengths[at])
                self._row_of[places[at]] = self._rows.add(words[:length], backoffs[at, :length].tolist())
        return scores.astype(np.float64) * LN_10, places

    def _look_up_one(self, history: int, word: int) -> tuple[float, int]:
        """log10 p, and the history after the word."""
        words, before = self._rows.listed[self._row_of.item(history)]
        score, backoff, node, more = self._ngrams.unigram(word)
        backoffs, matched, length, place = [backoff], 1, 0, 0
        if _goes_on(backoff):
            length, place = 1, 1 + word
        for n, previous in enumerate(words, 2):
            if not more:
                break
            if n == self.order:
                longest = self._ngrams.longest(previous, node)
                if longest is not None:
                    score, matched = longest, n
                break
            found = self._ngrams.longer(n, previous, node)
            if found is None:
                break
            at, score, backoff, node, more = found
            matched = n
            backoffs.append(backoff)
            if _goes_on(backoff):
                length, place = n, self._first[n - 1] + at
        for backoff in before[matched - 1 :]:
            score = _single(score + backoff)
        if place and not self._row_of.item(place):
            self._row_of[place] = self._rows.add((word, *words)[:length], backoffs[:length])
        return score, place

    def _look_up(self, histories: Ints, words: Ints) -> tuple[Singles, tuple[Ints, Ints, Singles]]:
        """log10 p for arrays ``[n]``; the histories after the words: number, length, back-offs ``[n, order - 1]``."""
        kept, rows = self._rows, self._row_of[histories]
        known = kept.lengths[rows]
        scores, backoff, nodes, more = self._ngrams.unigrams(words)
        backoffs = np.zeros((len(words), self.order - 1), np.float32)
        backoffs[:, 0] = backoff
        on = _go_on(backoff)
        matched, lengths, places = np.ones(len(words), np.int64), on.astype(np.int64), np.where(on, 1 + words, 0)
        left = np.flatnonzero(more & (known > 0))
        nodes = nodes[left]
        for n in range(2, self.order):
            if not len(left):
                break
            at, found, backoff, nodes, more = self._ngrams.all_longer(n, kept.words[rows[left], n - 2], nodes)
            there = at >= 0
            here = left[there]
            scores[here], matched[here], backoffs[here, n - 1] = found[there], n, backoff[there]
            on = there & _go_on(backoff)
            lengths[left[on]], places[left[on]] = n, self._first[n - 1] + at[on]
            goes_on = there & more & (known[left] >= n)
            left, nodes = left[goes_on], nodes[goes_on]
        if len(left):
            at, found = self._ngrams.all_longest(kept.words[rows[left], self.order - 2], nodes)
            here = left[at >= 0]
            scores[here], matched[here] = found[at >= 0], self.order
        for column in range(self.order - 1):
            longer = np.flatnonzero((column >= matched - 1) & (column < known))
            scores[longer] += kept.backoffs[rows[longer], column]
        return scores, (places, lengths, backoffs)


class _Histories:
    """Words and back-offs of the histories that have been met, the last word first. Row 0 is the empty history."""

    def __init__(self, longest: int) -> None:
        self.listed: list[tuple[tuple[int, ...], tuple[float, ...]]] = []
        self.words = np.zeros((_FIRST, longest), np.int64)
        self.backoffs = np.zeros((_FIRST, longest), np.float32)
        self.lengths = np.zeros(_FIRST, np.int64)
        self.add((), ())

    def add(self, words: Sequence[int], backoffs: Sequence[float]) -> int:
        """The row of one more history."""
        row, length = len(self.listed), len(words)
        self.listed.append((tuple(words), tuple(backoffs)))
        if row == len(self.lengths):
            self.words, self.backoffs, self.lengths = (
                np.concatenate([kept, np.zeros_like(kept)]) for kept in (self.words, self.backoffs, self.lengths)
            )
        self.words[row, :length], self.backoffs[row, :length], self.lengths[row] = words, backoffs, length
        return row


def _goes_on(backoff: float) -> bool:
    """Whether longer n-grams begin with this one, or it has a back-off: KenLM stores -0.0 if not."""
    return backoff != 0 or copysign(1.0, backoff) > 0


def _go_on(backoffs: Singles) -> Bools:
    """`_goes_on` for each of an array."""
    on: Bools = (backoffs != 0) | ~np.signbit(backoffs)
    return on
