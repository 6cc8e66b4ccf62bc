"""Many open hypotheses of many sentences, one per row, for decoders that work on whole arrays (`BatchDecoder`).

`HypothesisRows` keeps the predictors' states and the coverage of each hypothesis. The decoder itself keeps totals,
tokens and sentences, in arrays of the same order. One step of a search is

    space.count_expansions(n, length)            for each sentence: n of its rows, of ``length`` tokens
    children = rows.best_children(size, ending)  the best continuations of each row
    totals = rows.totals(totals, children)       their totals
    cover = rows.cover()                         their coverage penalties
    rows.consume(parents, tokens)                the rows of the next step: the kept children that are not finished

A beam search calls `best_together`, which chooses from all rows of a beam together, instead of `best_children` and
`totals`. `add` begins sentences while others are in flight. The scores are combined by the same code as for nodes, so
totals, ledgers and ties are the same. Rows that list the only tokens are filled to V scores, unless all predictors
are automata with `arcs` (`sgdec.protocol.ArcsAhead`), for which `best_together` is the method to call. `vanilla` uses
this module, and so do `beam` and `greedy`, by `vanilla`, in batches; docs/howto/plugins.md has a greedy search.

Shapes: R rows, V tokens, K predictors, C = min(size, V) children per row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from sgdec.arrays import MORE, Flags, Floats, Ints
from sgdec.context import EOS
from sgdec.protocol import FORBIDDEN
from sgdec.ranking import Coverage, add_attention
from sgdec.scores import UNASKED, Scores, SparseScores
from sgdec.search.answers import attention_rows
from sgdec.search.banks import advancing_of, progress_of, with_progress
from sgdec.search.choosing import Choice, Chosen, choose_rows
from sgdec.search.columns import Column, not_in_vocabulary
from sgdec.search.combining import agreed_width
from sgdec.search.dense import DenseRows, Ranked
from sgdec.search.faults import fault
from sgdec.search.node import Node
from sgdec.search.renormalizing import renormalized
from sgdec.search.row_nodes import RowNodes
from sgdec.search.space import SearchSpace

__all__ = ["Chosen", "HypothesisRows", "Ranked"]


class HypothesisRows:
    """The predictors' states of R open hypotheses; `consume` and `keep` determine their order."""

    def __init__(self, spaces: Sequence[SearchSpace]) -> None:
        """Start with one row per space, its empty prefix, in the order of ``spaces``.

        Raises ValueError if there is no space, or if the spaces have different constellations.
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
        self._states: dict[int, Any] = {k: self._constellation.states(k, roots) for k in self._consulted}
        """By predictor: a list of its states ``[R]``, or, with a product, an array of numbers."""
        self._product = self._constellation.product if self._weights == self._constellation.weights else None
        if self._product is not None:
            self._states = {k: np.array(states, np.int64) for k, states in self._states.items()}
        self._coverage: Coverage = ()
        """For each predictor with attention ``[R, source]``."""
        self._widths: dict[int, int] = {}
        """For each predictor with attention the length of its longest source."""
        self._nodes = RowNodes(self._constellation, self._ranking.uses_coverage)
        self._watch(spaces)

    def _watch(self, spaces: Sequence[SearchSpace]) -> None:
        """Keep nodes for the rows of new spaces, if they are needed."""
        reach = [space.reach if space.watched else None for space in spaces]
        self._nodes.add([space.root for space in spaces], [space.traced for space in spaces], reach)

    def add(self, spaces: Sequence[SearchSpace]) -> None:
        """Add one row per space, its empty prefix, after the others.

        Raises ValueError if the spaces have another constellation, or if the ranking has a coverage penalty: then all
        rows must begin together.
        """
        if self._ranking.uses_coverage or any(space.constellation is not self._constellation for space in spaces):
            raise ValueError("rows can be added only for the same constellation, and without a coverage penalty")
        roots = [space.root for space in spaces]
        self._count += len(spaces)
        for k, states in self._states.items():
            new = self._constellation.states(k, roots)
            self._states[k] = [*states, *new] if self._product is None else np.append(states, new)
        self._watch(spaces)

    def best_children(self, size: int, ending: Flags) -> Ranked:
        """The ``size`` best continuations of each row, best first (ties: lower token).

        ``ending [R]``: whether a row is at its length limit, so that only ``</s>`` can follow. Forbidden tokens have
        score -inf, so a row may have fewer than C children, or none. Calls each predictor once and changes nothing.

        Raises UsageError if widths differ or V is unknown; SgdecError for a score that is NaN or +inf, and for a sum
        that overflows.
        """
        self._nodes.expand()
        rows = self._combined(len(ending))
        tokens = rows.top(size)
        tokens[ending] = EOS
        children = rows.ranked(tokens)
        children.scores[ending, 1:] = FORBIDDEN
        return children

    def best_together(
        self,
        beams: Ints,
        totals: Floats,
        size: int,
        ending: Flags,
        *,
        width: float = math.inf,
        all_ends: bool = False,
        advancing: bool = False,
    ) -> Chosen:
        """The best children of all rows of a beam together: the array form of `SearchSpace.best_children`.

        ``beams [R]``: the beam of each row, ascending from 0; ``totals [R]``: theirs; ``size``, ``width``
        and ``all_ends`` as there, ``ending`` as in `best_children`; with ``advancing`` the children are those of
        `SearchSpace.bank_children`. They come beam after beam, in the order in which a beam search compares them.
        Asks each predictor once; changes nothing.

        Raises what `best_children` raises, and SgdecError for a total that overflows.
        """
        self._nodes.expand()
        choice = Choice(size, size, width, all_ends)
        if self._product is None:
            rows = self._combined(len(ending))
            chosen = rows.chosen(beams, totals, choice, ending)
            if not advancing:
                return chosen
            top = rows.ranked(rows.top(1)).tokens[:, 0]
            more = rows.cells(*self._besides(np.where(ending, EOS, top).tolist(), ending), totals)
            return chosen.and_also(more, beams)
        self._arcs = self._product.arcs(list(self._states.values()), ending)
        row, token, score, ledger, _ = self._arcs
        total = self._grown(totals, row, token, score, ledger)
        chosen = choose_rows(row, token, score, total, ledger, beams, choice)
        if not advancing:
            return chosen
        everything = Chosen(row, token, total, score, np.array(ledger).T)
        first = choose_rows(row, token, score, total, ledger, np.arange(len(ending)), Choice(1, 1, all_ends=True))
        best = np.full(len(ending), EOS)
        best[first.row] = first.token
        wanted, tokens = self._besides(best.tolist(), ending)
        listed = np.isin(row * MORE + token, wanted * MORE + tokens)
        return chosen.and_also(everything.at(listed), beams)

    def progress(self, rows: Ints, tokens: Ints) -> Ints:
        """``[n]``: how much of all constraints children have met. Child i is row ``rows[i]`` plus ``tokens[i]``.

        Call it after `best_together`, before `consume`; not for children that end with ``</s>``.
        """
        constellation, places = self._constellation, rows.tolist()

        def after(k: int) -> Sequence[Any]:
            states = [self._states[k][place] for place in places]
            return constellation.members[k].consume(states, tokens.tolist()) if states else []

        counted = with_progress(constellation.members, self._weights)
        found = progress_of(constellation.members, counted, after, len(places))
        return np.array([met for met, _ in found], np.int64)

    def _besides(self, best: Sequence[int], ending: Flags) -> tuple[Ints, Ints]:
        """Rows and tokens of the children that a search with banks considers besides those with the best totals.

        ``best [R]``: the best token of each row.
        """
        members = self._constellation.members
        counted = with_progress(members, self._weights)
        tokens = advancing_of(members, counted, lambda k: list(self._states[k]), len(best))
        lists = [
            {first} if ends else {first, *more}
            for first, more, ends in zip(best, tokens, ending.tolist(), strict=True)
        ]
        row = np.arange(len(lists)).repeat(list(map(len, lists)))
        return row, np.fromiter(chain.from_iterable(lists), np.int64, len(row))

    def totals(self, before: Floats, children: Ranked) -> Floats:
        """``[R, C]``: the totals of the children; -inf for forbidden ones. ``before [R]``: the totals of the rows.

        Raises SgdecError if a total overflows.
        """
        rows, size = children.tokens.shape
        row = np.repeat(np.arange(rows), size)
        ledger = np.moveaxis(children.ledger, -1, 0).reshape(-1, rows * size)
        totals = self._grown(before, row, children.tokens.ravel(), children.scores.ravel(), list(ledger))
        return totals.reshape(rows, size)

    def cover(self) -> Floats:
        """``[R]``: the coverage penalty cp (`sgdec.ranking`, equation 14) of every child of a row.

        Call it once per step, before `consume`: it adds the attention for the next token. A child of ``length``
        tokens has the rank score ``total / ranking.length_penalty(length) + cp``. If the ranking has no coverage
        penalty, all values are 0, and no predictor is called.
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
        """Replace the rows by n children: child i is row ``rows[i]`` plus token ``tokens[i]``. Rows may repeat."""
        self._nodes.consume(rows, tokens)
        if self._product is not None:
            keys = self._arcs.row * MORE + self._arcs.token
            places = keys.searchsorted(rows * MORE + tokens)
            self._count = len(places)
            for k in self._states:
                self._states[k] = self._arcs.after[k][places]
            return
        self._keep(rows)
        for k, states in self._states.items():
            self._states[k] = self._constellation.members[k].consume(states, tokens.tolist()) if states else []

    def keep(self, rows: Ints) -> None:
        """Keep only these n rows, in the order of ``rows [n]``."""
        self._nodes.keep(rows)
        self._keep(rows)

    def _keep(self, rows: Ints) -> None:
        places = rows.tolist()
        self._count = len(places)
        if self._product is not None:
            self._states = {k: states[rows] for k, states in self._states.items()}
        else:
            self._states = {k: [states[place] for place in places] for k, states in self._states.items()}
        self._coverage = tuple(None if covered is None else covered[rows] for covered in self._coverage)

    def node(self, row: int, space: SearchSpace, length: int) -> Node:
        """A row of ``length`` tokens as a node, to compute its bound with ``space.bound([node])``.

        The node has neither the tokens nor the total.
        """
        states = [self._states[k][row] if k in self._states else None for k in range(len(self._weights))]
        return Node.root(space.source, self._weights, states, length)

    def watched(self, row: int) -> Node | None:
        """A row as a node, if its search is traced."""
        return self._nodes[row]

    def watched_children(self, rows: Ints, tokens: Ints) -> list[Node | None]:
        """Children of rows as nodes, if their searches are traced: child i is row ``rows[i]`` plus ``tokens[i]``.

        Call it after `best_children` or `best_together`, before `consume`.
        """
        return self._nodes.children(rows, tokens)

    def _grown(self, before: Floats, row: Ints, token: Ints, score: Floats, ledger: Sequence[Floats]) -> Floats:
        """The totals ``[n]`` of children. Raises SgdecError if one has overflowed although its score is finite."""
        with np.errstate(over="ignore"):
            totals: Floats = before[row] + score
        if not math.isfinite(totals.sum()):
            overflown = np.isinf(totals) & (score > FORBIDDEN)
            if overflown.any():
                place = int(overflown.argmax())
                scores = [float(column[place]) for column in ledger]
                raise fault(int(token[place]), self._constellation.names, self._weights, scores)
        return totals

    def _combined(self, rows: int) -> DenseRows:
        """The combined scores of all rows."""
        constellation = self._constellation
        answers = [self._ask(k) for k in range(len(self._weights))]
        width = constellation.vocab_size or _width(answers)
        columns = {
            k: Column(name, _for_all_tokens(scores, name, width), range(rows), [self._weights[k]] * rows)
            for k, (name, scores) in enumerate(zip(constellation.names, answers, strict=True))
        }
        if constellation.renormalized:
            columns = renormalized(columns, constellation.renormalized, [None] * rows, width)
        agreed_width([(column.name, column.scores.width) for column in columns.values()], width)
        return DenseRows(list(columns.values()), range(rows), width)

    def _ask(self, k: int) -> Scores:
        """The scores of one predictor for all rows."""
        if self._weights[k] is None:
            return SparseScores([UNASKED] * self._count)
        return self._constellation.members[k].predict(self._states[k])


def _width(answers: Sequence[Scores]) -> int | None:
    """The number of columns of a matrix of all these scores; None if no predictor restricts or has a matrix."""
    widths = [scores.width for scores in answers if scores.width is not None]
    if widths:
        return widths[0]
    if not any(scores.restricts for scores in answers):
        return None
    return 1 + max((ends[1] for scores in answers if (ends := scores.ends())), default=EOS)


def _for_all_tokens(scores: Scores, name: str, width: int | None) -> Scores:
    """The same scores; rows that list the only tokens become rows of ``width`` scores.

    Raises SgdecError for a token outside of this width.
    """
    if width is None or not scores.restricts:
        return scores
    for token in scores.ends() or ():
        if not 0 <= token < width:
            raise not_in_vocabulary(name, token, width)
    return scores.for_all_tokens(width)


def _padded(rows: Sequence[Floats], width: int) -> Floats:
    """``[R, width]``: rows of attention, padded with ones, which count as covered."""
    padded = np.ones((len(rows), width))
    for target, row in zip(padded, rows, strict=True):
        target[: len(row)] = row
    return padded
