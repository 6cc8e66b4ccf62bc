"""A language model in KenLM's binary format, mapped into memory and queried in its own layout (Heafield 2011).

A look-up goes from the word to longer n-grams that end with it, as long as the history and the file have more; its
score is that of the longest, plus the back-offs of the histories longer than its own. Scores are equal to KenLM's bit
for bit: sums of float32 numbers in its order.

A history is a number: that of the n-gram which KenLM keeps as its state, among all n-grams of the file. It is the
longest one that ends the prefix and has longer n-grams or a back-off. Its words and their back-offs are kept when it
is met.
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_float
from functools import lru_cache
from itertools import accumulate
from math import copysign

import numpy as np
import numpy.typing as npt

from sgdec.arrays import Ints
from sgdec.files import LN_10
from sgdec_predictors.ngrams.kenlm_file import cannot_read, read_kenlm, translated
from sgdec_predictors.ngrams.kenlm_header import Bools, DamagedKenlm, Singles

History = tuple[tuple[int, ...], tuple[float, ...]]
ROWS_KEPT = 256
"""A row is a look-up for each column, because no layout lists the words that a history has."""
_NEGATIVE_ZERO = np.uint32(1 << 31)
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
        """By order - 1: the history that is the first n-gram of that order; 0 is the empty history."""
        self._met = _Histories(self._first[-1], self.order - 1)
        self._row = lru_cache(ROWS_KEPT)(self._score_columns)
        self._columns = np.array([self.symbol(column) for column in columns], np.int64)
        begin = self.symbol("<s>")
        ((_, _, backoff),) = translated(path, lambda: self._ngrams.ending(begin, ()))
        self.start = 1 + begin
        self._met[self.start] = (begin,), (backoff,)

    def __contains__(self, word: str) -> bool:
        return self.symbol(word) != 0

    def rows(self, histories: Sequence[int]) -> Singles:
        """``[rows, columns]``: ln p of every column after each history; the last rows are kept."""
        return np.stack([self._row(history) for history in histories])

    def score(self, history: int, word: str) -> float:
        """ln p of one word."""
        return self.step(history, self.symbol(word))[0]

    def symbol(self, word: str) -> int:
        """The number of a word in `step` and `step_all`. Raises `SgdecError`."""
        return translated(self._path, lambda: self._ngrams.word(word))

    def step(self, history: int, symbol: int) -> tuple[float, int]:
        """ln p of one word, and the history after it. Raises `SgdecError`."""
        before, carried = self._met[history]
        try:
            found = self._ngrams.ending(symbol, before)
        except DamagedKenlm as error:
            raise cannot_read(self._path, error) from None
        _, score, _ = found[-1]
        for backoff in carried[len(found) - 1 :]:
            score = c_float(score + backoff).value
        after, length = 0, min(len(found), self.order - 1)
        while length and not after:
            place, _, backoff = found[length - 1]
            if backoff or copysign(1.0, backoff) > 0:  # not -0.0, which says that no n-gram begins so
                after = self._first[length - 1] + place
                if after not in self._met:
                    self._met[after] = (symbol, *before)[:length], tuple([entry[2] for entry in found[:length]])
            length -= 1
        return score * LN_10, after

    def step_all(self, histories: Ints, symbols: Ints) -> tuple[npt.NDArray[np.float64], Ints]:
        """`step` for arrays ``[n]``, with bit-equal numbers."""
        scores, after, backoffs = self._look_up(histories, symbols)
        new = self._met.new(after)
        if len(new):
            rows = self._met.rows(histories[new])
            before = self._met.words[rows]
            words = np.concatenate([symbols[new, None], before[:, :-1]], axis=1)
            self._met.add(after[new], words, backoffs[new], np.searchsorted(self._first, after[new], side="right"))
        return scores.astype(np.float64) * LN_10, after

    def _score_columns(self, history: int) -> Singles:
        histories = np.full(len(self._columns), history)
        scores, *_ = self._look_up(histories, self._columns)
        with np.errstate(over="ignore"):  # an infinite score is an error of the search
            return (scores.astype(np.float64) * LN_10).astype(np.float32)

    def _look_up(self, histories: Ints, words: Ints) -> tuple[Singles, Ints, Singles]:
        """log10 p and the history after each word ``[n]``, and the back-offs of the n-grams that end with the words
        ``[n, order - 1]``, by order."""
        with np.errstate(over="ignore", invalid="ignore"):  # numbers of a damaged file are errors of the search
            return translated(self._path, lambda: self._looked_up(histories, words))

    def _looked_up(self, histories: Ints, words: Ints) -> tuple[Singles, Ints, Singles]:
        rows = self._met.rows(histories)
        before, carried = self._met.words[rows], self._met.backoffs[rows]
        scores, backoff = self._ngrams.unigrams(words)
        after = np.where(_go_on(backoff), 1 + words, 0)
        backoffs = np.full(before.shape, -0.0, np.float32)
        backoffs[:, 0] = backoff
        known = self._met.lengths[rows]
        for n, (found, places, of, backoff) in enumerate(self._ngrams.all_ending(words, before, known), 2):
            scores += carried[:, n - 2]
            scores[found] = of
            if n < self.order:
                backoffs[found, n - 1] = backoff
                on = np.flatnonzero(_go_on(backoff))
                after[found[on]] = self._first[n - 1] + places[on]
        return scores, after, backoffs


class _Histories(dict[int, History]):
    """Words and back-offs of the histories that have been met, the last word first: singly, or in rows of arrays."""

    def __init__(self, count: int, longest: int) -> None:
        """``count``: the number of histories that can be met; memory is taken by those that are."""
        super().__init__({0: ((), ())})
        self._row_of = np.zeros(count, np.int64)
        """The row of each history; 0 = it has none, or it is the empty history."""
        self._size = 1
        self.words = np.zeros((_FIRST, longest), np.int64)
        self.backoffs = np.full((_FIRST, longest), -0.0, np.float32)
        """-0.0, which changes no sum, where a history is shorter."""
        self.lengths = np.zeros(_FIRST, np.int64)

    def __missing__(self, history: int) -> History:
        row = self._row_of[history]
        length = self.lengths[row]
        words, backoffs = self.words[row, :length].tolist(), self.backoffs[row, :length].tolist()
        found = self[history] = tuple(words), tuple(backoffs)
        return found

    def rows(self, histories: Ints) -> Ints:
        """The row of each history ``[n]``."""
        rows: Ints = self._row_of[histories]
        if not rows.all():
            for history in {*histories[rows == 0].tolist()} - {0}:
                words, backoffs = self[history]
                row, length = int(self._take(1)[0]), len(words)
                self.words[row, :length], self.backoffs[row, :length] = words, backoffs
                self._row_of[history], self.lengths[row] = row, length
            rows = self._row_of[histories]
        return rows

    def new(self, histories: Ints) -> Ints:
        """The indices in ``histories`` at which each one without a row is met for the first time."""
        places = np.flatnonzero((self._row_of[histories] == 0) & (histories > 0))
        return places[np.unique(histories[places], return_index=True)[1]] if len(places) else places

    def add(self, histories: Ints, words: Ints, backoffs: Singles, lengths: Ints) -> None:
        """Add different histories, with ``words`` and ``backoffs`` ``[n, longest]``, the last word first.

        Words after the first ``lengths`` mean nothing; their back-offs are -0.0, or the history would be longer.
        """
        rows = self._row_of[histories] = self._take(len(histories))
        self.words[rows], self.backoffs[rows], self.lengths[rows] = words, backoffs, lengths

    def _take(self, count: int) -> Ints:
        """New rows, with room for them."""
        first, self._size = self._size, self._size + count
        if self._size > len(self.lengths):
            more, width = self._size, self.words.shape[1]
            self.words = np.concatenate([self.words, np.zeros((more, width), np.int64)])
            self.backoffs = np.concatenate([self.backoffs, np.full((more, width), -0.0, np.float32)])
            self.lengths = np.concatenate([self.lengths, np.zeros(more, np.int64)])
        return np.arange(first, self._size)


def _go_on(backoffs: Singles) -> Bools:
    """True for all back-offs but -0.0."""
    on: Bools = backoffs.view(np.uint32) != _NEGATIVE_ZERO
    return on
