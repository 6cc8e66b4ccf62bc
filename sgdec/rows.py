"""For decoders that work on whole arrays: what the predictors know of many open hypotheses, a row each.

There are no nodes here: states and coverage are kept in the order of the hypotheses, whose totals and tokens are the
decoder's own arrays. Scores meet where they do for every search. `vanilla` is written on this.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from sgdec.context import EOS
from sgdec.errors import UsageError
from sgdec.protocol import FORBIDDEN
from sgdec.ranking import Coverage, add_attention
from sgdec.scores import DenseScores
from sgdec.search.answers import attention_rows
from sgdec.search.dense import DenseRows, Ranked
from sgdec.search.faults import fault
from sgdec.search.node import Node
from sgdec.search.parts import Part
from sgdec.search.space import SearchSpace

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]
Flags: TypeAlias = npt.NDArray[np.bool_]


class HypothesisRows:
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
        roots = [space.root for space in spaces]
        self._states = {k: self._constellation.states(k, roots) for k in self._consulted}
        self._coverage: Coverage = ()
        """By predictor with attention ``[R, source]``."""
        self._widths: dict[int, int] = {}
        """Of those predictors: the length of the longest source."""

    def best_children(self, size: int, ending: Flags) -> Ranked:
        """The ``size`` best continuations of each hypothesis ``[R]``; where ``ending [R]``, ``</s>`` alone.

        Raises UsageError where a row restricts or widths differ, SgdecError for a score that is NaN or +inf and for a
        sum that overflows.
        """
        parts = [self._ask(k, len(ending)) for k in range(len(self._weights))]
        rows = DenseRows(parts, len(ending), self._constellation.vocab_size)
        tokens = rows.top(size)
        tokens[ending] = EOS
        children = rows.ranked(tokens)
        children.scores[ending, 1:] = FORBIDDEN
        return children

    def totals(self, before: Floats, children: Ranked) -> Floats:
        """``[R, C]``: those of the hypotheses with one more token, from those ``before [R]``.

        Raises SgdecError where one overflows.
        """
        with np.errstate(over="ignore"):
            totals: Floats = before[:, None] + children.scores
        overflown = np.isinf(totals) & (children.scores > FORBIDDEN)
        if overflown.any():
            row, column = np.argwhere(overflown)[0]
            scores = children.ledger[row, column].tolist()
            raise fault(int(children.tokens[row, column]), self._constellation.names, self._weights, scores)
        return totals

    def cover(self) -> Floats:
        """Adds the attention that predicts the next token. ``[R]``: cp (equation 14) of what ends with that token."""
        if not self._attentive:
            return np.zeros(1)
        attention = []
        for k in self._attentive:
            member = self._constellation.members[k]
            rows = attention_rows(member.name, member.ask("attention", self._states[k]))
            self._widths.setdefault(k, max(map(len, rows), default=0))
            attention.append(_padded(rows, self._widths[k]))
        self._coverage = add_attention(self._coverage, attention)
        return self._ranking.coverage_penalties(self._coverage)

    def consume(self, rows: Ints, tokens: Ints) -> None:
        """From here on these rows, each with one more token; a row may be taken more than once."""
        self.keep(rows)
        for k, states in self._states.items():
            self._states[k] = self._constellation.members[k].consume(states, tokens.tolist()) if states else []

    def keep(self, rows: Ints) -> None:
        """From here on these rows only, in this order."""
        places = rows.tolist()
        self._states = {k: [states[place] for place in places] for k, states in self._states.items()}
        self._coverage = tuple(None if covered is None else covered[rows] for covered in self._coverage)

    def node(self, row: int, space: SearchSpace, length: int) -> Node:
        """An open hypothesis of this length as far as the predictors' bounds need it."""
        states = [self._states[k][row] if k in self._states else None for k in range(len(self._weights))]
        return Node.root(space.source, self._weights, states, length)

    def _ask(self, k: int, rows: int) -> Part:
        name, weight = self._constellation.names[k], self._weights[k]
        if weight is None:
            return Part(name, None, [None] * rows)
        scores = self._constellation.members[k].predict(self._states[k])
        if not isinstance(scores, DenseScores) and any(row.restricts for row in scores.rows):
            raise UsageError(
                f"predictor {name!r} lists the only tokens that can follow, but this decoder needs a score for every "
                "token; use --decoder beam."
            )
        return Part.whole(name, scores, weight)


def _padded(rows: Sequence[Floats], width: int) -> Floats:
    """``[R, width]``: rows of attention, no longer than that; what pads them counts as covered."""
    padded = np.ones((len(rows), width))
    for target, row in zip(padded, rows, strict=True):
        target[: len(row)] = row
    return padded
