"""Combination for restricted rows: nodes with a list of the tokens that can follow.

Only the scores of these tokens are looked up. The tokens of all nodes form one flat array ``[n]`` in the order of the
nodes. Their scores are weighted, summed in float64 and sorted in one step. If there are few tokens and no predictor
has a matrix, plain Python does the same in less time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from operator import add
from typing import Any

import numpy as np
import numpy.typing as npt

from sgdec import arrays
from sgdec.arrays import Floats, Ints
from sgdec.errors import SgdecError
from sgdec.protocol import FORBIDDEN, Candidates
from sgdec.search.combination.choosing import Choice, choose_in_groups, choose_rows
from sgdec.search.combination.columns import Column, not_in_vocabulary, outside
from sgdec.search.combination.continuations import Block, Continuation, best_first
from sgdec.search.combination.faults import fault, first_fault, forbids
from sgdec.sparse import FEW, TokenLists, Wanted


class ListedRows:
    """The continuations of nodes with listed candidates.

    Methods raise SgdecError, naming the predictor, if a score is NaN or +inf, or a sum overflows.
    """

    def __init__(
        self, columns: Sequence[Column], nodes: Sequence[int], tokens: Sequence[Candidates], vocab_size: int | None
    ) -> None:
        """``nodes``: their positions in the batch; ``tokens``: for each node its candidates, ascending.

        Raises SgdecError for a token that is outside the vocabulary.
        """
        self._columns = columns
        self._nodes = nodes
        self._tokens = tokens
        self._sparse = all(column.scores.width is None for column in columns)
        if isinstance(tokens, TokenLists):
            every = tokens.tokens
            if every.min(initial=0) >= 0 and (vocab_size is None or every.max(initial=-1) < vocab_size):
                return
        for node, listed in zip(nodes, tokens, strict=True):
            if (token := outside(listed, vocab_size)) is not None:
                rows = ((column.name, column.sparse_row(node)) for column in columns)
                name = next((name for name, row in rows if row is not None and token in row.lookup), "?")
                raise not_in_vocabulary(name, token, vocab_size)

    def best(self, limit: int | None) -> list[list[Continuation]]:
        """For each node its ``limit`` best continuations (None = all); forbidden tokens are left out."""
        if self._are_few(self._tokens):
            return [self._few(node, tokens)[:limit] for node, tokens in zip(self._nodes, self._tokens, strict=True)]
        kept, columns = self._ranked(self._all, self._answers, limit)
        token, total, *scores = (values.tolist() for values in columns)
        found = list(zip(token, total, zip(*scores, strict=True), strict=True))
        return [found[begin:end] for begin, end in pairwise([0, *kept.cumsum().tolist()])]

    def best_together(
        self, groups: Sequence[int], before: Sequence[float], choice: Choice
    ) -> list[list[Continuation]]:
        """For each node its continuations that are among the best of all nodes of its group.

        ``groups``: the group of each node, ascending. ``before``: the totals of the nodes.

        Raises SgdecError if a total overflows.
        """
        if self._are_few(self._tokens):
            return choose_in_groups(self._everything, groups, before, choice)
        place, scores = self._all.place, self._totals(self._all, self._answers)
        with np.errstate(over="ignore"):
            totals = np.array(before)[place] + scores
        (overflown,) = np.nonzero(np.isinf(totals) & (scores > FORBIDDEN))
        if len(overflown):
            raise self._fault(self._nodes[place[overflown[0]]], int(self._all.token[overflown[0]]))
        arcs = place, self._all.token, scores, totals, self._answers
        return choose_rows(*arcs, np.array(groups), choice).by_row(len(self._nodes))

    def of_tokens(self, tokens: Sequence[Sequence[int]]) -> list[list[Continuation]]:
        """For each node its continuations with these tokens; those that cannot follow are left out."""
        return [
            [each for each in family if each[0] in listed]
            for family, listed in zip(self._everything, map(set, tokens), strict=True)
        ]

    def blocks(self, size: int) -> list[Block]:
        """The same as blocks of ``size``; a block shares no memory with other nodes."""
        if self._are_few(self._tokens):
            return [Block(found[:size], len(found) > size) for found in self._everything]
        return self._blocks(self._all, self._answers, size)

    best_blocks = blocks

    def block_after(self, place: int, given: npt.NDArray[np.integer[Any]], size: int) -> Block:
        """The ``size`` best continuations of the node at ``place``, without the tokens ``given``."""
        node, left = self._nodes[place], np.setdiff1d(self._tokens[place], given, assume_unique=True).tolist()
        if self._are_few([left]):
            found = self._few(node, left)
            return Block(found[:size], len(found) > size)
        wanted = Wanted.of([node], [left])
        (block,) = self._blocks(wanted, [column.scores_of(wanted) for column in self._columns], size)
        return block

    def distribution(self, place: int) -> tuple[Ints, Floats]:
        """The candidates ``[n]`` of the node at ``place``, ascending, without forbidden ones, and their scores."""
        found = sorted(self._everything[place])
        return np.array([token for token, _, _ in found], np.int64), np.array([score for _, score, _ in found])

    def continuation(self, place: int, token: int) -> Continuation:
        """The continuation of the node at ``place`` with this token."""
        return next(each for each in self._everything[place] if each[0] == token)

    @cached_property
    def _everything(self) -> list[list[Continuation]]:
        return self.best(None)

    @cached_property
    def _all(self) -> Wanted:
        """All candidates of all nodes."""
        return Wanted.of(self._nodes, self._tokens)

    @cached_property
    def _answers(self) -> list[Floats]:
        """For each of K predictors its unweighted scores ``[n]`` of all candidates."""
        answers = [column.scores.answer_to(self._tokens) for column in self._columns]
        return [
            column.scores_of(self._all) if answer is None else answer
            for column, answer in zip(self._columns, answers, strict=True)
        ]

    def _blocks(self, wanted: Wanted, scores: Sequence[Floats], size: int) -> list[Block]:
        kept, columns = self._ranked(wanted, scores, size + 1)
        rows = np.column_stack(columns)
        return [
            Block(rows[begin : min(end, begin + size)].copy(), more=end - begin > size)
            for begin, end in pairwise([0, *kept.cumsum().tolist()])
        ]

    def _are_few(self, tokens: Sequence[Candidates]) -> bool:
        """Whether plain Python is faster than arrays for these tokens."""
        number = len(tokens.tokens) if isinstance(tokens, TokenLists) else sum(map(len, tokens))
        return self._sparse and number <= FEW

    def _ranked(
        self, wanted: Wanted, scores: Sequence[Floats], limit: int | None
    ) -> tuple[Ints, list[npt.NDArray[Any]]]:
        """The number of continuations of each node, and their tokens, totals and K scores as arrays in node order."""
        _, tokens, token, place = wanted
        total = self._totals(wanted, scores)
        order = np.lexsort((token, -total, place))  # forbidden ones last
        kept = np.bincount(place[total != FORBIDDEN], minlength=len(tokens))  # [nodes]
        if limit is not None:
            kept = np.minimum(kept, limit)
        first = np.searchsorted(place, np.arange(len(tokens)))
        best = order[np.arange(len(token)) - first[place] < kept[place]]
        return kept, [values[best] for values in (token, total, *scores)]

    def _totals(self, wanted: Wanted, scores: Sequence[Floats]) -> Floats:
        """The combined scores ``[n]`` of tokens, given each predictor's scores ``[n]``."""

        def add_up() -> Floats:
            total = np.zeros(len(wanted.token))
            for column, by_token in zip(self._columns, scores, strict=True):
                factors = np.array([column.weights[node] or 0.0 for node in wanted.nodes])
                total += arrays.weigh(by_token, factors if (factors == 1.0).all() else factors[wanted.place])
            return total

        def refuse(total: Floats) -> None:
            wrong = first_fault(total, scores)
            if wrong is not None:
                raise self._fault(wanted.nodes[wanted.place[wrong]], int(wanted.token[wrong]))

        total: Floats = arrays.checked(add_up, refuse)
        if not total.max(initial=FORBIDDEN) < math.inf:  # NaN or inf
            refuse(total)
        return total

    def _few(self, node: int, tokens: Candidates) -> list[Continuation]:
        """The continuations of one node with these tokens, best first, computed in plain Python."""
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
            found.sort(key=best_first)
        return found

    def _fault(self, node: int, token: int) -> SgdecError:
        """The error for a wrong sum at a token."""
        scores = [column.scores_of(Wanted.of([node], [[token]])).item() for column in self._columns]
        weights = [column.weights[node] for column in self._columns]
        return fault(token, [column.name for column in self._columns], weights, scores)
