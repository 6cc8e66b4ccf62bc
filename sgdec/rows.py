"""For decoders that work on whole arrays (`BatchDecoder`): many open hypotheses of many sentences, a row each.

`HypothesisRows` keeps what the predictors know of each hypothesis: states and coverage. Totals, tokens and sentences
are arrays of the decoder's own, in the same order. One step of a search is

    space.count_expansions(n, length)            for each sentence: n of its rows, of ``length`` tokens
    children = rows.best_children(size, ending)  the best continuations of each row
    totals = rows.totals(totals, children)       their totals
    cover = rows.cover()                         their coverage penalties
    rows.consume(parents, tokens)                the rows of the next step: the children that are kept and still open

Scores have to be dense: a row that restricts is refused. They are combined by the code that serves all searches, so
totals, ledgers and ties are the same as with nodes. `vanilla` is written on this, and docs/howto/plugins.md has a
greedy search.

In shapes: R rows, V tokens, K predictors, C = min(size, V) children of a row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sgdec.context import EOS
from sgdec.errors import UsageError
from sgdec.protocol import FORBIDDEN
from sgdec.ranking import Coverage, add_attention
from sgdec.scores import DenseScores
from sgdec.search.answers import attention_rows
from sgdec.search.columns import Floats, Ints
from sgdec.search.dense import DenseRows, Ranked
from sgdec.search.faults import fault
from sgdec.search.node import Node
from sgdec.search.parts import Flags, Part
from sgdec.search.space import SearchSpace

__all__ = ["HypothesisRows", "Ranked"]


class HypothesisRows:
    """The predictors' states of R open hypotheses, in an order that `consume` and `keep` determine."""

    def __init__(self, spaces: Sequence[SearchSpace]) -> None:
        """At first a row for each space, in their order: its empty prefix.

        Raises ValueError if there is no space, or if not all are of one constellation.
        """
        if not spaces:
            raise ValueError("a batch needs at least one space")
        self._constellation = spaces[0].constellation
        self._ranking = spaces[0].ranking
        self._count = len(spaces)
        """R."""
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
        """The length of the longest source of those predictors."""

    def best_children(self, size: int, ending: Flags) -> Ranked:
        """The ``size`` best continuations of each row, best first, of equals the lower token.

        ``ending [R]``: the rows at their length limit, which have ``</s>`` alone. What is forbidden scores -inf,
        so a row may have fewer than C children, or none. Asks each predictor once; changes nothing.

        Raises UsageError if a row restricts, where widths differ or V is unknown; SgdecError for a score that is
        NaN or +inf, and for a sum that overflows.
        """
        parts = [self._ask(k, len(ending)) for k in range(len(self._weights))]
        rows = DenseRows(parts, len(ending), self._constellation.vocab_size)
        tokens = rows.top(size)
        tokens[ending] = EOS
        children = rows.ranked(tokens)
        children.scores[ending, 1:] = FORBIDDEN
        return children

    def totals(self, before: Floats, children: Ranked) -> Floats:
        """``[R, C]``: the totals of the children, from those of the rows ``before [R]``; -inf for what is forbidden.

        Raises SgdecError if one overflows.
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
        """``[R]``: the coverage penalty cp (`sgdec.ranking`, equation 14) of every child of a row.

        To be called once per step, before `consume`: it adds the attention with which the next token is predicted. A
        child of ``length`` tokens has the rank score ``total / ranking.length_penalty(length) + cp``. Where the
        ranking has no coverage penalty, all are 0, and no predictor is asked.
        """
        if not self._attentive:
            return np.zeros(self._count)
        attention = []
        for k in self._attentive:
            member = self._constellation.members[k]
            rows = attention_rows(member.name, member.ask("attention", self._states[k]))
            self._widths.setdefault(k, max(map(len, rows), default=0))
            attention.append(_padded(rows, self._widths[k]))
        self._coverage = add_attention(self._coverage, attention)
        return self._ranking.coverage_penalties(self._coverage)

    def consume(self, rows: Ints, tokens: Ints) -> None:
        """From here on R = n: these ``rows [n]`` with one more token each, ``tokens [n]``; a row may come twice."""
        self.keep(rows)
        for k, states in self._states.items():
            self._states[k] = self._constellation.members[k].consume(states, tokens.tolist()) if states else []

    def keep(self, rows: Ints) -> None:
        """From here on R = n rows: ``rows [n]``, in this order."""
        places = rows.tolist()
        self._count = len(places)
        self._states = {k: [states[place] for place in places] for k, states in self._states.items()}
        self._coverage = tuple(None if covered is None else covered[rows] for covered in self._coverage)

    def node(self, row: int, space: SearchSpace, length: int) -> Node:
        """A row, which has so many tokens, as a node whose bound can be asked for: ``space.bound([node])``.

        It knows neither its tokens nor its total.
        """
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
