"""Combination for unrestricted rows: nodes that every token of the vocabulary can follow.

R nodes, V tokens, K predictors. A predictor answers with a matrix ``[R, V]``, or with one default per row and a few
tokens that differ from it. The combined scores are one weighted sum ``[R, V]``, in the precision and on the device of
the scores. Only the best tokens of each row leave the device. Their scores are then looked up predictor by predictor
and summed again in float64, so the ledger always adds up to the total.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sgdec.errors import SgdecError, UsageError
from sgdec.protocol import FORBIDDEN, Array
from sgdec.search import arrays
from sgdec.search.columns import Floats, Ints, agreed_width, not_in_vocabulary
from sgdec.search.continuations import Block, Continuation
from sgdec.search.faults import fault, first_fault
from sgdec.search.parts import OpenRows, Part
from sgdec.topk import top_tokens


class Ranked(NamedTuple):
    """C tokens of each row with their scores: higher score first, then lower token; forbidden tokens last."""

    tokens: Ints
    """``[R, C]``"""
    scores: Floats
    """``[R, C]``: combined scores; -inf = forbidden."""
    ledger: Floats
    """``[R, C, K]``: unweighted scores by predictor; 0 for a predictor that is not consulted."""


class DenseRows:
    """The combined scores of R unrestricted nodes.

    Methods raise SgdecError, naming the predictor, if a score that affects the result is NaN or +inf, or if a sum
    overflows.
    """

    def __init__(self, parts: Sequence[Part], rows: int, vocab_size: int | None) -> None:
        """``parts``: one per predictor ``[K]``; ``rows``: R.

        Raises UsageError if widths differ or V is unknown, SgdecError for a token outside 0..V-1.
        """
        width = agreed_width([(part.name, part.width) for part in parts], vocab_size)
        if width is None:
            raise UsageError(
                "no predictor restricts the next token, and the number of target tokens is unknown; "
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
        """The tokens with the highest combined scores: ``[R, min(limit, V)]``, best first (ties: lower token)."""
        return top_tokens(self._matrix, limit)

    def ranked(self, tokens: Ints) -> Ranked:
        """Sort tokens ``[R, C]``, given in any order, by their scores."""
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
        order = np.arange(len(tokens))[:, None], np.lexsort((tokens, -scores))
        return Ranked(tokens[order], scores[order], ledger[order])

    # Results row by row.

    def best(self, limit: int) -> list[list[Continuation]]:
        """For each row its ``limit`` best continuations; forbidden tokens are left out."""
        tokens, scores, ledger = self.ranked(self.top(limit))
        size = tokens.shape[1]
        by_predictor = zip(*(ledger[:, :, k].ravel().tolist() for k in range(len(self._parts))), strict=True)
        flat = list(zip(tokens.ravel().tolist(), scores.ravel().tolist(), by_predictor, strict=True))
        kept = (scores != FORBIDDEN).sum(axis=1).tolist()
        return [flat[row * size : row * size + n] for row, n in enumerate(kept)]

    def blocks(self, size: int) -> list[Block]:
        """The same as blocks of ``size``, ranked by the float64 sums, so the scores' precision does not matter."""
        return _blocks(self.ranked(top_tokens(self._exact, size + 1)), size)

    def block_after(self, row: int, given: npt.NDArray[np.integer[Any]], size: int) -> Block:
        """The ``size`` best continuations of one row, without the tokens ``given``."""
        size = min(size, self.shape[1] - len(given))
        tokens = top_tokens(arrays.forbidding(self._exact[row : row + 1], given), size + 1)
        left = tokens[:, ~np.isin(tokens[0], given)]
        return _blocks(self._alone(row).ranked(left), size)[0]

    def continuation(self, row: int, token: int) -> Continuation:
        """The continuation of one row with this token."""
        tokens, scores, ledger = self._alone(row).ranked(np.array([[token]]))
        return int(tokens[0, 0]), float(scores[0, 0]), tuple(ledger[0, 0].tolist())

    def distribution(self, row: int) -> tuple[Ints, Floats]:
        """All tokens ``[V]``, and their combined scores ``[V]`` in one row, in float64."""
        scores = arrays.to_numpy(self._matrix[row]).astype(np.float64)
        if not scores.max(initial=FORBIDDEN) < math.inf:
            raise self._fault(row, int((scores < math.inf).argmin()))
        return np.arange(len(scores)), scores

    def _alone(self, row: int) -> DenseRows:
        """A DenseRows of one of these rows."""
        return DenseRows([part.alone(row) for part in self._parts], 1, self.shape[1])

    def _fault(self, row: int, token: int) -> SgdecError:
        """The error for a wrong sum at a token."""
        scores = [part.alone(row).scores_of(np.array([[token]])).item() for part in self._parts]
        return fault(token, [part.name for part in self._parts], [part.weights[row] for part in self._parts], scores)

    @cached_property
    def _matrix(self) -> Array:
        """``[R, V]``: the combined scores."""
        answered = [(part.answer, part.weights) for part in self._parts if part.answer is not None]
        if len(answered) == 1:
            ((answer, weights),) = answered
            if set(weights) == {1.0} and not isinstance(answer, OpenRows):
                return answer
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
        """``[R, V]``: the combined scores, summed as in the ledger: in float64, in the order of the predictors."""
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
        """Raise SgdecError if a sum ``[R, V]`` is NaN or infinite although no predictor forbids the token."""
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
    """A block of the ``size`` best continuations for each row."""
    rows = np.concatenate([found.tokens[:, :, None], found.scores[:, :, None], found.ledger], axis=2)
    kept = (found.scores != FORBIDDEN).sum(axis=1).tolist()
    return [Block(row[: min(n, size)].copy(), n > size) for row, n in zip(rows, kept, strict=True)]
