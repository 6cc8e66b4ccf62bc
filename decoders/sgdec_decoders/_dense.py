"""What the predictors say about the open hypotheses of many sentences, where every row covers the whole vocabulary.

For `vanilla`. Scores meet as in `sgdec.search.combining`, number for number, but in a few operations on whole arrays:
a weighted sum ``[R, V]`` in the precision and on the device of the scores, the C best tokens of each row, and the
totals of these once more in float64 from the scores that the ledger keeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from sgdec import BOS, EOS, Node, SearchSpace, UsageError
from sgdec.protocol import FORBIDDEN, Array, Scores
from sgdec.ranking import SMALLEST_COVERAGE
from sgdec.search import arrays
from sgdec.search.answers import attention_rows
from sgdec.search.columns import not_in_vocabulary
from sgdec.search.faults import fault, first_fault
from sgdec.topk import top_tokens

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]
Flags: TypeAlias = npt.NDArray[np.bool_]


class Children(NamedTuple):
    """The best continuations of each row: higher score first, then lower token; forbidden ones last."""

    tokens: Ints
    """``[R, C]``"""
    totals: Floats
    """``[R, C]``: those of the hypotheses with one more token; -inf for what is forbidden."""
    ledger: Floats
    """``[R, C, K]``: unweighted, by predictor; 0 where a predictor is not consulted."""


class OpenRows(NamedTuple):
    """Sparse rows that restrict nothing: a default each, and n tokens in all that differ from it."""

    default: Floats
    """``[R]``"""
    row: Ints
    """``[n]``, as the following."""
    token: Ints
    score: Floats

    @classmethod
    def of(cls, scores: Scores) -> OpenRows:
        listed = [row.arrays for row in scores.rows]
        return cls(
            np.array([row.default for row in scores.rows]),
            np.repeat(np.arange(len(listed)), [len(tokens) for tokens, _ in listed]),
            np.concatenate([tokens for tokens, _ in listed]),
            np.concatenate([values for _, values in listed]),
        )


Column: TypeAlias = "Array | OpenRows"
"""One predictor's answer: a matrix ``[R, V]``, or open rows."""


class DenseRows:
    """The predictors' states of R open hypotheses, and the coverage of these."""

    def __init__(self, spaces: Sequence[SearchSpace]) -> None:
        """At first R = number of sentences. ValueError unless all spaces are of one constellation."""
        self._constellation = spaces[0].constellation
        self._ranking = spaces[0].ranking
        if any(space.constellation is not self._constellation for space in spaces):
            raise ValueError("the spaces of one batch must share a constellation")
        self._weights = spaces[0].weights
        self._consulted = [k for k, weight in enumerate(self._weights) if weight is not None]
        self._attentive = self._constellation.attentive(self._weights) if self._ranking.uses_coverage else []
        roots = [space.root.states or [] for space in spaces]
        self._states = {k: [states[k] for states in roots] for k in self._consulted}
        self._coverage: dict[int, Floats] = {}
        """By predictor with attention ``[R, source]``; what pads a source counts as covered."""

    def best_children(self, totals: Floats, size: int, ending: Flags) -> Children:
        """The ``size`` best continuations of each row, with ``totals`` ``[R]``; where ``ending`` ``[R]``, ``</s>``.

        Raises UsageError where a row restricts or widths differ, SgdecError for a score that is NaN or +inf and for a
        total that overflows.
        """
        columns = {k: self._ask(k) for k in self._consulted}
        return arrays.guarded(partial(self._best_children, columns, totals, size, ending))

    def _best_children(
        self, columns: dict[int, Column], totals: Floats, size: int, ending: Flags, closely: bool
    ) -> Children:
        """``closely``: a sum has overflowed, and each is to be looked at."""
        tokens = top_tokens(self._sum(columns, len(ending), closely), size)  # [R, C]
        tokens[ending] = EOS
        ledger = np.zeros((*tokens.shape, len(self._weights)))
        scores = np.zeros(tokens.shape)
        for k, column in columns.items():
            ledger[:, :, k] = _scores_at(column, tokens)
            scores += _times(self._weights[k] or 0.0, ledger[:, :, k])
        longer = totals[:, None] + scores
        if closely or not longer.max(initial=FORBIDDEN) < np.inf:
            wrong = first_fault(longer.ravel(), [ledger[:, :, k].ravel() for k in self._consulted])
            if wrong is not None:
                self._blame(tokens.ravel()[wrong], ledger.reshape(-1, len(self._weights))[wrong])
        scores[ending, 1:] = longer[ending, 1:] = FORBIDDEN
        order = np.lexsort((tokens, -scores))
        return Children(
            np.take_along_axis(tokens, order, 1),
            np.take_along_axis(longer, order, 1),
            np.take_along_axis(ledger, order[:, :, None], 1),
        )

    def cover(self) -> Floats:
        """Adds the attention that predicts the next token. ``[R]``: cp (equation 14) of what ends with that token."""
        penalties = []
        for k in self._attentive:
            member = self._constellation.members[k]
            attention = attention_rows(member.name, member.ask("attention", self._states[k]))
            self._coverage[k] = _add_attention(self._coverage.get(k), attention)
            penalties.append(np.log(np.clip(self._coverage[k], SMALLEST_COVERAGE, 1.0)).sum(axis=1))
        return self._ranking.beta * np.mean(penalties, axis=0) if penalties else np.zeros(1)

    def consume(self, rows: Ints, tokens: Ints) -> None:
        """From here on these rows, each with one more token; a row may be taken more than once."""
        self.keep(rows)
        for k, states in self._states.items():
            self._states[k] = self._constellation.members[k].consume(states, tokens.tolist()) if states else []

    def keep(self, rows: Ints) -> None:
        """From here on these rows only, in this order."""
        places = rows.tolist()
        self._states = {k: [states[place] for place in places] for k, states in self._states.items()}
        self._coverage = {k: coverage[rows] for k, coverage in self._coverage.items()}

    def node(self, row: int, space: SearchSpace, length: int) -> Node:
        """An open hypothesis of this length as far as the predictors' bounds need it."""
        states = [self._states[k][row] if k in self._states else None for k in range(len(self._weights))]
        return Node(space.source, None, BOS, None, 0.0, length, self._weights, states, None, ())

    def _ask(self, k: int) -> Column:
        name, states = self._constellation.names[k], self._states[k]
        scores = self._constellation.members[k].predict(states)
        if scores.values is not None:
            return scores.values
        if any(row.restricts for row in scores.rows):
            raise UsageError(
                f"predictor {name!r} lists the only tokens that can follow, but vanilla needs a score for every "
                "token; use --decoder beam."
            )
        return OpenRows.of(scores)

    def _sum(self, columns: dict[int, Column], rows: int, closely: bool) -> Array:
        """``[R, V]``: the combined scores."""
        vocab_size = self._constellation.vocab_size
        for k, column in columns.items():
            if isinstance(column, OpenRows):
                continue
            width = column.shape[1]
            if vocab_size is not None and width != vocab_size:
                raise UsageError(
                    f"predictor {self._constellation.names[k]!r} scores {width} tokens, but the vocabulary has "
                    f"{vocab_size}; all predictors must share one target vocabulary."
                )
            vocab_size = width
        for k, column in columns.items():
            if isinstance(column, OpenRows) and vocab_size is not None and len(column.token):
                for token in (int(column.token.min()), int(column.token.max())):
                    if not 0 <= token < vocab_size:
                        raise not_in_vocabulary(self._constellation.names[k], token, vocab_size)
        if vocab_size is None:
            raise UsageError("no predictor says how many tokens there are; give --vocab-size, or add a model.")
        total = self._add_up(columns, (rows, vocab_size))
        as_it_is = any(total is column for column in columns.values())
        if not as_it_is and (closely or arrays.may_overflow(total)):
            self._refuse_overflow(total, columns)
        return total

    def _add_up(self, columns: dict[int, Column], shape: tuple[int, int]) -> Array:
        total: Array | None = None
        for k, column in columns.items():
            if not isinstance(column, OpenRows):
                part = arrays.weighted(column, [self._weights[k]])  # one for all rows
                total = part if total is None else arrays.add(total, part)
        if total is None:
            total = np.zeros(shape)
        for k, column in columns.items():
            if isinstance(column, OpenRows):
                total = _add_open_rows(total, column, self._weights[k] or 0.0)
        return total

    def _refuse_overflow(self, total: Any, columns: dict[int, Column]) -> None:
        """Raises SgdecError where a sum is no number and nobody forbids the token."""
        wrong = arrays.infinite(total)
        for column in columns.values():
            if isinstance(column, OpenRows):
                forbidden = column.score == FORBIDDEN
                wrong[column.row[forbidden], column.token[forbidden]] = False
            else:
                wrong &= ~arrays.forbidden(column, wrong)
        places = np.argwhere(arrays.to_numpy(wrong))
        if len(places):
            row, token = places[0]
            at = np.full((wrong.shape[0], 1), token)
            scores = {k: _scores_at(column, at)[row, 0] for k, column in columns.items()}
            self._blame(token, [scores.get(k, 0.0) for k in range(len(self._weights))])

    def _blame(self, token: int, scores: Sequence[float]) -> None:
        raise fault(int(token), self._constellation.names, self._weights, [float(score) for score in scores])


def _add_open_rows(total: Array, column: OpenRows, weight: float) -> Array:
    """A new matrix ``[R, V]``."""
    forbidden, infinite = column.score == FORBIDDEN, column.score == np.inf
    if not weight and not forbidden.any() and not infinite.any():
        return total
    total = total + arrays.like(total, weight * column.default[:, None])
    more = weight * (np.where(forbidden, 0.0, column.score) - column.default[column.row])
    more[forbidden] = FORBIDDEN
    more[infinite] = np.nan  # which cannot be overlooked, whatever the weight
    total[column.row, column.token] += arrays.like(total, more)
    return total


def _scores_at(column: Column, tokens: Ints) -> Floats:
    """One predictor's unweighted scores of tokens ``[R, C]``."""
    if not isinstance(column, OpenRows):
        rows = np.repeat(np.arange(len(tokens)), tokens.shape[1])
        return arrays.to_numpy(arrays.pick(column, rows, tokens.ravel())).astype(np.float64).reshape(tokens.shape)
    found = np.tile(column.default[:, None], tokens.shape[1])
    listed, place = np.nonzero(tokens[column.row] == column.token[:, None])  # both [matches]
    found[column.row[listed], place] = column.score[listed]
    return found


def _times(weight: float, scores: Floats) -> Floats:
    """Weighted scores; -inf stays -inf whatever the weight."""
    forbidden = scores == FORBIDDEN
    product = weight * np.where(forbidden, 0.0, scores if weight >= 0 else arrays.without_inf(scores))
    product[forbidden] = FORBIDDEN
    return product


def _add_attention(coverage: Floats | None, attention: Sequence[Floats]) -> Floats:
    """``[R, source]``; rows may be shorter than the longest source."""
    width = max(map(len, attention), default=0) if coverage is None else coverage.shape[1]
    more = np.ones((len(attention), width))
    for target, row in zip(more, attention, strict=True):
        target[: len(row)] = row
    return more if coverage is None else coverage + more
