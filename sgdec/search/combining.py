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

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain, pairwise
from operator import add
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
import numpy.typing as npt

from sgdec.errors import SgdecError, UsageError
from sgdec.protocol import FORBIDDEN, Array, Candidates
from sgdec.scores import FEW
from sgdec.search import arrays
from sgdec.search.columns import Column, Floats, Ints, not_in_vocabulary, outside, scores_at
from sgdec.search.faults import fault, first_fault, forbids
from sgdec.topk import top_tokens

Found = TypeVar("Found")
Continuation: TypeAlias = tuple[int, float, tuple[float, ...]]
"""One token that can follow; its combined score; its unweighted scores ``[K]``, 0 where a predictor was not asked."""
Ranked: TypeAlias = "list[Continuation] | Floats"
"""Continuations of one node, best first: a few as values, many as rows ``[n, 2 + K]`` of the same numbers."""


@dataclass(frozen=True, slots=True)
class Block:
    """Some continuations of one node, best first, apart from all that they were chosen from."""

    ranked: Ranked
    more: bool
    """Whether others come after them."""

    def __len__(self) -> int:
        return len(self.ranked)

    def continuations(self, start: int, end: int) -> list[Continuation]:
        """Some of them, as values."""
        if isinstance(self.ranked, list):
            return self.ranked[start:end]
        rows: list[list[float]] = self.ranked[start:end].tolist()
        return [(int(token), total, tuple(scores)) for token, total, *scores in rows]

    def tokens(self) -> npt.NDArray[np.int32]:
        """``[n]``."""
        if isinstance(self.ranked, list):
            return np.array([token for token, _, _ in self.ranked], np.int32)
        return self.ranked[:, 0].astype(np.int32)


class Combined:
    """The continuations of a batch of nodes, not yet sorted.

    Raises SgdecError, which names the predictor, where a score is NaN or +inf, or a sum overflows.
    """

    forgotten = False
    _closely = False
    """Whether a sum has overflowed, and each is to be looked at."""

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
        self._sparse = not any(column.is_dense for column in columns)
        for node, tokens in zip(self._listed, self._tokens, strict=True):
            if (token := outside(tokens, vocab_size)) is not None:
                rows = ((column.name, column.sparse_row(node)) for column in columns)
                name = next((name for name, row in rows if row is not None and token in row.lookup), "?")
                raise not_in_vocabulary(name, token, vocab_size)
        if self._dense and self._vocab_size is None:
            raise UsageError(
                "no predictor restricts the next token and none says how many tokens there are; "
                "give --vocab-size, or add a model or a lattice."
            )

    def best(self, limit: int) -> list[list[Continuation]]:
        """For each node its ``limit`` best continuations, best first, lower token first."""
        return self._guarded(partial(self._best, limit))

    def _best(self, limit: int) -> list[list[Continuation]]:
        found: dict[int, list[Continuation]] = {}
        if self._listed:
            found.update(zip(self._listed, self._meet(self._listed, self._tokens, limit), strict=True))
        if self._dense:
            tokens = top_tokens(self._matrix, limit).tolist()
            found.update(zip(self._dense, self._meet(self._dense, tokens, limit), strict=True))
        return [found[node] for node in range(len(self._candidates))]

    def blocks(self, size: int) -> list[Block]:
        """For each node its ``size`` best continuations, best first, lower token first."""
        return self._guarded(partial(self._first_blocks, size))

    def _first_blocks(self, size: int) -> list[Block]:
        found: dict[int, Block] = {}
        if self._listed:
            found.update(zip(self._listed, self._blocks(self._listed, self._tokens, size), strict=True))
        if self._dense:
            tokens = top_tokens(self._exact, size + 1).tolist()
            found.update(zip(self._dense, self._blocks(self._dense, tokens, size), strict=True))
        return [found[node] for node in range(len(self._candidates))]

    def block_after(self, node: int, given: npt.NDArray[np.integer[Any]], size: int) -> Block:
        """One node's ``size`` best continuations, those with the tokens ``given`` left out."""
        return self._guarded(partial(self._block_after, node, given, size))

    def _block_after(self, node: int, given: npt.NDArray[np.integer[Any]], size: int) -> Block:
        candidates: Any = self._candidates[node]
        if candidates is None:
            place = self._dense.index(node)
            row = arrays.forbidding(self._exact[place : place + 1], given)
            (candidates,) = top_tokens(row, size + 1)
        left = np.setdiff1d(candidates, given, assume_unique=True).tolist()
        (block,) = self._blocks([node], [left], size)
        return block

    def forget(self) -> None:
        """Gives up all that was answered; nothing can be asked any more."""
        vars(self).clear()
        self.forgotten = True

    def distribution(self, node: int) -> tuple[Ints, Floats]:
        """One node's candidates, ascending, and their combined scores (float64)."""
        return self._guarded(partial(self._distribution, node))

    def _distribution(self, node: int) -> tuple[Ints, Floats]:
        candidates = self._candidates[node]
        if candidates is None:
            values = arrays.to_numpy(self._matrix[self._dense.index(node)]).astype(np.float64)
            tokens = np.arange(len(values))
        else:
            continuations = sorted(self._all_listed[node])
            tokens = np.array([token for token, _, _ in continuations], dtype=np.int64)
            values = np.array([score for _, score, _ in continuations], dtype=np.float64)
        if not values.max(initial=FORBIDDEN) < math.inf:  # NaN or inf
            raise self._fault(node, int(tokens[int((values < math.inf).argmin())]))
        return tokens, values

    def continuation(self, node: int, token: int) -> Continuation:
        """One given continuation."""
        return self._guarded(partial(self._meet, [node], [[token]]))[0][0]

    def _guarded(self, work: Callable[[], Found]) -> Found:
        """``work()``, and once more with a close look at each sum where one has overflowed."""

        def look(closely: bool) -> Found:
            self._closely = closely
            return work()

        return arrays.guarded(look)

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

    @cached_property
    def _matrix(self) -> Array:
        """``[dense nodes, V]``, the combined scores of the nodes that nothing restricts."""
        total = self._add_up_dense_rows()
        as_it_is = any(column.scores is not None and total is column.scores.values for column in self._columns)
        if not as_it_is and (self._closely or arrays.may_overflow(total)):
            self._refuse_overflow(total)
        return total

    def _add_up_dense_rows(self) -> Array:
        assert self._vocab_size is not None
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
                if row is None or weight is None or not (weight or FORBIDDEN in row.scores or math.inf in row.scores):
                    continue
                if owned is None:
                    owned = total = total.copy() if isinstance(total, np.ndarray) else total.clone()
                owned[place] += weight * row.default
                if len(row):
                    tokens, scores = row.arrays
                    if (token := outside(tokens, owned.shape[1])) is not None:  # type: ignore[arg-type]
                        raise not_in_vocabulary(column.name, int(token), owned.shape[1])
                    forbidden = scores == FORBIDDEN
                    bonus = weight * (np.where(forbidden, 0.0, scores) - row.default)
                    bonus[forbidden] = FORBIDDEN
                    bonus[scores == math.inf] = math.nan  # which cannot be overlooked, whatever the weight
                    if isinstance(owned, np.ndarray):
                        owned[place, tokens] += bonus
                    else:
                        owned[place, tokens] += arrays.like(owned, bonus)
        return total  # type: ignore[no-any-return]

    def _weighted_matrix(self, column: Column) -> Array:
        """``[dense nodes, V]``: one dense predictor's weighted scores; 0 where it is not consulted."""
        return arrays.weighted(self._rows_of(column), [column.weights[node] for node in self._dense])

    def _rows_of(self, column: Column) -> Array:
        """``[dense nodes, V]``: one dense predictor's rows; any row where it is not consulted."""
        assert column.scores is not None and column.scores.values is not None
        values = column.scores.values
        places = [column.places[node] for node in self._dense]
        if places == list(range(len(values))):
            return values
        return arrays.rows(values, [place if place is not None else 0 for place in places])

    def _refuse_overflow(self, total: Any) -> None:
        """Raises SgdecError where a sum is no number and nobody forbids the token."""
        wrong = arrays.infinite(total)  # [dense nodes, V]
        for column in self._columns:
            if column.is_dense:
                consulted = arrays.like(wrong, np.array([[column.weights[node] is not None] for node in self._dense]))
                wrong &= ~(consulted & arrays.forbidden(self._rows_of(column), wrong))
            for place, node in enumerate(self._dense):
                row = column.sparse_row(node)
                if row is not None and column.weights[node] is not None:
                    tokens, scores = row.arrays
                    wrong[place, tokens[scores == FORBIDDEN]] = False
        places = np.argwhere(arrays.to_numpy(wrong))
        if len(places):
            place, token = places[0].tolist()
            raise self._fault(self._dense[place], token)

    @cached_property
    def _exact(self) -> Array:
        """The same as the scores of the ledger add up: in float64, predictor after predictor."""
        answered = [column for column in self._columns if column.scores is not None]
        weights = [[column.weights[node] for node in self._dense] for column in answered]
        if len(answered) == 1 and answered[0].is_dense and set(weights[0]) <= {1.0, 0.0, None}:
            return self._matrix  # nothing was rounded
        total = np.zeros(self._matrix.shape)
        for column, factors in zip(answered, weights, strict=True):
            total += arrays.weighted(column.filled(self._dense, total.shape[1]), factors)
        return total

    # Both kinds of rows: some tokens of each node, as flat arrays [n], one node after the other.

    @cached_property
    def _all_listed(self) -> dict[int, list[Continuation]]:
        """All continuations of the listed rows."""
        return dict(zip(self._listed, self._meet(self._listed, self._tokens), strict=True))

    def _meet(
        self, nodes: Sequence[int], tokens: Sequence[Candidates], limit: int | None = None
    ) -> list[list[Continuation]]:
        """For each of these nodes the ``limit`` best of the given tokens; forbidden ones are left out."""
        if self._are_few(tokens):
            return [self._meet_few(node, wanted)[:limit] for node, wanted in zip(nodes, tokens, strict=True)]
        kept, columns = self._rank(nodes, tokens, limit)
        token, total, *scores = (values.tolist() for values in columns)
        found = list(zip(token, total, zip(*scores, strict=True), strict=True))
        return [found[begin:end] for begin, end in pairwise([0, *kept.cumsum().tolist()])]

    def _blocks(self, nodes: Sequence[int], tokens: Sequence[Candidates], size: int) -> list[Block]:
        """The same, in a form that keeps little, and nothing of other nodes."""
        if self._are_few(tokens):
            met = [self._meet_few(node, wanted) for node, wanted in zip(nodes, tokens, strict=True)]
            return [Block(found[:size], len(found) > size) for found in met]
        kept, columns = self._rank(nodes, tokens, size + 1)
        rows = np.column_stack(columns)
        return [
            Block(rows[begin : min(end, begin + size)].copy(), more=end - begin > size)
            for begin, end in pairwise([0, *kept.cumsum().tolist()])
        ]

    def _are_few(self, tokens: Sequence[Candidates]) -> bool:
        """Whether the calls that arrays need would cost more than the sums."""
        return self._sparse and sum(map(len, tokens)) <= FEW

    def _rank(
        self, nodes: Sequence[int], tokens: Sequence[Candidates], limit: int | None
    ) -> tuple[Ints, list[npt.NDArray[Any]]]:
        """How many continuations there are of each node, and all of them, node after node: token, total, scores.

        All tokens are one flat array ``[n]``, node after node, and so are their scores by each predictor.
        """
        lengths = np.fromiter(map(len, tokens), np.int64, len(nodes))
        token = np.fromiter(chain.from_iterable(tokens), np.int64, lengths.sum())
        place = np.repeat(np.arange(len(nodes)), lengths)  # [n]: whose token it is
        total, scores = self._totals(nodes, tokens, token, place)
        order = np.lexsort((token, -total, place))  # forbidden ones last
        kept = np.bincount(place[total != FORBIDDEN], minlength=len(nodes))  # [nodes]
        if limit is not None:
            kept = np.minimum(kept, limit)
        rank = np.arange(len(token)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        best = order[rank < kept[place]]
        return kept, [values[best] for values in (token, total, *scores)]

    def _totals(
        self, nodes: Sequence[int], tokens: Sequence[Candidates], token: Ints, place: Ints
    ) -> tuple[Floats, list[Floats]]:
        """The combined scores of these tokens, and their scores by predictor, ``[n]`` each."""
        scores = [scores_at(column, nodes, tokens, token, place) for column in self._columns]
        total = np.zeros(len(token))
        for column, by_token in zip(self._columns, scores, strict=True):
            total += _times([column.weights[node] for node in nodes], by_token, place)
        if self._closely or not total.max(initial=FORBIDDEN) < math.inf:
            wrong = first_fault(total, scores)
            if wrong is not None:
                raise self._fault(nodes[place[wrong]], int(token[wrong]))
        return total, scores

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
        if not all(map(math.isfinite, totals)):
            for token, total, parts in zip(tokens, totals, zip(*ledger, strict=True), strict=True):
                if not math.isfinite(total) and not forbids(parts):
                    raise self._fault(node, token)
        found = [each for each in zip(tokens, totals, zip(*ledger, strict=True), strict=True) if each[1] != FORBIDDEN]
        if len(found) > 1:
            found.sort(key=_best_first)
        return found

    def _fault(self, node: int, token: int) -> SgdecError:
        """What is wrong with the sum at a token."""
        at = np.array([token]), np.zeros(1, np.int64)
        scores = [scores_at(column, [node], [[token]], *at).item() for column in self._columns]
        weights = [column.weights[node] for column in self._columns]
        return fault(token, [column.name for column in self._columns], weights, scores)


def _best_first(continuation: Continuation) -> tuple[float, int]:
    """Higher score first, then lower token."""
    return -continuation[1], continuation[0]


def _times(weights: Sequence[float | None], scores: Floats, place: Ints) -> Floats:
    """Each score ``[n]`` times the weight of its node, which is that at its ``place``; -inf stays -inf."""
    if weights.count(1.0) == len(weights):
        return scores
    forbidden, scores = scores == FORBIDDEN, arrays.without_inf(scores)
    factors = np.array([weight or 0.0 for weight in weights])[place]
    return np.where(forbidden, FORBIDDEN, np.where(forbidden, 0.0, scores) * factors)
