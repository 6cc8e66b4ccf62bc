"""Rows that nothing restricts: for each of some nodes, every token of the vocabulary can follow.

R nodes, V tokens, K predictors. What a predictor answers is a matrix ``[R, V]``, or a default a row and a few tokens
that differ from it. The combined scores are one weighted sum ``[R, V]``, in the precision and on the device of the
scores. Only the best tokens of each row come back from there; their scores are looked up predictor by predictor and
added up once more in float64. So the ledger always adds up to the total.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from sgdec.errors import SgdecError, UsageError
from sgdec.protocol import FORBIDDEN, Array
from sgdec.scores import DenseScores, Scores, SparseRow
from sgdec.search import arrays
from sgdec.search.columns import Column, Floats, Ints, agreed_width, not_in_vocabulary
from sgdec.search.continuations import Block, Continuation
from sgdec.search.faults import fault, first_fault
from sgdec.topk import top_tokens

Flags: TypeAlias = npt.NDArray[np.bool_]

UNASKED = SparseRow((), (), 0.0)
"""The row of a node that does not consult a predictor."""


class Ranked(NamedTuple):
    """Some tokens of each row: higher score first, then lower token; forbidden ones last."""

    tokens: Ints
    """``[R, C]``"""
    scores: Floats
    """``[R, C]``: combined; -inf for what is forbidden."""
    ledger: Floats
    """``[R, C, K]``: unweighted, by predictor; 0 where one is not consulted."""


@dataclass(frozen=True)
class OpenRows:
    """Sparse rows that restrict nothing: a default each, and n tokens in all that differ from it."""

    default: Floats
    """``[R]``; 0 where the predictor is not consulted."""
    row: Ints
    """``[n]``, ascending, as the following."""
    token: Ints
    score: Floats

    @classmethod
    def of(cls, rows: Sequence[SparseRow | None]) -> OpenRows:
        """``[R]``; None = the predictor is not consulted."""
        present = [UNASKED if row is None else row for row in rows]
        listed = [row.arrays for row in present]
        return cls(
            np.array([row.default for row in present]),
            np.repeat(np.arange(len(listed)), [len(tokens) for tokens, _ in listed]),
            np.concatenate([tokens for tokens, _ in listed]),
            np.concatenate([scores for _, scores in listed]),
        )

    def scores_of(self, tokens: Ints) -> Floats:
        """The scores of tokens ``[R, C]``."""
        found = np.repeat(self.default[:, None], tokens.shape[1], axis=1)
        if len(self.row):
            width = max(int(tokens.max(initial=0)), int(self.token.max())) + 1
            known = self.row * width + self.token  # ascending: so are the rows, and the tokens of a row
            asked = np.arange(len(tokens))[:, None] * width + tokens
            place = np.minimum(np.searchsorted(known, asked), len(known) - 1)
            listed = known[place] == asked
            found[listed] = self.score[place[listed]]
        return found

    def added_to(self, total: Array, factors: Floats) -> Array:
        """A new matrix ``[R, V]``: the sum with these rows times their factors ``[R, 1]``."""
        forbidden, infinite = self.score == FORBIDDEN, self.score == math.inf
        if not factors.any() and not forbidden.any() and not infinite.any():
            return total
        factor = factors[:, 0]
        base = np.zeros(len(factor))
        np.multiply(factor, self.default, out=base, where=factor != 0.0)
        more = factor[self.row] * (np.where(forbidden, 0.0, self.score) - self.default[self.row])
        more[forbidden] = FORBIDDEN
        more[infinite] = math.nan  # which cannot be overlooked, whatever the weight
        total = total + arrays.like(total, base[:, None])
        total[self.row, self.token] += arrays.like(total, more)
        return total


@dataclass(frozen=True)
class Part:
    """What one predictor says about the R rows."""

    name: str
    answer: Array | OpenRows | None
    """A matrix ``[R, V]``, or open rows; None = it is consulted nowhere."""
    weights: Sequence[float | None]
    """``[R]``; None = it is not consulted there."""

    @classmethod
    def of(cls, column: Column, nodes: Sequence[int]) -> Part:
        """Of these nodes among a batch."""
        weights = [column.weights[node] for node in nodes]
        if not isinstance(column.scores, DenseScores):
            rows = [column.sparse_row(node) for node in nodes]
            return cls(column.name, None if column.scores is None else OpenRows.of(rows), weights)
        values, places = column.scores.values, [column.places[node] for node in nodes]
        if places != list(range(len(values))):
            values = arrays.rows(values, [0 if place is None else place for place in places])
        return cls(column.name, values, weights)

    @classmethod
    def whole(cls, name: str, scores: Scores, weight: float) -> Part:
        """Of R nodes that all have this weight; none of their rows restricts."""
        answer = scores.values if isinstance(scores, DenseScores) else OpenRows.of(scores.rows)
        return cls(name, answer, [weight] * len(scores))

    @property
    def width(self) -> int | None:
        """How many tokens it scores, if it scores all."""
        return None if self.answer is None or isinstance(self.answer, OpenRows) else self.answer.shape[1]

    @cached_property
    def factors(self) -> Floats:
        """``[R, 1]``: its weights; 0 where it is not consulted."""
        return np.array([weight or 0.0 for weight in self.weights])[:, None]

    @cached_property
    def consulted(self) -> Flags:
        """``[R, 1]``"""
        return np.array([weight is not None for weight in self.weights])[:, None]

    def scores_of(self, tokens: Ints) -> Floats:
        """Its unweighted scores of tokens ``[R, C]``; 0 where it is not consulted."""
        if self.answer is None:
            return np.zeros(tokens.shape)
        if isinstance(self.answer, OpenRows):
            return self.answer.scores_of(tokens)
        rows = np.repeat(np.arange(len(tokens)), tokens.shape[1])
        picked: Floats = arrays.to_numpy(arrays.pick(self.answer, rows, tokens.ravel())).astype(np.float64)
        found = picked.reshape(tokens.shape)
        return found if None not in self.weights else np.where(self.consulted, found, 0.0)

    def alone(self, row: int) -> Part:
        """What it says about one row."""
        answer = self.answer
        if isinstance(answer, OpenRows):
            own = answer.row == row
            answer = OpenRows(
                answer.default[row : row + 1], np.zeros(own.sum(), np.int64), answer.token[own], answer.score[own]
            )
        elif answer is not None:
            answer = answer[row : row + 1]
        return Part(self.name, answer, self.weights[row : row + 1])

    def filled(self, shape: tuple[int, int]) -> Floats:
        """All of its scores ``[R, V]``, in float64; 0 where it is not consulted."""
        if self.answer is None:
            return np.zeros(shape)
        if isinstance(self.answer, OpenRows):
            values = np.repeat(self.answer.default[:, None], shape[1], axis=1)
            values[self.answer.row, self.answer.token] = self.answer.score
            return values
        return np.where(self.consulted, arrays.to_numpy(self.answer).astype(np.float64), 0.0)


class DenseRows:
    """The combined scores of R nodes that nothing restricts.

    Raises SgdecError, which names the predictor, where a score that matters is NaN or +inf, or a sum overflows.
    """

    def __init__(self, parts: Sequence[Part], rows: int, vocab_size: int | None) -> None:
        """By predictor ``[K]``; ``rows``: R.

        Raises UsageError where widths differ or V is unknown, SgdecError for a token that is not below V.
        """
        width = agreed_width([(part.name, part.width) for part in parts], vocab_size)
        if width is None:
            raise UsageError(
                "no predictor restricts the next token and none says how many tokens there are; "
                "give --vocab-size, or add a model or a lattice."
            )
        self.shape = rows, width
        self._parts = parts
        for part in parts:
            if isinstance(part.answer, OpenRows) and len(part.answer.token):
                for token in (int(part.answer.token.min()), int(part.answer.token.max())):
                    if not 0 <= token < width:
                        raise not_in_vocabulary(part.name, token, width)

    def top(self, limit: int) -> Ints:
        """The tokens with the highest combined scores: ``[R, min(limit, V)]``, best first, then the lower."""
        return top_tokens(self._matrix, limit)

    def ranked(self, tokens: Ints) -> Ranked:
        """Tokens ``[R, C]``, in any order, with their scores."""
        ledger = np.empty((*tokens.shape, len(self._parts)))
        for k, part in enumerate(self._parts):
            ledger[:, :, k] = part.scores_of(tokens)

        def add_up() -> Floats:
            scores = np.zeros(tokens.shape)
            for k, part in enumerate(self._parts):
                scores += arrays.weigh(ledger[:, :, k], part.factors)
            return scores

        def refuse(scores: Floats) -> None:
            wrong = first_fault(scores.ravel(), [ledger[:, :, k].ravel() for k in range(len(self._parts))])
            if wrong is not None:
                row, column = divmod(wrong, tokens.shape[1])
                raise self._fault(row, int(tokens[row, column]))

        scores = arrays.checked(add_up, refuse)
        if not scores.max(initial=FORBIDDEN) < math.inf:  # NaN or inf
            refuse(scores)
        order = np.lexsort((tokens, -scores))
        return Ranked(
            np.take_along_axis(tokens, order, 1),
            np.take_along_axis(scores, order, 1),
            np.take_along_axis(ledger, order[:, :, None], 1),
        )

    # The same, row by row.

    def best(self, limit: int) -> list[list[Continuation]]:
        """For each row its ``limit`` best continuations; forbidden tokens are left out."""
        found = self.ranked(self.top(limit))
        tokens, scores = found.tokens.tolist(), found.scores.tolist()
        ledger = found.ledger.transpose(0, 2, 1).tolist()  # [R, K, C]
        kept = (found.scores != FORBIDDEN).sum(axis=1).tolist()
        return [
            list(zip(tokens[row], scores[row], zip(*ledger[row], strict=True), strict=True))[: kept[row]]
            for row in range(len(kept))
        ]

    def blocks(self, size: int) -> list[Block]:
        """The same as blocks of ``size``, in the order of the sums in float64, however the scores were rounded."""
        return _blocks(self.ranked(top_tokens(self._exact, size + 1)), size)

    def block_after(self, row: int, given: npt.NDArray[np.integer[Any]], size: int) -> Block:
        """The ``size`` best continuations of one row, without the tokens ``given``."""
        size = min(size, self.shape[1] - len(given))
        tokens = top_tokens(arrays.forbidding(self._exact[row : row + 1], given), size + 1)
        left = tokens[:, ~np.isin(tokens[0], given)]
        return _blocks(self._alone(row).ranked(left), size)[0]

    def continuation(self, row: int, token: int) -> Continuation:
        """One given continuation of one row."""
        tokens, scores, ledger = self._alone(row).ranked(np.array([[token]]))
        return int(tokens[0, 0]), float(scores[0, 0]), tuple(ledger[0, 0].tolist())

    def distribution(self, row: int) -> tuple[Ints, Floats]:
        """All tokens ``[V]``, and their combined scores in one row, in float64."""
        scores = arrays.to_numpy(self._matrix[row]).astype(np.float64)
        if not scores.max(initial=FORBIDDEN) < math.inf:
            raise self._fault(row, int((scores < math.inf).argmin()))
        return np.arange(len(scores)), scores

    def _alone(self, row: int) -> DenseRows:
        """One row of these."""
        return DenseRows([part.alone(row) for part in self._parts], 1, self.shape[1])

    def _fault(self, row: int, token: int) -> SgdecError:
        """What is wrong with the sum at a token."""
        scores = [part.alone(row).scores_of(np.array([[token]])).item() for part in self._parts]
        return fault(token, [part.name for part in self._parts], [part.weights[row] for part in self._parts], scores)

    @cached_property
    def _matrix(self) -> Array:
        """``[R, V]``: the combined scores."""
        answered = [part for part in self._parts if part.answer is not None]
        if len(answered) == 1 and set(answered[0].weights) == {1.0} and not isinstance(answered[0].answer, OpenRows):
            return answered[0].answer  # type: ignore[return-value] # it is not None
        total: Array = arrays.checked(self._add_up, self._refuse_overflow)
        return total

    def _add_up(self) -> Array:
        total: Array | None = None
        for part in self._parts:
            if part.answer is not None and not isinstance(part.answer, OpenRows):
                scores = arrays.weighted(part.answer, part.weights)
                total = scores if total is None else arrays.add(total, scores)
        if total is None:
            total = np.zeros(self.shape)
        for part in self._parts:
            if isinstance(part.answer, OpenRows):
                total = part.answer.added_to(total, part.factors)
        return total

    @cached_property
    def _exact(self) -> Array:
        """The same as the scores of the ledger add up: in float64, predictor after predictor."""
        answered = [part for part in self._parts if part.answer is not None]
        if len(answered) == 1 and answered[0].width is not None and set(answered[0].weights) <= {1.0, 0.0, None}:
            return self._matrix  # nothing was rounded

        def add_up() -> Floats:
            total = np.zeros(self.shape)
            for part in answered:
                total += arrays.weigh(part.filled(self.shape), part.factors)
            return total

        total: Array = arrays.checked(add_up, self._refuse_overflow)
        return total

    def _refuse_overflow(self, total: Any) -> None:
        """Raises SgdecError where a sum is no number and nobody forbids the token."""
        wrong = arrays.infinite(total)  # [R, V]
        for part in self._parts:
            if isinstance(part.answer, OpenRows):
                forbidden = part.answer.score == FORBIDDEN
                wrong[part.answer.row[forbidden], part.answer.token[forbidden]] = False
            elif part.answer is not None:
                wrong &= ~(arrays.like(wrong, part.consulted) & arrays.forbidden(part.answer, wrong))
        places = np.argwhere(arrays.to_numpy(wrong))
        if len(places):
            row, token = places[0].tolist()
            raise self._fault(row, token)


def _blocks(found: Ranked, size: int) -> list[Block]:
    """The ``size`` best of each row; whether there are more."""
    rows = np.concatenate([found.tokens[:, :, None], found.scores[:, :, None], found.ledger], axis=2)
    kept = (found.scores != FORBIDDEN).sum(axis=1).tolist()
    return [Block(row[: min(n, size)].copy(), n > size) for row, n in zip(rows, kept, strict=True)]
