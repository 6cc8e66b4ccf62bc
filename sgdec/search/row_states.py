"""The states of many prefixes, and the children that they allow: from scores, or from automata as arrays."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sgdec.arrays import FORBIDDEN, MORE, Flags, Floats, Ints
from sgdec.context import EOS
from sgdec.scores import UNASKED, Scores, SparseScores
from sgdec.search.combination.choosing import Choice, Chosen, choose_rows
from sgdec.search.combination.columns import Column, not_in_vocabulary
from sgdec.search.combination.dense import DenseRows
from sgdec.search.combination.faults import fault
from sgdec.search.combination.renormalizing import renormalized
from sgdec.search.combining import agreed_width
from sgdec.search.constellation import Constellation
from sgdec.search.node import Node
from sgdec.search.product import Product


class RowStates(ABC):
    """The states of R prefixes under the weights of one constellation."""


    def __init__(self, constellation: Constellation, weights: Sequence[float | None]) -> None:
        self.constellation = constellation
        self.weights = weights
        self.count = 0
        """R."""

    @abstractmethod
    def listed(self, k: int) -> list[Any]:
        """The states ``[R]`` of predictor k, which is consulted."""

    @abstractmethod
    def state(self, k: int, row: int) -> Any:
        """One of them."""

    @abstractmethod
    def add(self, roots: Sequence[Node]) -> None:
        """Add rows after the others."""

    @abstractmethod
    def best(self, beams: Ints, totals: Floats, choice: Choice, ending: Flags) -> Chosen:
        """The best children of all rows of a beam together, as in `sgdec.rows.HypothesisRows.best_together`."""

    @abstractmethod
    def firsts(self, ending: Flags) -> Sequence[int]:
        """After `best`: the best token of each row; </s> for rows without children."""

    @abstractmethod
    def cells(self, rows: Ints, tokens: Ints, totals: Floats) -> Chosen:
        """After `best`: the children of these rows with these tokens that can follow."""

    @abstractmethod
    def consume(self, rows: Ints, tokens: Ints) -> None:
        """Replace the rows by n children: child i is row ``rows[i]`` plus token ``tokens[i]``."""

    @abstractmethod
    def keep(self, rows: Ints) -> None:
        """Keep only these rows, in this order."""

    def combined(self) -> DenseRows:
        """The combined scores of all tokens."""
        constellation, rows = self.constellation, self.count
        answers = [
            SparseScores([UNASKED] * rows) if weight is None else member.predict(self.listed(k))
            for k, (member, weight) in enumerate(zip(constellation.members, self.weights, strict=True))
        ]
        width = constellation.vocab_size or _width(answers)
        answered = [
            Column(name, scores, range(rows), [self.weights[k]] * rows)
            for k, (name, scores) in enumerate(zip(constellation.names, answers, strict=True))
        ]
        constellation.answered(answered)
        columns = {
            k: replace(each, scores=_for_all_tokens(each.scores, each.name, width)) for k, each in enumerate(answered)
        }
        if constellation.renormalized:
            columns = renormalized(columns, constellation.renormalized, [None] * rows, width)
        agreed_width([(column.name, column.scores.width) for column in columns.values()], width)
        return DenseRows(list(columns.values()), range(rows), width)

    def grown(self, before: Floats, row: Ints, token: Ints, score: Floats, ledger: Sequence[Floats]) -> Floats:
        """The totals ``[n]`` of children. Raises SgdecError if one has overflowed although its score is finite."""
        with np.errstate(over="ignore"):
            totals: Floats = before[row] + score
        if not math.isfinite(totals.sum()):
            overflown = np.isinf(totals) & (score > FORBIDDEN)
            if overflown.any():
                place = int(overflown.argmax())
                scores = [float(column[place]) for column in ledger]
                raise fault(int(token[place]), self.constellation.names, self.weights, scores)
        return totals


class ScoredStates(RowStates):
    """Any predictors: their states are lists, and they consume each token."""

    def __init__(self, constellation: Constellation, weights: Sequence[float | None]) -> None:
        super().__init__(constellation, weights)
        self._states: dict[int, list[Any]] = {k: [] for k, weight in enumerate(weights) if weight is not None}

    def listed(self, k: int) -> list[Any]:
        return self._states[k]

    def state(self, k: int, row: int) -> Any:
        return self._states[k][row]

    def add(self, roots: Sequence[Node]) -> None:
        self.count += len(roots)
        self._states = {k: [*known, *self.constellation.states(k, roots)] for k, known in self._states.items()}

    def best(self, beams: Ints, totals: Floats, choice: Choice, ending: Flags) -> Chosen:
        self._rows = self.combined()
        return self._rows.chosen(beams, totals, choice, ending)

    def firsts(self, ending: Flags) -> Sequence[int]:
        best = self._rows.ranked(self._rows.top(1)).tokens[:, 0]
        firsts: list[int] = np.where(ending, EOS, best).tolist()
        return firsts

    def cells(self, rows: Ints, tokens: Ints, totals: Floats) -> Chosen:
        return self._rows.cells(rows, tokens, totals)

    def consume(self, rows: Ints, tokens: Ints) -> None:
        self.keep(rows)
        members, listed = self.constellation.members, tokens.tolist()
        self._states = {k: members[k].consume(known, listed) if known else [] for k, known in self._states.items()}

    def keep(self, rows: Ints) -> None:
        places = rows.tolist()
        self.count = len(places)
        self._states = {k: [known[place] for place in places] for k, known in self._states.items()}


class ArcStates(RowStates):
    """Automata: their states are arrays of numbers, and each arc leads to the next one."""

    def __init__(self, constellation: Constellation, weights: Sequence[float | None], product: Product) -> None:
        super().__init__(constellation, weights)
        self._product = product
        self._states: dict[int, Ints] = {k: np.empty(0, np.int64) for k in range(len(weights))}

    def listed(self, k: int) -> list[Any]:
        states: list[int] = self._states[k].tolist()
        return states

    def state(self, k: int, row: int) -> int:
        return int(self._states[k][row])

    def combined(self) -> DenseRows:
        self._arcs = self._product.arcs(list(self._states.values()), np.zeros(self.count, dtype=bool))
        return super().combined()

    def add(self, roots: Sequence[Node]) -> None:
        self.count += len(roots)
        new = {k: np.array(self.constellation.states(k, roots), np.int64) for k in self._states}
        self._states = {k: np.append(known, new[k]) for k, known in self._states.items()}

    def best(self, beams: Ints, totals: Floats, choice: Choice, ending: Flags) -> Chosen:
        self._arcs = self._product.arcs(list(self._states.values()), ending)
        row, token, score, ledger, _ = self._arcs
        self._totals = self.grown(totals, row, token, score, ledger)
        return choose_rows(row, token, score, self._totals, ledger, beams, choice)

    def firsts(self, ending: Flags) -> Sequence[int]:
        row, token, score, ledger, _ = self._arcs
        alone = np.arange(self.count)
        first = choose_rows(row, token, score, self._totals, ledger, alone, Choice(1, 1, all_ends=True))
        best = np.full(self.count, EOS)
        best[first.row] = first.token
        firsts: list[int] = best.tolist()
        return firsts

    def cells(self, rows: Ints, tokens: Ints, totals: Floats) -> Chosen:
        row, token, score, ledger, _ = self._arcs
        listed = np.isin(row * MORE + token, rows * MORE + tokens)
        return Chosen(row, token, self._totals, score, np.array(ledger).T).at(listed)

    def consume(self, rows: Ints, tokens: Ints) -> None:
        keys = self._arcs.row * MORE + self._arcs.token
        places = keys.searchsorted(rows * MORE + tokens)
        self.count = len(places)
        self._states = {k: self._arcs.after[k][places] for k in self._states}

    def keep(self, rows: Ints) -> None:
        self.count = len(rows)
        self._states = {k: known[rows] for k, known in self._states.items()}


def _width(answers: Sequence[Scores]) -> int | None:
    """The number of columns of a matrix of all these scores; None if no predictor restricts or has a matrix."""
    widths = [scores.width for scores in answers if scores.width is not None]
    if widths:
        return widths[0]
    if not any(scores.restricts for scores in answers):
        return None
    return 1 + max((ends[1] for scores in answers if (ends := scores.ends())), default=EOS)


def _for_all_tokens(scores: Scores, name: str, width: int | None) -> Scores:
    """The same scores; rows that list the only tokens become rows of ``width`` scores.

    Raises SgdecError for a token outside of this width.
    """
    if width is None or not scores.restricts:
        return scores
    for token in scores.ends() or ():
        if not 0 <= token < width:
            raise not_in_vocabulary(name, token, width)
    return scores.for_all_tokens(width)
