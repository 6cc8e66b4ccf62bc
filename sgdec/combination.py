"""How the scores of several predictors meet: candidates, combined score, the best continuations.

One `Column` holds what one predictor says about a batch of nodes. `combine` decides for each row which tokens are
candidates: the intersection of what restricting rows list, or the whole vocabulary if nothing restricts. It gives
one `Combined` for the batch, of two kinds of rows:

- *listed* rows, where something restricts: a short list of tokens, looked up in every predictor;
- *dense* rows: all V tokens, as one weighted sum of matrices, on the device where the scores already are.

The combined score of token w is ``sum_k weight_k * score_k(w)`` (SGNMT, section 2.1), over predictors whose weight
is not None. A score of -inf forbids the token, whatever the weight. Only the survivors of a row leave arrays: their
totals are summed once more in float64 from the scores that the ledger keeps, so the ledger always adds up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sgdec import arrays
from sgdec.errors import SgdecError, UsageError
from sgdec.protocol import FORBIDDEN, Array, Candidates, Scores, SparseRow
from sgdec.topk import top_tokens

FEW = 64
"""Rows with at most this many candidates are combined in plain Python: per-call costs of arrays would dominate."""

FIRST_BLOCK = 64
"""Lazy expansion of a dense row sorts this many tokens first, then the rest."""


class Continuation(NamedTuple):
    """One token that can follow."""

    token: int
    score: float
    """Combined, natural log."""
    scores: tuple[float, ...]
    """``[K]``, unweighted; 0 where a predictor was not consulted."""


@dataclass(frozen=True)
class Column:
    """What one predictor says about a batch of nodes."""

    name: str
    scores: Scores | None
    """None if no node of the batch consults it."""
    places: Sequence[int | None]
    """For each node its row in ``scores``; None = not consulted."""
    weights: Sequence[float | None]
    """For each node the weight of this predictor."""

    def sparse_row(self, node: int) -> SparseRow | None:
        """The node's row, if it is a sparse one."""
        place = self.places[node]
        if place is None or self.scores is None or self.scores.values is not None:
            return None
        return self.scores.rows[place]


def candidates_of(rows: Sequence[SparseRow]) -> Candidates | None:
    """The tokens that every restricting row lists, ascending; None if no row restricts."""
    restricting = [row for row in rows if row.restricts]
    if not restricting:
        return None
    smallest = min(restricting, key=len)
    if len(smallest) <= FEW:
        others = [row.lookup for row in restricting if row is not smallest]
        return sorted(token for token in smallest.lookup if all(token in other for other in others))
    tokens = smallest.arrays[0]
    for row in restricting:
        if row is not smallest:
            tokens = np.intersect1d(tokens, row.arrays[0], assume_unique=True)
    return [int(token) for token in tokens.tolist()]


class Combined:
    """The continuations of a batch of nodes, not yet sorted."""

    def __init__(
        self, columns: Sequence[Column], candidates: Sequence[Candidates | None], vocab_size: int | None
    ) -> None:
        """``candidates``: for each node the tokens that can follow, or None for all 0..V-1.

        Raises UsageError where V is needed and unknown, or a predictor's matrix is not V wide.
        """
        self._columns = columns
        self._candidates = candidates
        self._vocab_size = self._agree_on_size(vocab_size)
        self._dense = [node for node, listed in enumerate(candidates) if listed is None]
        self._matrix = self._sum_dense_rows() if self._dense else None

    def best(self, limit: int) -> list[list[Continuation]]:
        """For each node its ``limit`` best continuations, best first, lower token first."""
        dense = self._best_dense(limit)
        listed = self._listed()
        return [
            _sorted(dense[node] if node in dense else listed[node])[:limit] for node in range(len(self._candidates))
        ]

    def all(self, node: int) -> Iterator[Continuation]:
        """One node's continuations, best first; a dense row is sorted and turned into values block by block."""
        if self._candidates[node] is not None:
            yield from _sorted(self._listed_row(node))
            return
        assert self._matrix is not None
        place = self._dense.index(node)
        row = self._matrix[place : place + 1]  # [1, V]
        first = top_tokens(row, FIRST_BLOCK)
        yield from _sorted(self._gather([node], first)[0])
        if first.shape[1] == row.shape[1]:
            return
        values = arrays.to_numpy(row)[0]
        order = np.lexsort((np.arange(len(values)), -values))
        for start in range(FIRST_BLOCK, len(order), FIRST_BLOCK):
            block = self._gather([node], order[None, start : start + FIRST_BLOCK])[0]
            if not block:  # only forbidden tokens are left
                return
            yield from _sorted(block)

    def distribution(self, node: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """One node's candidates, ascending, and their combined scores (float64)."""
        candidates = self._candidates[node]
        if candidates is None:
            assert self._matrix is not None
            values = arrays.to_numpy(self._matrix[self._dense.index(node)]).astype(np.float64)
            tokens = np.arange(len(values))
        else:
            continuations = self._listed_row(node)
            tokens = np.array([c.token for c in continuations], dtype=np.int64)
            values = np.array([c.score for c in continuations], dtype=np.float64)
        if np.isnan(values).any():
            self._blame(node, int(tokens[int(np.isnan(values).argmax())]))
        return tokens, values

    def continuation(self, node: int, token: int) -> Continuation:
        """One given continuation."""
        return self._gather([node], np.array([[token]]))[0][0]

    # Dense rows.

    def _agree_on_size(self, vocab_size: int | None) -> int | None:
        for column in self._columns:
            if column.scores is not None and column.scores.values is not None:
                width = column.scores.values.shape[-1]
                if vocab_size is None:
                    vocab_size = width
                elif width != vocab_size:
                    raise UsageError(
                        f"predictor {column.name!r} scores {width} tokens, but the vocabulary has {vocab_size}; "
                        "all predictors must share one target vocabulary."
                    )
        return vocab_size

    def _sum_dense_rows(self) -> Array:
        """``[dense nodes, V]``, the combined scores of the nodes that nothing restricts."""
        if self._vocab_size is None:
            raise UsageError(
                "no predictor restricts the next token and none says how many tokens there are; "
                "give --vocab-size, or add a model or a lattice."
            )
        total: Any = None
        for column in self._columns:
            if column.scores is not None and column.scores.values is not None:
                part = self._weighted_matrix(column)
                total = part if total is None else arrays.add(total, part)
        if total is None:
            total = np.zeros((len(self._dense), self._vocab_size))
        owned = None
        for column in self._columns:  # open sparse rows: a default, and a few tokens that differ from it
            for place, node in enumerate(self._dense):
                row, weight = column.sparse_row(node), column.weights[node]
                if row is None or weight is None or not (weight or FORBIDDEN in row.scores):
                    continue
                if owned is None:
                    owned = total = total.copy() if isinstance(total, np.ndarray) else total.clone()
                owned[place] += weight * row.default
                if len(row):
                    tokens, scores = row.arrays
                    forbidden = scores == FORBIDDEN
                    bonus = weight * (np.where(forbidden, 0.0, scores) - row.default)
                    bonus[forbidden] = FORBIDDEN
                    if isinstance(owned, np.ndarray):
                        owned[place, tokens] += bonus
                    else:
                        owned[place, tokens] += arrays.like(owned, bonus)
        return total  # type: ignore[no-any-return]

    def _weighted_matrix(self, column: Column) -> Array:
        """``[dense nodes, V]``: one dense predictor's weighted scores; 0 where it is not consulted."""
        assert column.scores is not None and column.scores.values is not None
        values = column.scores.values
        places = [column.places[node] for node in self._dense]
        if places != list(range(len(values))):
            values = arrays.rows(values, [place if place is not None else 0 for place in places])
        return arrays.weighted(values, [column.weights[node] for node in self._dense])

    def _best_dense(self, limit: int) -> dict[int, list[Continuation]]:
        if self._matrix is None:
            return {}
        tokens = top_tokens(self._matrix, limit)
        return dict(zip(self._dense, self._gather(self._dense, tokens), strict=True))

    def _gather(self, nodes: Sequence[int], tokens: npt.NDArray[np.int64]) -> list[list[Continuation]]:
        """The given tokens ``[nodes, n]`` with their scores by predictor, combined in float64."""
        listed = tokens.tolist()
        columns = [_dense_at(column, nodes, tokens) or _scores_at(column, nodes, listed) for column in self._columns]
        return [self._meet(node, listed[i], [column[i] for column in columns]) for i, node in enumerate(nodes)]

    # Listed rows.

    def _listed(self) -> dict[int, list[Continuation]]:
        nodes = [node for node, listed in enumerate(self._candidates) if listed is not None]
        if not nodes:
            return {}
        tokens = [self._candidates[node] or () for node in nodes]
        columns = [_scores_at(column, nodes, tokens) for column in self._columns]
        return {node: self._meet(node, tokens[i], [column[i] for column in columns]) for i, node in enumerate(nodes)}

    def _listed_row(self, node: int) -> list[Continuation]:
        tokens = self._candidates[node] or ()
        return self._meet(node, tokens, [_scores_at(column, [node], [tokens])[0] for column in self._columns])

    def _meet(self, node: int, tokens: Sequence[int], scores: Sequence[Sequence[float] | None]) -> list[Continuation]:
        """Weighted sums, token by token; forbidden tokens are left out. ``scores``: by predictor, then token."""
        rows = [by_token if by_token is not None else [0.0] * len(tokens) for by_token in scores]
        totals: Sequence[float] = []
        for column, by_token in zip(self._columns, scores, strict=True):
            if by_token is not None:
                part = _times(column.weights[node], by_token)
                totals = [total + more for total, more in zip(totals, part, strict=True)] if totals else part
        totals = totals or [0.0] * len(tokens)
        if any(map(math.isnan, totals)):
            self._blame(node, next(token for token, total in zip(tokens, totals, strict=True) if math.isnan(total)))
        found = list(map(Continuation, tokens, totals, zip(*rows, strict=True)))
        return [each for each in found if each.score != FORBIDDEN] if FORBIDDEN in totals else found

    def _blame(self, node: int, token: int) -> None:
        for column in self._columns:
            scores = _scores_at(column, [node], [[token]])[0]
            if scores is not None and math.isnan(scores[0]):
                raise SgdecError(
                    f"predictor {column.name!r} gave NaN as the score of token {token}; "
                    "its model is broken (NaN weights?)."
                )
        raise SgdecError(f"the combined score of token {token} is NaN: infinite scores of both signs met.")


def _times(weight: float | None, scores: Sequence[float]) -> Sequence[float]:
    """Weighted scores; -inf stays -inf whatever the weight."""
    if weight is None or weight == 1.0:
        return scores
    return [weight * score if score != FORBIDDEN else FORBIDDEN for score in scores]


def _sorted(found: list[Continuation]) -> list[Continuation]:
    """Higher score first, then lower token."""
    found.sort(key=_best_first)
    return found


def _best_first(continuation: Continuation) -> tuple[float, int]:
    return -continuation.score, continuation.token


def _scores_at(column: Column, nodes: Sequence[int], tokens: Sequence[Sequence[int]]) -> list[Sequence[float] | None]:
    """One predictor's unweighted scores of the given tokens, node by node; None where it is not consulted."""
    if column.scores is None:
        return [None] * len(nodes)
    places = [column.places[node] for node in nodes]
    if column.scores.values is None:
        rows = column.scores.rows
        return [
            None if place is None else _look_up(rows[place], wanted)
            for place, wanted in zip(places, tokens, strict=True)
        ]
    lengths = [len(wanted) for wanted in tokens]
    row_index = np.repeat([place if place is not None else 0 for place in places], lengths)
    token_index = np.fromiter((token for wanted in tokens for token in wanted), np.int64, sum(lengths))
    width = column.scores.values.shape[1]
    if len(token_index) and int(token_index.max()) >= width:
        raise SgdecError(
            f"token {int(token_index.max())} is outside the vocabulary of predictor {column.name!r} "
            f"({width} tokens); lattice and model must share one target vocabulary."
        )
    flat = arrays.to_numpy(arrays.pick(column.scores.values, row_index, token_index)).astype(np.float64).tolist()
    found: list[Sequence[float] | None] = []
    start = 0
    for place, length in zip(places, lengths, strict=True):
        found.append(None if place is None else flat[start : start + length])
        start += length
    return found


def _dense_at(
    column: Column, nodes: Sequence[int], tokens: npt.NDArray[np.int64]
) -> Sequence[Sequence[float]] | None:
    """The same as `_scores_at` where all nodes have as many tokens (``[nodes, n]``) and dense rows; else None."""
    if column.scores is None or column.scores.values is None:
        return None
    places = [column.places[node] for node in nodes]
    if None in places:
        return None
    at_rows = np.repeat(np.array(places), tokens.shape[1])
    picked = arrays.to_numpy(arrays.pick(column.scores.values, at_rows, tokens.ravel()))
    return [row.tolist() for row in picked.astype(np.float64).reshape(tokens.shape)]


def _look_up(row: SparseRow, tokens: Sequence[int]) -> Sequence[float]:
    if not len(row):
        return [row.default] * len(tokens)
    if len(tokens) <= FEW:
        get, default = row.lookup.get, row.default
        return [get(token, default) for token in tokens]
    known, scores = row.arrays
    wanted = np.asarray(tokens, dtype=np.int64)
    at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    found: list[float] = np.where(known[at] == wanted, scores[at], row.default).tolist()
    return found
