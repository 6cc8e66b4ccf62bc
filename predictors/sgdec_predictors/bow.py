"""Bag of words: the words of the output are given, their order is not (Stahlberg et al. 2017, Table 2).

Score of token w: 0 if a copy of w is left in the bag; score of ``</s>``: 0 if the bag is empty; all other tokens are
forbidden. With ``accept_subsets`` the output may end earlier. With ``accept_duplicates`` a word may also occur more
often than in the bag, so the bag gives the minimum count of each word. Together with a language model it makes any
decoder search for the best order.

State: the number of copies left of each word. Cost: per prefix, linear in the different words of the bag.
Relaxations: the same state as one number, exact, if there are fewer than 2^31; then the words of the bag without
their numbers.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Sequence
from itertools import accumulate
from operator import mul
from typing import Annotated, TypeAlias

import numpy as np
from pydantic import Field

import sgdec
from sgdec import EOS, UNK, Context, Predictor, Scores, SgdecError, Source
from sgdec.arrays import MORE, Floats, Ints
from sgdec.errors import counted
from sgdec.files import read_lines
from sgdec.protocol import FORBIDDEN, Candidates
from sgdec.relaxations import Relaxation
from sgdec_predictors.tokens.lines import TokenLines

Counts: TypeAlias = tuple[int, ...]
"""The number of copies left of each different word of the bag, in ascending order of words."""


class BagOfWords(Predictor):
    """Allows the words of the bag, in any order: line N of the file belongs to sentence N.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "bags.ids")
    ...     with open(path, "w") as file:
    ...         _ = file.write("7 4 7\\n")
    ...     predictor = BagOfWords(path)
    >>> predictor.initialize(Source(id=1, tokens=()))
    >>> for token in (4, 7, 7):
    ...     predictor.consume(token)
    ...     print(*predictor.predict_next().rows)
    SparseRow({7: 0.0}, default=-inf)
    SparseRow({7: 0.0}, default=-inf)
    SparseRow({2: 0.0}, default=-inf)
    """

    max_score = 0.0

    def __init__(
        self,
        path: Annotated[str, Field(description="bags, one per line: text, or token ids without a vocabulary")],
        accept_subsets: Annotated[bool, Field(description="the output may end with words left in the bag")] = False,
        accept_duplicates: Annotated[
            bool, Field(description="a word may occur more often in the output than in the bag")
        ] = False,
        context: Context | None = None,
    ) -> None:
        """Raises SgdecError if the file cannot be read."""
        self._path = path
        self._accept_subsets = accept_subsets
        self._accept_duplicates = accept_duplicates
        self._reader = TokenLines(context)
        try:
            self._lines = tuple(read_lines(path))
        except SgdecError as error:
            raise SgdecError(f"bow: {error}") from None
        self._words: list[int] = []
        """The different words, ascending."""
        self._left: Counts | None = ()
        """The copies left of each word; None = the prefix has a word that was not left in the bag."""
        self._relaxations: tuple[Relaxation, ...] = ()

    def initialize(self, source: Source) -> None:
        """Raises SgdecError if there is no line for this sentence, or if it has an unknown word."""
        bag = Counter(self._bag(source.id))
        self._words = sorted(bag)
        self._left = tuple(bag[word] for word in self._words)
        self._relaxations = (_AnyCopies(self._words),)
        if math.prod(left + 1 for left in self._left) < MORE:
            exact = _CopiesLeft(self._words, self._left, self._accept_subsets, self._accept_duplicates)
            self._relaxations = exact, *self._relaxations

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        if self._left is None:
            return Scores.sparse((), ())
        tokens = [word for word, left in zip(self._words, self._left, strict=True) if left or self._accept_duplicates]
        if self._accept_subsets or not any(self._left):
            tokens.insert(bisect_left(tokens, EOS), EOS)
        return Scores.sparse(tokens, [0.0] * len(tokens))

    def consume(self, token: int) -> None:
        place = bisect_left(self._words, token)
        if self._left is None or self._words[place : place + 1] != [token]:
            self._left = None
        elif self._left[place]:
            self._left = (*self._left[:place], self._left[place] - 1, *self._left[place + 1 :])
        elif not self._accept_duplicates:
            self._left = None

    def get_state(self) -> Counts | None:
        return self._left

    def set_state(self, state: Counts | None) -> None:
        self._left = state

    def best_remaining(self, states: Sequence[Counts | None]) -> list[float]:
        return [FORBIDDEN if state is None else 0.0 for state in states]

    def worst_remaining(self, states: Sequence[Counts | None]) -> list[float]:
        return [-FORBIDDEN if state is None else 0.0 for state in states]

    def relaxations(self, state: Counts | None) -> Sequence[Relaxation]:
        return self._relaxations

    def state_key(self, states: Sequence[Counts | None]) -> list[Hashable]:
        return list(states)

    def _bag(self, sentence: int) -> tuple[int, ...]:
        if sentence > len(self._lines):
            raise SgdecError(
                f"bow: {self._path} has {counted(len(self._lines), 'line')}, so none for sentence {sentence}. "
                "Expected one bag per source sentence."
            )
        line, where = self._lines[sentence - 1], f"bow: {self._path}: line {sentence}"
        tokens = self._reader.read(line, where)
        if UNK in tokens:
            unknown = next((word for word in line.split() if UNK in self._reader.read(word, where)), line)
            raise SgdecError(
                f"{where}: {unknown!r} is not in the target vocabulary (sentence {sentence}). "
                "Remove the word from the bag, or replace it."
            )
        return tokens


class _AnyCopies(Relaxation):
    """Each word of the bag can always follow, and so can ``</s>``."""

    size = 1
    memory: int | None = 0

    def __init__(self, words: Sequence[int]) -> None:
        self._words = np.array(words, np.int64)

    def of(self, states: Sequence[Counts | None]) -> list[int]:
        return [0] * len(states)

    def after(self, states: Ints, tokens: Ints) -> Ints:
        return np.zeros(len(tokens), np.int64)

    def highest(self, states: Ints, tokens: Ints) -> Floats:
        return np.where(np.isin(tokens, self._words) | (tokens == EOS), 0.0, FORBIDDEN)

    def lowest(self, states: Ints, tokens: Ints) -> Floats:
        return 0.0 - self.highest(states, tokens)  # 0, or +inf for forbidden tokens


class _CopiesLeft(_AnyCopies):
    """Exact: the numbers of copies left are the digits of one number."""

    def __init__(self, words: Sequence[int], counts: Counts, subsets: bool, duplicates: bool) -> None:
        super().__init__([*words, MORE])  # no token is MORE, so each token has a place
        bases = [count + 1 for count in counts]
        *self._units, self.size = accumulate(bases, mul, initial=1)
        """By word, the value of one copy; and the number of numbers."""
        self.memory = None
        self._of_token = np.array([*self._units, 1], np.int64), np.array([*bases, 1], np.int64)
        self._subsets, self._duplicates = subsets, duplicates

    def of(self, states: Sequence[Counts | None]) -> list[int]:
        return [sum(map(mul, self._units, state or ())) for state in states]

    def after(self, states: Ints, tokens: Ints) -> Ints:
        unit, left = self._left(states, tokens)
        return states - unit * (left > 0)

    def highest(self, states: Ints, tokens: Ints) -> Floats:
        in_bag = super().highest(states, tokens)
        left = np.where(tokens == EOS, (states == 0) | self._subsets, self._left(states, tokens)[1] > 0)
        return np.where(left | (self._duplicates & (tokens != EOS)), in_bag, FORBIDDEN)

    def _left(self, states: Ints, tokens: Ints) -> tuple[Ints, Ints]:
        """The value of one copy of each token, and the number of copies left; 0 for tokens outside the bag."""
        place = self._words.searchsorted(tokens)
        units, bases = (of_token[place] for of_token in self._of_token)
        return units, np.where(self._words[place] == tokens, states // units % bases, 0)


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[Predictor]]:
    return {"bow": BagOfWords}
