"""How the scores of several predictors meet: candidates, combined score, the best continuations.

One `Column` holds what one predictor says about a batch of nodes. `combine` decides for each row which tokens are
candidates: the intersection of what restricting rows list, or the whole vocabulary if nothing restricts. It gives
one `Combined` for the batch, of two kinds of rows:

- *listed* rows, where something restricts: a short list of tokens, looked up in every predictor;
- *dense* rows: all V tokens, as one weighted sum of matrices, on the device where the scores already are.

The combined score of token w is ``sum_k weight_k * score_k(w)`` (SGNMT, section 2.1), over predictors whose weight
is not None. A score of -inf forbids the token, whatever the weight. Of a dense row only the best tokens go on; from
there both kinds are one: the tokens of all rows in one flat array, their scores by predictor looked up, summed in
float64 and sorted for all rows at once. So the ledger always adds up to the total.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from math import isnan
from operator import add
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from sgdec import arrays
from sgdec.errors import SgdecError, UsageError
from sgdec.protocol import FORBIDDEN, Array, Candidates, Scores, SparseRow
from sgdec.scores import FEW
from sgdec.topk import top_tokens

FIRST_BLOCK = 64
"""Lazy expansion of a dense row sorts this many tokens first, then the rest."""


Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]
Continuation: TypeAlias = tuple[int, float, tuple[float, ...]]
"""One token that can follow; its combined score; its unweighted scores ``[K]``, 0 where a predictor was not asked."""


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

    def add_restricting(self, listed: Sequence[list[SparseRow]]) -> bool:
        """Adds this predictor's restricting rows to those of each node; whether there are any."""
        if self.scores is None or self.scores.values is not None or self.scores.asked is not None:
            return False  # an answer to candidates is open: what it forbids, it scores -inf
        rows, any_restricts = self.scores.rows, False
        for found, place in zip(listed, self.places, strict=True):
            if place is not None and rows[place].restricts:
                found.append(rows[place])
                any_restricts = True
        return any_restricts


def candidates_of(rows: Sequence[SparseRow]) -> Candidates | None:
    """The tokens that all of these restricting rows list, ascending; None if there is no row."""
    if not rows:
        return None
    if len(rows) == 1:
        return rows[0].candidates
    smallest = min(rows, key=len)
    if len(smallest) <= FEW:
        others = [row.lookup for row in rows if row is not smallest]
        return [token for token in smallest.candidates if all(token in other for other in others)]
    tokens = smallest.arrays[0]
    for row in rows:
        if row is not smallest:
            tokens = np.intersect1d(tokens, row.arrays[0], assume_unique=True)
    common: list[int] = tokens.tolist()
    return common


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
        self._dense = [node for node, tokens in enumerate(candidates) if tokens is None]
        self._listed = [node for node, tokens in enumerate(candidates) if tokens is not None]
        self._tokens = [tokens for tokens in candidates if tokens is not None]
        if not self._dense:  # the very object that predictors on demand were given: see `Scores.asked`
            self._tokens = cast("list[Candidates]", candidates)
        self._sparse = all(column.scores is None or column.scores.values is None for column in columns)
        self._matrix = self._sum_dense_rows() if self._dense else None

    def best(self, limit: int) -> list[list[Continuation]]:
        """For each node its ``limit`` best continuations, best first, lower token first."""
        found: dict[int, list[Continuation]] = {}
        if self._listed:
            found.update(zip(self._listed, self._meet(self._listed, self._tokens, limit), strict=True))
        if self._matrix is not None:
            tokens = top_tokens(self._matrix, limit).tolist()
            found.update(zip(self._dense, self._meet(self._dense, tokens, limit), strict=True))
        return [found[node] for node in range(len(self._candidates))]

    def all(self, node: int) -> Iterator[Continuation]:
        """One node's continuations, best first; a dense row is sorted and turned into values block by block."""
        if self._candidates[node] is not None:
            yield from self._all_listed[node]
            return
        assert self._matrix is not None
        place = self._dense.index(node)
        row = self._matrix[place : place + 1]  # [1, V]
        first = top_tokens(row, FIRST_BLOCK)
        yield from self._meet([node], first.tolist())[0]
        if first.shape[1] == row.shape[1]:
            return
        values = arrays.to_numpy(row)[0]
        order = np.lexsort((np.arange(len(values)), -values))
        for start in range(FIRST_BLOCK, len(order), FIRST_BLOCK):
            block = self._meet([node], order[None, start : start + FIRST_BLOCK].tolist())[0]
            if not block:  # only forbidden tokens are left
                return
            yield from block

    def distribution(self, node: int) -> tuple[Ints, Floats]:
        """One node's candidates, ascending, and their combined scores (float64)."""
        candidates = self._candidates[node]
        if candidates is None:
            assert self._matrix is not None
            values = arrays.to_numpy(self._matrix[self._dense.index(node)]).astype(np.float64)
            tokens = np.arange(len(values))
        else:
            continuations = sorted(self._all_listed[node])
            tokens = np.array([token for token, _, _ in continuations], dtype=np.int64)
            values = np.array([score for _, score, _ in continuations], dtype=np.float64)
        if np.isnan(values).any():
            self._blame(node, int(tokens[int(np.isnan(values).argmax())]))
        return tokens, values

    def continuation(self, node: int, token: int) -> Continuation:
        """One given continuation."""
        return self._meet([node], [[token]])[0][0]

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
                    if tokens[-1] >= owned.shape[1]:
                        raise SgdecError(
                            f"predictor {column.name!r} scores token {tokens[-1]}, which is outside the target "
                            f"vocabulary of {owned.shape[1]} tokens; all predictors must share one vocabulary."
                        )
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

    # Both kinds of rows: some tokens of each node, as flat arrays [n], one node after the other.

    @cached_property
    def _all_listed(self) -> dict[int, list[Continuation]]:
        """All continuations of the listed rows."""
        return dict(zip(self._listed, self._meet(self._listed, self._tokens), strict=True))

    def _meet(
        self, nodes: Sequence[int], tokens: Sequence[Candidates], limit: int | None = None
    ) -> list[list[Continuation]]:
        """For each of these nodes the ``limit`` best of the given tokens; forbidden ones are left out.

        All tokens are one flat array ``[n]``, node after node, and so are their scores by each predictor. Where they
        are few and no matrix is involved, the calls that arrays need would cost more than the sums.
        """
        if self._sparse and sum(map(len, tokens)) <= FEW:
            return [self._meet_few(node, wanted)[:limit] for node, wanted in zip(nodes, tokens, strict=True)]
        lengths = np.fromiter(map(len, tokens), np.int64, len(nodes))
        token = np.fromiter(chain.from_iterable(tokens), np.int64, lengths.sum())
        place = np.repeat(np.arange(len(nodes)), lengths)  # [n]: whose token it is
        scores = [_scores_at(column, nodes, tokens, token, place) for column in self._columns]
        total = np.zeros(len(token))
        for column, by_token in zip(self._columns, scores, strict=True):
            total += _times([column.weights[node] for node in nodes], by_token, place)
        if np.isnan(total).any():
            wrong = int(np.isnan(total).argmax())
            self._blame(nodes[place[wrong]], int(token[wrong]))
        order = np.lexsort((token, -total, place))  # forbidden ones last
        kept = np.bincount(place[total != FORBIDDEN], minlength=len(nodes))  # [nodes]
        if limit is not None:
            kept = np.minimum(kept, limit)
        rank = np.arange(len(token)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        best = order[rank < kept[place]]
        listed, totals, *ledger = (values[best].tolist() for values in (token, total, *scores))
        found = list(zip(listed, totals, zip(*ledger, strict=True), strict=True))
        return [found[begin:end] for begin, end in pairwise([0, *np.cumsum(kept).tolist()])]

    def _meet_few(self, node: int, tokens: Candidates) -> list[Continuation]:
        """The same of one node, all of its tokens, in plain Python."""
        totals = [0.0] * len(tokens)
        ledger: list[Sequence[float]] = []
        for column in self._columns:
            row, weight = column.sparse_row(node), column.weights[node]
            if row is None or weight is None:
                ledger.append([0.0] * len(tokens))
                continue
            scores = row.at(tokens)
            ledger.append(scores)
            if weight != 1.0:
                scores = [weight * score if score != FORBIDDEN else FORBIDDEN for score in scores]
            totals = list(map(add, totals, scores))
        if any(map(isnan, totals)):
            self._blame(node, next(token for token, total in zip(tokens, totals, strict=True) if isnan(total)))
        found = [each for each in zip(tokens, totals, zip(*ledger, strict=True), strict=True) if each[1] != FORBIDDEN]
        if len(found) > 1:
            found.sort(key=_best_first)
        return found

    def _blame(self, node: int, token: int) -> None:
        for column in self._columns:
            (score,) = _scores_at(column, [node], [[token]], np.array([token]), np.zeros(1, np.int64)).tolist()
            if isnan(score):
                raise not_a_number(column.name, token)
        raise infinities_met(token)


def not_a_number(name: str, token: int) -> SgdecError:
    """What to raise where a predictor's score is NaN."""
    return SgdecError(
        f"predictor {name!r} gave NaN as the score of token {token}; its model is broken (NaN weights?)."
    )


def infinities_met(token: int) -> SgdecError:
    """What to raise where a combined score is NaN and none of its parts is."""
    return SgdecError(f"the combined score of token {token} is NaN: infinite scores of both signs met.")


def _best_first(continuation: Continuation) -> tuple[float, int]:
    """Higher score first, then lower token."""
    return -continuation[1], continuation[0]


def _times(weights: Sequence[float | None], scores: Floats, place: Ints) -> Floats:
    """Each score ``[n]`` times the weight of its node, which is that at its ``place``; -inf stays -inf."""
    if weights.count(1.0) == len(weights):
        return scores
    forbidden = scores == FORBIDDEN
    factors = np.array([weight or 0.0 for weight in weights])[place]
    return np.where(forbidden, FORBIDDEN, np.where(forbidden, 0.0, scores) * factors)


def _scores_at(
    column: Column, nodes: Sequence[int], tokens: Sequence[Candidates], token: Ints, place: Ints
) -> Floats:
    """One predictor's unweighted scores of the given tokens, ``[n]``; 0 where it is not consulted.

    ``token`` and ``place``: the same tokens as one array, and the place of each one's node among ``nodes``.
    """
    scores = column.scores
    if scores is None:
        return np.zeros(len(token))
    if scores.flat is not None and scores.asked is tokens:
        return scores.flat
    places = [column.places[node] for node in nodes]
    if scores.values is None:
        found = [
            [0.0] * len(wanted) if row is None else scores.rows[row].at(wanted)
            for row, wanted in zip(places, tokens, strict=True)
        ]
        return np.fromiter(chain.from_iterable(found), np.float64, len(token))
    width = scores.values.shape[1]
    if token.max(initial=0) >= width:
        raise SgdecError(
            f"token {token.max()} is outside the vocabulary of predictor {column.name!r} "
            f"({width} tokens); lattice and model must share one target vocabulary."
        )
    rows = np.array([-1 if row is None else row for row in places])[place]
    picked: Floats = arrays.to_numpy(arrays.pick(scores.values, np.maximum(rows, 0), token)).astype(np.float64)
    return np.where(rows < 0, 0.0, picked)
