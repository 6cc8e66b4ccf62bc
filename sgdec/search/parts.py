"""One predictor's answer for unrestricted rows: a matrix, or defaults and the tokens that differ from them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sgdec import arrays
from sgdec.arrays import Array, Flags, Floats, Ints
from sgdec.protocol import FORBIDDEN
from sgdec.scores import AllowedScores, DenseScores, Scores, SparseRow
from sgdec.search.columns import Column

UNASKED = SparseRow((), (), 0.0)
"""The row used for a node that does not consult the predictor."""


@dataclass(frozen=True)
class OpenRows:
    """Sparse rows that do not restrict: one default per row, and n tokens in total that differ from it."""

    default: Floats
    """``[R]``; 0 for rows that do not consult the predictor."""
    row: Ints
    """``[n]``: the row of each listed token, ascending."""
    token: Ints
    """``[n]``: the listed tokens, ascending within a row."""
    score: Floats
    """``[n]``: their scores."""

    @classmethod
    def of(cls, rows: Sequence[SparseRow | None]) -> OpenRows:
        """``rows``: ``[R]``; None = the predictor is not consulted for this row."""
        present = [UNASKED if row is None else row for row in rows]
        listed = [row.arrays for row in present]
        return cls(
            np.array([row.default for row in present]),
            np.repeat(np.arange(len(listed)), [len(tokens) for tokens, _ in listed]),
            np.concatenate([tokens for tokens, _ in listed]),
            np.concatenate([scores for _, scores in listed]),
        )

    @cached_property
    def only_forbids(self) -> bool:
        """Whether all scores are 0 or -inf: a sum with them cannot overflow."""
        return not self.default.any() and bool((self.score == FORBIDDEN).all())

    def scores_of(self, rows: Ints, tokens: Ints) -> Floats:
        """The scores of tokens in these rows; both of one shape."""
        found = self.default[rows]
        if len(self.row):
            width = max(int(tokens.max(initial=0)), int(self.token.max())) + 1
            known = self.row * width + self.token  # ascending, because rows and the tokens of each row are
            asked = rows * width + tokens
            place = np.minimum(np.searchsorted(known, asked), len(known) - 1)
            listed = known[place] == asked
            found[listed] = self.score[place[listed]]
        return found

    def added_to(self, total: Array, factors: Floats) -> Array:
        """A new matrix ``[R, V]``: ``total`` plus these rows times their ``factors`` ``[R, 1]``."""
        forbidden, infinite = self.score == FORBIDDEN, self.score == math.inf
        if not factors.any() and not forbidden.any() and not infinite.any():
            return total
        factor = factors[:, 0]
        base = np.zeros(len(factor))
        np.multiply(factor, self.default, out=base, where=factor != 0.0)
        total = total + arrays.like(total, base[:, None])
        if forbidden.all():  # a mask, which can list half of the vocabulary
            flat = total.reshape(-1)
            flat[self.row * total.shape[1] + self.token] += FORBIDDEN
            return flat.reshape(total.shape)
        more = factor[self.row] * (np.where(forbidden, 0.0, self.score) - self.default[self.row])
        more[forbidden] = FORBIDDEN
        more[infinite] = math.nan  # so that later checks find it, whatever the weight
        total[self.row, self.token] += arrays.like(total, more)
        return total


@dataclass(frozen=True)
class Marks:
    """Rows that mark the tokens that can follow; all of these have score 0."""

    allowed: Flags
    """``[R, V]``; all tokens of rows that do not consult the predictor."""
    only_forbids = True

    def scores_of(self, rows: Ints, tokens: Ints) -> Floats:
        """The scores of tokens in these rows; both of one shape."""
        return np.where(self.allowed[rows, tokens], 0.0, FORBIDDEN)

    def added_to(self, total: Array, factors: Floats) -> Array:
        """A new matrix ``[R, V]``: ``total``, where tokens without a mark are forbidden."""
        return arrays.allowing(total, self.allowed)


NO_MATRIX = (OpenRows, Marks)
"""As a tuple, because a union would be made at each step of a search."""


@dataclass(frozen=True)
class Part:
    """One predictor's answer for R rows."""

    name: str
    answer: Array | OpenRows | Marks | None
    """A matrix ``[R, V]``, open rows, or marks; None = no row consults the predictor."""
    weights: Sequence[float | None]
    """``[R]``; None = this row does not consult the predictor."""

    @classmethod
    def of(cls, column: Column, nodes: Sequence[int]) -> Part:
        """The part of a column that concerns these nodes of the batch."""
        weights = [column.weights[node] for node in nodes]
        places = [column.places[node] for node in nodes]
        if isinstance(column.scores, AllowedScores):
            allowed = column.scores.allowed[[0 if place is None else place for place in places]]
            allowed[[place is None for place in places]] = True
            return cls(column.name, Marks(allowed), weights)
        if not isinstance(column.scores, DenseScores):
            rows = [column.sparse_row(node) for node in nodes]
            return cls(column.name, None if column.scores is None else OpenRows.of(rows), weights)
        values = column.scores.values
        if places != list(range(len(values))):
            values = arrays.rows(values, [0 if place is None else place for place in places])
        return cls(column.name, values, weights)

    @classmethod
    def whole(cls, name: str, scores: Scores, weight: float) -> Part:
        """From the scores of R nodes that all have this weight; none of the rows may list the only candidates."""
        answer: Array | OpenRows | Marks
        if isinstance(scores, AllowedScores):
            answer = Marks(scores.allowed)
        else:
            answer = scores.values if isinstance(scores, DenseScores) else OpenRows.of(scores.rows)
        return cls(name, answer, [weight] * len(scores))

    @cached_property
    def matrix(self) -> Array | None:
        """Its score matrix ``[R, V]``, if it has one."""
        return None if isinstance(self.answer, NO_MATRIX) else self.answer

    @cached_property
    def open_rows(self) -> OpenRows | None:
        """Its open rows, unless they only forbid."""
        return self.answer if isinstance(self.answer, OpenRows) and not self.answer.only_forbids else None

    @cached_property
    def mask(self) -> OpenRows | Marks | None:
        """Its answer, if this changes no sum except that it forbids tokens."""
        return self.answer if isinstance(self.answer, NO_MATRIX) and self.answer.only_forbids else None

    @property
    def width(self) -> int | None:
        """The number of columns of its matrix, of scores or of marks; None if it has none."""
        matrix = self.answer.allowed if isinstance(self.answer, Marks) else self.matrix
        return None if matrix is None else int(matrix.shape[1])

    @cached_property
    def factors(self) -> Floats:
        """``[R, 1]``: its weights; 0 for rows that do not consult it."""
        return np.array([weight or 0.0 for weight in self.weights])[:, None]

    def factors_of(self, rows: Ints) -> Floats:
        """Its weights in these rows; of a shape that broadcasts to theirs."""
        same = len(set(self.weights)) == 1
        factors: Floats = self.factors[0] if same else self.factors[rows, 0]
        return factors

    @cached_property
    def consulted(self) -> Flags:
        """``[R, 1]``: whether each row consults it."""
        return np.array([weight is not None for weight in self.weights])[:, None]

    def scores_of(self, rows: Ints, tokens: Ints) -> Floats:
        """Its unweighted scores of tokens in these rows, both of one shape; 0 for rows that do not consult it."""
        if self.answer is None:
            return np.zeros(tokens.shape)
        if isinstance(self.answer, NO_MATRIX):
            return self.answer.scores_of(rows, tokens)
        picked: Floats = arrays.to_numpy(arrays.pick(self.answer, rows.ravel(), tokens.ravel())).astype(np.float64)
        found = picked.reshape(tokens.shape)
        return found if None not in self.weights else np.where(self.consulted[rows, 0], found, 0.0)

    def of_either_sign(self, rows: int) -> Floats | float:
        """``[R]``: the highest magnitude of its weighted scores; 0 if none is positive, as with log-probabilities."""
        if self.answer is None or isinstance(self.answer, Marks):
            return 0.0
        if isinstance(self.answer, OpenRows):
            magnitude = np.abs(self.answer.default)
            finite = np.isfinite(self.answer.score)
            np.maximum.at(magnitude, self.answer.row[finite], np.abs(self.answer.score[finite]))
            return magnitude * np.abs(self.factors[:, 0])
        if self.factors.min() >= 0.0 and float(self.answer.max()) <= 0.0:
            return 0.0
        return arrays.magnitudes(self.answer) * np.abs(self.factors[:, 0])

    def filled(self, shape: tuple[int, int]) -> Floats:
        """All of its scores ``[R, V]``, in float64; 0 for rows that do not consult it."""
        if self.answer is None:
            return np.zeros(shape)
        if isinstance(self.answer, OpenRows):
            values = np.repeat(self.answer.default[:, None], shape[1], axis=1)
            values[self.answer.row, self.answer.token] = self.answer.score
            return values
        if isinstance(self.answer, Marks):
            return np.where(self.answer.allowed, 0.0, FORBIDDEN)
        return np.where(self.consulted, arrays.to_numpy(self.answer).astype(np.float64), 0.0)
