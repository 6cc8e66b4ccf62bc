"""Relaxations of a back-off model (`sgdec.relaxations`): bounds on the score of a word after the word before it.

The context c runs over all histories that the model distinguishes and that end in the word v, v itself included:

    highest(v, w) = max over c of p(w | c)          order 2: the state is the last word, v
    highest(w)    = max over v of highest(v, w)     order 1: one state

and `lowest` has the minima over finite scores. Listed n-grams alone do not give them: a context that does not list w
has the score of its suffix and its own back-off weight, which can be above 1.

If the longest listed n-gram by which a context c scores w is g w, the score is that of g w plus the back-offs of c
and of its suffixes that are longer than g. So the best context among those is the one with the highest sum. Suffixes
make a forest of all histories, whose roots are the states of order 2. One pass from its leaves to its roots computes
for each history and word the highest sum of the contexts that reach the history, and the highest score of the others.
Only words that a tree lists somewhere need numbers of their own: all contexts of the tree score other words by the
unigram, and the highest sum of the root is enough.

Sums have the order and the precision of `BackoffTable.step`. Rounding is monotone, so the rounded maximum is the
maximum of rounded numbers, and each extreme is the score of some context to the last bit.

Cost: O(n log n) for n n-grams, once for each model; then 12 bytes for each word that a tree lists.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt

from sgdec.arrays import Floats, Ints
from sgdec.protocol import FORBIDDEN, State
from sgdec.relaxations import Relaxation
from sgdec_predictors.ngrams.backoff import LAST_KEY, BackoffTable

Singles = npt.NDArray[np.float32]


class AtHistory(Relaxation):
    """The model itself: exact, and as large as the model.

    A lattice has few histories of a language model at each of its states, so the product is often small.
    """

    def __init__(self, table: BackoffTable, symbols: Callable[[Ints], Ints]) -> None:
        """``symbols`` gives the table's symbols of tokens ``[n]``."""
        self._table, self._symbols = table, symbols
        self.size = len(table._suffix)
        self.memory = table.order - 1

    def of(self, states: Sequence[State]) -> Sequence[int]:
        return cast("Sequence[int]", states)

    def after(self, states: Ints, tokens: Ints) -> Ints:
        return self.arcs(states, tokens)[1]

    def highest(self, states: Ints, tokens: Ints) -> Floats:
        return self.arcs(states, tokens)[0]

    def lowest(self, states: Ints, tokens: Ints) -> Floats:
        return self.arcs(states, tokens, lowest=True)[0]

    def arcs(self, states: Ints, tokens: Ints, *, lowest: bool = False) -> tuple[Floats, Ints]:
        scores, after = self._table.step_all(states, self._symbols(tokens))
        return np.where(scores == FORBIDDEN, np.inf, scores) if lowest else scores, after


class AfterLastWord(Relaxation):
    """Order 2. The relaxed state is the last word as a history, or 0 if it is merged with the empty history.

    The state after a word w depends on w alone, and `of` agrees: if the history after w is not empty, it ends in w,
    and its chain of suffixes leads to the history w or, if that is merged, to the empty one. If the history is empty,
    then all histories that end the prefix are merged with the empty one, the last word w among them.
    """

    memory = 1

    def __init__(self, table: BackoffTable, symbols: Callable[[Ints], Ints]) -> None:
        """``symbols`` gives the table's symbols of tokens ``[n]``."""
        self.symbols = symbols
        self._forest = forest = _Forest(table)
        self.size = int(forest.roots.max()) + 1
        self._of = forest.roots.astype(np.int32).data  # single numbers from views are fast, and take 4 bytes
        self._after = np.zeros(table._width, np.int64)
        unigrams = slice(table._first[1])
        self._after[table.last[unigrams]] = table._after[unigrams]

    def of(self, states: Sequence[State]) -> list[int]:
        roots = self._of
        return [roots[state] for state in cast("Sequence[int]", states)]

    def after(self, states: Ints, tokens: Ints) -> Ints:
        return self._after[self.symbols(tokens)]

    def highest(self, states: Ints, tokens: Ints) -> Floats:
        return self.most.after(states, self.symbols(tokens)).astype(np.float64)

    def lowest(self, states: Ints, tokens: Ints) -> Floats:
        return negated(self.least.after(states, self.symbols(tokens)))

    @cached_property
    def most(self) -> Extremes:
        return self._forest.extremes(1)

    @cached_property
    def least(self) -> Extremes:
        """Negated. Few searches have negative weights, so it is computed when it is first needed."""
        return self._forest.extremes(-1)


class AfterAnything(Relaxation):
    """Order 1: one state."""

    size = 1
    memory = 0

    def __init__(self, finer: AfterLastWord) -> None:
        self._finer = finer

    def of(self, states: Sequence[State]) -> list[int]:
        return [0] * len(states)

    def after(self, states: Ints, tokens: Ints) -> Ints:
        return np.zeros(len(tokens), np.int64)

    def highest(self, states: Ints, tokens: Ints) -> Floats:
        return self._most[self._finer.symbols(tokens)]

    def lowest(self, states: Ints, tokens: Ints) -> Floats:
        return self._least[self._finer.symbols(tokens)]

    @cached_property
    def _most(self) -> Floats:
        return self._finer.most.over_all().astype(np.float64)

    @cached_property
    def _least(self) -> Floats:
        return negated(self._finer.least.over_all())


class Extremes(NamedTuple):
    """The highest score of each symbol after each root."""

    roots: Ints
    width: int
    keys: Ints
    """``[n + 1]``: root x width + symbol, ascending, for the symbols that the root's tree lists; then LAST_KEY."""
    scores: Singles
    """``[n + 1]``: their highest scores."""
    backoffs: Singles
    """By root: the highest sum of back-offs of its contexts, for the other symbols."""
    unigrams: Singles
    """``[width]``"""

    def after(self, roots: Ints, symbols: Ints) -> Singles:
        """The highest scores of symbols ``[n]`` after roots ``[n]``."""
        keys = roots * self.width + symbols
        at = np.searchsorted(self.keys, keys)
        unlisted = self.backoffs[roots] + self.unigrams[symbols]
        found: Singles = np.where(self.keys[at] == keys, self.scores[at], unlisted)
        return found

    def over_all(self) -> Singles:
        """``[width]``: the highest score of each symbol after any root."""
        ranked = self.roots[np.argsort(-self.backoffs[self.roots])]
        ranks = np.zeros(len(self.backoffs), np.int64)
        ranks[ranked] = np.arange(len(ranked))
        backoffs = np.append(self.backoffs[ranked], np.float32(-np.inf))
        roots, symbols = np.divmod(self.keys[:-1], self.width)
        order = np.lexsort((ranks[roots], symbols))
        starts, absent = _first_absent(symbols[order], ranks[roots[order]])
        listed = symbols[order[starts]]
        highest: Singles = backoffs[0] + self.unigrams
        listed_there = _groups_maximum(self.scores[order], starts)
        highest[listed] = np.maximum(listed_there, backoffs[absent] + self.unigrams[listed])
        return highest


class _Pairs(NamedTuple):
    """Histories of one level of the forest, each with the words that it or a longer history of its tree lists."""

    keys: Ints
    """``[n]``: history x width + symbol, ascending."""
    backoffs: Singles
    """``[n]``: the highest sum of back-offs of a context, this history's included; -inf if it lists the word."""
    scores: Singles
    """``[n]``: the highest score by an n-gram that the history or a longer one of its tree lists."""


class _Forest:
    """The histories of a model as trees, the parent of each being its suffix. Merged histories are left out."""

    def __init__(self, table: BackoffTable) -> None:
        self._table = table
        nodes = np.arange(len(table._suffix))
        unigrams = slice(1, 1 + table._first[1])
        self._parents = table._suffix.copy()
        self._parents[unigrams] = table._distinct[unigrams]
        self.roots = nodes
        """By history: the root of its tree."""
        self._depths = np.zeros(len(nodes), np.int64)
        while (moved := self._parents[self.roots] != self.roots).any():
            self._depths += moved
            self.roots = self._parents[self.roots]
        self._depths[table._distinct != nodes] = -1

    def extremes(self, sign: int) -> Extremes:
        """The highest scores; if ``sign`` is -1, of negated scores: the lowest finite scores, negated."""
        table = self._table
        width, unigrams = table._width, table._first[1]
        scores, backoffs = sign * table.scores, sign * table._backoff
        scores[np.isposinf(scores)] = -np.inf
        levels = np.repeat(self._depths, np.diff(table._first))  # of the n-grams, by their histories
        levels[:unigrams] = -1
        arriving = np.zeros(len(backoffs), np.float32)
        leaving = np.zeros(len(backoffs), np.float32)
        """By history: the highest sums of back-offs of contexts down to it, without and with its own."""
        pairs = _Pairs(np.empty(0, np.int64), np.empty(0, np.float32), np.empty(0, np.float32))
        for level in range(self._depths.max(), -1, -1):
            children = np.flatnonzero(self._depths == level + 1)
            np.maximum.at(arriving, self._parents[children], leaving[children])
            handed = self._handed_down(pairs, children, leaving)
            listed = np.flatnonzero(levels == level)
            pairs = self._with_listed(handed, table._keys[listed], scores[listed], arriving, backoffs)
            nodes = np.flatnonzero(self._depths == level)
            leaving[nodes] = arriving[nodes] + backoffs[nodes]
        row = np.zeros(width, np.float32)
        row[table.last[:unigrams]] = scores[:unigrams]
        best = np.maximum(pairs.scores, pairs.backoffs + row[pairs.keys % width])
        roots = np.flatnonzero(self._depths == 0)
        keys = np.append(pairs.keys, LAST_KEY)
        return Extremes(roots, width, keys, np.append(best, np.float32(0)), leaving[: roots.max() + 1], row)

    def _handed_down(self, pairs: _Pairs, children: Ints, leaving: Singles) -> _Pairs:
        """The parents of the children with the words that the children know; sums without the parents' back-offs.

        Contexts also come from the children that do not know the word. The highest of their sums is that of the first
        child, in the order of sums, that is absent from the word's group.
        """
        width = self._table._width
        children = children[np.lexsort((-leaving[children], self._parents[children]))]
        parents = np.append(self._parents[children], -1)
        ranks = np.zeros(len(leaving), np.int64)
        ranks[children] = np.arange(len(children)) - np.searchsorted(parents[:-1], parents[:-1])
        histories, symbols = np.divmod(pairs.keys, width)
        keys = self._parents[histories] * width + symbols
        order = np.lexsort((ranks[histories], keys))
        starts, absent = _first_absent(keys[order], ranks[histories[order]])
        keys = keys[order[starts]]
        at = np.searchsorted(parents[:-1], keys // width) + absent
        exists = parents[at] == keys // width
        other = np.full(len(keys), -np.inf, np.float32)
        other[exists] = leaving[children[at[exists]]]
        backoffs = np.maximum(np.maximum(other, 0), _groups_maximum(pairs.backoffs[order], starts))
        return _Pairs(keys, backoffs, _groups_maximum(pairs.scores[order], starts))

    def _with_listed(
        self, handed: _Pairs, listed: Ints, scores: Singles, arriving: Singles, backoffs: Singles
    ) -> _Pairs:
        """The pairs of a level: those handed down from longer histories, and the n-grams that it lists itself."""
        keys = np.concatenate([handed.keys, listed])
        keys.sort(kind="stable")  # merges the two ascending parts
        keys = keys[np.flatnonzero(np.diff(keys, prepend=-1))]
        histories = keys // self._table._width
        known, own = np.searchsorted(keys, handed.keys), np.searchsorted(keys, listed)
        falling = arriving[histories]
        falling[known] = handed.backoffs
        best = np.full(len(keys), -np.inf, np.float32)
        best[known] = handed.scores
        best[own] = np.maximum(best[own], falling[own] + scores)
        falling += backoffs[histories]
        falling[own] = -np.inf
        return _Pairs(keys, falling, best)


def negated(values: Singles) -> Floats:
    """Lowest scores from the highest negated ones; -inf if no score is finite."""
    lowest = -values.astype(np.float64)
    lowest[np.isposinf(lowest)] = -np.inf
    return lowest


def _first_absent(groups: Ints, ranks: Ints) -> tuple[Ints, Ints]:
    """The start of each group, and the lowest rank that it lacks. Groups and the ranks in each are ascending."""
    starts = np.flatnonzero(np.diff(groups, prepend=-1))
    sizes = np.diff(starts, append=len(groups))
    places = np.arange(len(groups)) - np.repeat(starts, sizes)
    lacking = np.where(ranks > places, places, np.repeat(sizes, sizes))
    return starts, np.minimum.reduceat(lacking, starts) if len(starts) else starts


def _groups_maximum(values: Singles, starts: Ints) -> Singles:
    """The maximum of each group of values."""
    return np.maximum.reduceat(values, starts) if len(starts) else values
