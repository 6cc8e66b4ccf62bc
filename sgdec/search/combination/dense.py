"""Combination for unrestricted rows: nodes that every token of the vocabulary can follow.

R nodes, V tokens, K predictors. The combined scores are one weighted sum ``[R, V]``, in the precision and on the
device of the scores. Only the best tokens of each row leave the device. Their scores are then looked up predictor by
predictor and summed again in float64, so the ledger always adds up to the total.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sgdec import arrays
from sgdec.arrays import Array, Flags, Floats, Ints
from sgdec.context import EOS
from sgdec.errors import SgdecError, UsageError
from sgdec.protocol import FORBIDDEN
from sgdec.scores import Addable
from sgdec.search.combination.cells import best_cells
from sgdec.search.combination.choosing import Choice, Chosen, choose_cells, choose_in_groups
from sgdec.search.combination.columns import Column, not_in_vocabulary
from sgdec.search.combination.continuations import Block, Continuation
from sgdec.search.combination.faults import fault, first_fault
from sgdec.search.memory import FREE, require_room
from sgdec.topk import top_tokens

NARROW = 50
"""With at most this many continuations, plain Python is faster than array operations."""


class Ranked(NamedTuple):
    """C tokens of each row with their scores: higher score first, then lower token; forbidden tokens last."""

    tokens: Ints
    """``[R, C]``"""
    scores: Floats
    """``[R, C]``: combined scores; -inf = forbidden."""
    ledger: Floats
    """``[R, C, K]``: unweighted scores by predictor; 0 for a predictor that is not consulted."""


class Term(NamedTuple):
    """One predictor's part in the sums of R rows."""

    name: str
    scores: Addable
    weights: Sequence[float | None]
    """``[R]``; None = this row does not consult the predictor."""

    factors: Floats
    """``[R, 1]``: the weights; 0 for rows that do not consult it."""
    alike: bool
    """Whether all rows have the same weight."""

    @classmethod
    def of(cls, column: Column, nodes: Sequence[int]) -> Term:
        """The part of a column that concerns these nodes of the batch; a range = all."""
        every = isinstance(nodes, range)
        weights = column.weights if every else [column.weights[node] for node in nodes]
        factors = np.array([weight or 0.0 for weight in weights])[:, None]
        places = column.places if every else [column.places[node] for node in nodes]
        return cls(column.name, column.scores.taken(places), weights, factors, len(set(weights)) == 1)

    def factors_of(self, rows: Ints) -> Floats:
        """Its weights in these rows; of a shape that broadcasts to theirs."""
        factors: Floats = self.factors[0] if self.alike else self.factors[rows, 0]
        return factors

    @property
    def consulted(self) -> Flags:
        """``[R, 1]``: whether each row consults it."""
        return np.array([weight is not None for weight in self.weights])[:, None]

    def filled(self, width: int) -> Floats:
        """All of its scores ``[R, width]``; 0 for rows that do not consult it."""
        found = self.scores.filled(width)
        return found if None not in self.weights else np.where(self.consulted, found, 0.0)


class DenseRows:
    """The combined scores of R unrestricted nodes.

    Methods raise SgdecError, naming the predictor, if a score that affects the result is NaN or +inf, or if a sum
    overflows.
    """

    def __init__(self, columns: Sequence[Column], nodes: Sequence[int], width: int | None) -> None:
        """``columns``: one per predictor ``[K]``; ``nodes``: R of their nodes, a range = all; ``width``: V.

        Raises UsageError if V is unknown, SgdecError for a token outside 0..V-1.
        """
        if width is None:
            raise UsageError(
                "no predictor restricts the next token, and the number of target tokens is unknown; "
                "give --vocab-size, or add a model or a lattice."
            )
        self.shape = len(nodes), width
        self._terms = [Term.of(column, nodes) for column in columns]
        self._masks = [term for term in self._terms if term.scores.only_forbids]
        self._adding = [term for term in self._terms if not term.scores.only_forbids]
        """The terms that change sums."""
        exact = [term.scores.adds_exactly(term.weights) for term in self._adding]
        self._matrix_is_exact = exact in ([], [True])
        """Whether the matrix has no rounding errors, because it comes from one predictor."""
        for term in self._terms:
            for token in term.scores.ends() or ():
                if not 0 <= token < width:
                    raise not_in_vocabulary(term.name, token, width)

    def top(self, limit: int) -> Ints:
        """The tokens with the highest combined scores: ``[R, min(limit, V)]``, best first (ties: lower token)."""
        return top_tokens(self._matrix, limit)

    def ranked(self, tokens: Ints) -> Ranked:
        """Sort tokens ``[R, C]``, given in any order, by their scores."""
        rows = np.arange(len(tokens))
        scores, ledger = self.scored(np.repeat(rows, tokens.shape[1]).reshape(tokens.shape), tokens)
        order = rows[:, None], np.lexsort((tokens, -scores))
        return Ranked(tokens[order], scores[order], ledger[order])

    def scored(self, rows: Ints, tokens: Ints) -> tuple[Floats, Floats]:
        """The combined scores of tokens in these rows, both of one shape; and by predictor, ``[..., K]``."""
        ledger = self._ledger(rows, tokens)

        factors = [term.factors_of(rows) for term in self._terms]

        def add_up() -> Floats:
            scores = np.zeros(tokens.shape)
            for k, factor in enumerate(factors):
                scores += arrays.weigh(ledger[..., k], factor)
            return scores

        def refuse(scores: Floats) -> None:
            wrong = first_fault(scores.ravel(), [ledger[..., k].ravel() for k in range(len(self._terms))])
            if wrong is not None:
                raise self._fault(int(rows.ravel()[wrong]), int(tokens.ravel()[wrong]))

        scores = arrays.checked(add_up, refuse)
        if not scores.max(initial=FORBIDDEN) < math.inf:  # NaN or inf
            refuse(scores)
        return scores, ledger

    def _ledger(self, rows: Ints, tokens: Ints) -> Floats:
        """The unweighted scores of tokens in these rows, both of one shape, by predictor: ``[..., K]``."""
        ledger = np.empty((*tokens.shape, len(self._terms)))
        for k, term in enumerate(self._terms):
            found = term.scores.at(rows, tokens)
            everywhere = term.weights[0] is not None if term.alike else None not in term.weights
            ledger[..., k] = found if everywhere else np.where(term.consulted[rows, 0], found, 0.0)
        return ledger

    @np.errstate(over="ignore", invalid="ignore")
    def chosen(self, groups: Ints, before: Floats, choice: Choice, ending: Flags | None = None) -> Chosen:
        """The best continuations of all rows of a group together.

        ``groups [R]``: the group of each row, ascending. ``before [R]``: the totals of the rows. ``ending [R]``: the
        rows that only ``</s>`` can follow.
        Raises SgdecError if a total overflows.
        """
        rows = np.arange(self.shape[0])
        open_rows = rows if ending is None else rows[~ending]
        at_row, tokens = (rows, np.full(len(rows), EOS)) if self.shape[1] > EOS else (rows[:0], rows[:0])
        end_is_offered = self._offers_end(before, choice, ending) if choice.all_ends and len(tokens) else None
        cut: set[int] = set()
        cells: Chosen | None = None
        while True:
            matrix = self._matrix if len(open_rows) == len(rows) else arrays.rows(self._matrix, open_rows.tolist())
            found, token = best_cells(
                matrix, before[open_rows], groups[open_rows], choice.size,
                end=EOS, width=choice.width, rounding=self._rounding, beside=self._beside[open_rows],
            )  # fmt: skip
            more = self._cells(np.concatenate([at_row, open_rows[found]]), np.concatenate([tokens, token]), before)
            cells = more if cells is None else Chosen.joined([cells, more]).without_repeats()
            places, cut_now, opened = choose_cells(cells, groups, choice, end_is_offered)
            if not cut_now:
                return cells.at(places)
            # A row with more cells than it may offer has taken places of other rows of its beam: search these again.
            short = {int(groups[row]) for row in cut_now - cut if opened[groups[row]] < choice.size}
            open_rows = np.array([r for r in open_rows.tolist() if groups[r] in short and r not in cut_now], np.int64)
            if not len(open_rows):
                return cells.at(places)
            cut, at_row, tokens = cut_now, rows[:0], tokens[:0]

    def cells(self, rows: Ints, tokens: Ints, before: Floats) -> Chosen:
        """n given cells, without forbidden ones. Raises SgdecError for a score that is NaN or +inf."""
        found = self._cells(rows, tokens, before)
        return found.at(found.score > FORBIDDEN)

    def _offers_end(self, before: Floats, choice: Choice, ending: Flags | None) -> Flags:
        """``[R]``: whether a row offers ``</s>``."""
        rows = np.arange(self.shape[0])
        end = self._cells(rows, np.full(len(rows), EOS), before)
        error = 2 * self._rounding * (np.abs(end.score) + self._beside)
        scores: Any = self._matrix
        above, below = (arrays.like(scores, limit[:, None]) for limit in (end.score + error, end.score - error))
        surely_ahead = arrays.to_numpy((scores > above).sum(1))
        maybe_ahead = arrays.to_numpy((scores >= below).sum(1)) - 1
        offers: Flags = maybe_ahead < choice.each
        for place in np.flatnonzero(~offers & (surely_ahead < choice.each)).tolist():  # ties
            exact, _ = self.scored(np.full(self.shape[1], place), np.arange(self.shape[1]))
            offers[place] = (exact > exact[EOS]).sum() + (exact[:EOS] == exact[EOS]).sum() < choice.each
        if choice.width < math.inf:
            row, token = best_cells(scores, before, rows, 1, end=EOS, rounding=self._rounding, beside=self._beside)
            best = end.total.copy()
            np.maximum.at(best, row, self._cells(row, token, before).total)
            offers &= end.total >= best - choice.width
        return offers if ending is None else offers | ending

    def _cells(self, rows: Ints, tokens: Ints, before: Floats) -> Chosen:
        """The scores and totals of n cells, in the order given."""
        scores, ledger = self.scored(rows, tokens)
        totals = before[rows] + scores
        if not -math.inf < totals.sum() < math.inf:
            overflown = np.isinf(totals) & (scores > FORBIDDEN)
            if overflown.any():
                raise self._fault(int(rows[overflown][0]), int(tokens[overflown][0]))
        return Chosen(rows, tokens, totals, scores, ledger)

    # Results row by row.

    def best(self, limit: int) -> list[list[Continuation]]:
        """For each row its ``limit`` best continuations; forbidden tokens are left out."""
        tokens, scores, ledger = self.ranked(self.top(limit))
        size = tokens.shape[1]
        by_predictor = zip(*(ledger[:, :, k].ravel().tolist() for k in range(len(self._terms))), strict=True)
        flat = list(zip(tokens.ravel().tolist(), scores.ravel().tolist(), by_predictor, strict=True))
        kept = (scores != FORBIDDEN).sum(axis=1).tolist()
        return [flat[row * size : row * size + n] for row, n in enumerate(kept)]

    def best_together(
        self, groups: Sequence[int], before: Sequence[float], choice: Choice
    ) -> list[list[Continuation]]:
        """The continuations that `chosen` finds, by row, best first."""
        if len(before) * choice.each <= NARROW and self._matrix_is_exact:
            return choose_in_groups(self.best(choice.each), groups, before, choice)
        return self.chosen(np.array(groups), np.array(before), choice).by_row(self.shape[0])

    def of_tokens(self, tokens: Sequence[Sequence[int]]) -> list[list[Continuation]]:
        """For each row its continuations with these tokens, in the same order; forbidden ones are left out."""
        row = np.arange(len(tokens)).repeat(list(map(len, tokens)))
        token = np.fromiter(chain.from_iterable(tokens), np.int64, len(row))
        return self.cells(row, token, np.zeros(len(tokens))).by_row(len(tokens))

    def best_blocks(self, limit: int) -> list[Block]:
        """The same as `best`, in arrays."""
        return _blocks(self.ranked(self.top(limit)), limit)

    def blocks(self, size: int) -> list[Block]:
        """The same as blocks of ``size``, ranked by the float64 sums, so the precision of scores does not matter."""
        return _blocks(self.ranked(top_tokens(self._exact, size + 1)), size)

    def block_after(self, row: int, given: npt.NDArray[np.integer[Any]], size: int) -> Block:
        """The ``size`` best continuations of one row, without the tokens ``given``."""
        size = min(size, self.shape[1] - len(given))
        tokens = top_tokens(arrays.forbidding(self._exact[row : row + 1], given), size + 1)
        tokens = tokens[:, ~np.isin(tokens[0], given)]
        scores, ledger = self.scored(np.full(tokens.shape, row), tokens)
        order = np.zeros((1, 1), np.int64), np.lexsort((tokens, -scores))
        return _blocks(Ranked(tokens[order], scores[order], ledger[order]), size)[0]

    def continuation(self, row: int, token: int) -> Continuation:
        """The continuation of one row with this token."""
        scores, ledger = self.scored(np.array([row]), np.array([token]))
        return token, float(scores[0]), tuple(ledger[0].tolist())

    def distribution(self, row: int) -> tuple[Ints, Floats]:
        """All tokens ``[V]``, and their combined scores ``[V]`` in one row, in float64."""
        scores = arrays.to_numpy(self._matrix[row]).astype(np.float64)
        if not scores.max(initial=FORBIDDEN) < math.inf:
            raise self._fault(row, int((scores < math.inf).argmin()))
        return np.arange(len(scores)), scores

    def _fault(self, row: int, token: int) -> SgdecError:
        """The error for a wrong sum at a token."""
        scores = self._ledger(np.array([row]), np.array([token]))[0].tolist()
        return fault(token, [term.name for term in self._terms], [term.weights[row] for term in self._terms], scores)

    @cached_property
    def _matrix(self) -> Array:
        """``[R, V]``: the combined scores."""
        is_one = self._matrix_is_exact and [set(term.weights) for term in self._adding] == [{1.0}]
        if (not is_one or self._masks) and self.shape[0] * self.shape[1] * 8 > FREE:
            sizes = [size for term in self._adding if (size := term.scores.itemsize()) is not None]
            self._require_room(max(sizes, default=8))
        return self._masked(self._add_up() if is_one else arrays.checked(self._add_up, self._refuse_overflow))

    def _masked(self, total: Array) -> Array:
        """Sums without the tokens that masks forbid. The sums have been checked, which would have found each -inf."""
        for term in self._masks:
            total = term.scores.add_lists(total, term.factors)
        return total

    def _require_room(self, itemsize: int) -> None:
        """Raise SgdecError if a matrix of sums ``[R, V]`` cannot fit into memory."""
        rows, width = self.shape
        require_room(rows, width * itemsize, "the combined scores of", "prefixes")

    def _add_up(self) -> Array:
        """The sum without masks."""
        total: Array | None = None
        for term in self._adding:
            total = term.scores.add_matrix(total, term.weights)
        if total is None:
            total = np.zeros(self.shape)
        for term in self._adding:
            total = term.scores.add_lists(total, term.factors)
        return total

    @cached_property
    def _rounding(self) -> float:
        """The relative error of sums in the matrix whose terms have one sign."""
        if self._matrix_is_exact:
            return 0.0
        precision = arrays.precision(self._matrix)
        return 2 * len(self._terms) * precision

    @cached_property
    def _beside(self) -> Floats:
        """``[R]``: the highest magnitude of terms in the sums of a row that can have the other sign."""
        beside = np.zeros(self.shape[0])
        if not self._matrix_is_exact:
            for term in self._terms:
                beside += term.scores.magnitudes(term.factors[:, 0])
        return beside

    @cached_property
    def _exact(self) -> Array:
        """``[R, V]``: the combined scores, summed as in the ledger: in float64, in the order of the predictors."""
        if self._matrix_is_exact:
            return self._matrix
        self._require_room(8)

        def add_up() -> Floats:
            total = np.zeros(self.shape)
            for term in self._adding:
                total += arrays.weigh(term.filled(self.shape[1]), term.factors)
            return total

        return self._masked(arrays.checked(add_up, self._refuse_overflow))

    def _refuse_overflow(self, total: Any) -> None:
        """Raise SgdecError if a sum ``[R, V]`` is NaN or infinite although no predictor forbids the token."""
        wrong = arrays.infinite(total)  # [R, V]
        for term in self._adding:
            wrong = term.scores.allowed(wrong, term.consulted)
        places = np.argwhere(arrays.to_numpy(wrong))
        if len(places):
            row, token = places[0].tolist()
            raise self._fault(row, token)


def _blocks(found: Ranked, size: int) -> list[Block]:
    """A block of the ``size`` best continuations for each row."""
    rows = np.concatenate([found.tokens[:, :, None], found.scores[:, :, None], found.ledger], axis=2)
    kept = (found.scores != FORBIDDEN).sum(axis=1).tolist()
    return [Block(row[: min(n, size)].copy(), n > size) for row, n in zip(rows, kept, strict=True)]
