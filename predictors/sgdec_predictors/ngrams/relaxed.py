"""Relaxations of scored n-grams: by context, and by token alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from sgdec import BOS
from sgdec.arrays import MORE, Floats, Ints
from sgdec.relaxations import Relaxation
from sgdec_predictors.automata.keyed import Keyed
from sgdec_predictors.ngrams.table import NgramTable


class ByContext(Relaxation):
    """The contexts of a table: exact, unless scores are discounted.

    A token's score after a context is stored for the tokens that extend the context to an n-gram. For all others it
    is the score after the context that the context falls back to, as in Aho and Corasick (1975).
    """

    def __init__(self, table: NgramTable, discounted: bool) -> None:
        """``discounted``: each n-gram adds its score times a factor from 0 to 1."""
        contexts = sorted(table.own, key=len)  # the empty one is 0
        self.size = len(contexts)
        self.memory = len(contexts[-1])
        self._place = {context: i for i, context in enumerate(contexts)}
        self._falls_to = np.array([self._place[table.longest(context[1:])] for context in contexts])
        after = {
            self._place[context[:-1]] * MORE + context[-1]: (self._place[context],)
            for context in contexts
            if context and context[-1] != BOS
        }
        scores = {
            place * MORE + token: _extremes(table, context, token, discounted)
            for context, place in self._place.items()
            for token in table.own[context]
        }
        self._after, self._scores = Keyed(after, 1), Keyed(scores, 2)

    def of(self, states: Sequence[Any]) -> list[int]:
        return [self._place[state.context] for state in states]

    def after(self, states: Ints, tokens: Ints) -> Ints:
        return self._find(self._after, states, tokens)[:, 0].astype(np.int64)

    def highest(self, states: Ints, tokens: Ints) -> Floats:
        return self._find(self._scores, states, tokens)[:, 1]

    def lowest(self, states: Ints, tokens: Ints) -> Floats:
        return self._find(self._scores, states, tokens)[:, 0]

    def _find(self, wanted: Keyed, states: Ints, tokens: Ints) -> Floats:
        """The values of the longest context of each state that has the token; zeros if none has it."""
        found = np.zeros((len(tokens), wanted.values.shape[1]))
        rows = np.arange(len(tokens))
        while len(rows):
            place, there = wanted.find(states[rows] * MORE + tokens[rows])
            found[rows[there]] = wanted.values[place[there]]
            rows = rows[~there & (states[rows] > 0)]
            states = self._falls_to[states]
        return found


class ByToken(Relaxation):
    """The extreme scores of each token after all contexts."""

    size = 1
    memory = 0

    def __init__(self, table: NgramTable, discounted: bool) -> None:
        extremes: dict[int, tuple[float, float]] = {}
        for context, row in table.own.items():
            for token in row:
                low, high = _extremes(table, context, token, discounted)
                before = extremes.get(token, (0.0, 0.0) if token not in table.own[()] else (math.inf, -math.inf))
                extremes[token] = min(low, before[0]), max(high, before[1])
        self._scores = Keyed(extremes, 2)

    def of(self, states: Sequence[Any]) -> list[int]:
        return [0] * len(states)

    def after(self, states: Ints, tokens: Ints) -> Ints:
        return np.zeros(len(tokens), np.int64)

    def highest(self, states: Ints, tokens: Ints) -> Floats:
        return self._find(tokens)[:, 1]

    def lowest(self, states: Ints, tokens: Ints) -> Floats:
        return self._find(tokens)[:, 0]

    def _find(self, tokens: Ints) -> Floats:
        place, there = self._scores.find(tokens)
        found: Floats = np.where(there[:, None], self._scores.values[place], 0.0)
        return found


def _extremes(table: NgramTable, context: tuple[int, ...], token: int, discounted: bool) -> tuple[float, float]:
    """The lowest and the highest score of a token after a context.

    Sums of discounted scores are rounded once (`math.fsum`), and so are these, so rounding keeps their order.
    """
    whole = table.row(context)[token]
    if not discounted:
        return whole, whole
    parts = [table.own[suffix].get(token, 0.0) for suffix in table.suffixes(context)]
    return (
        min(whole, math.fsum(min(part, 0.0) for part in parts)),
        max(whole, math.fsum(max(part, 0.0) for part in parts)),
    )
