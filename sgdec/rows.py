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
totals, ledgers and ties are the same. Rows that list the only tokens are filled to V scores, but not by
`best_together` if all predictors are automata with `arcs` (`sgdec.protocol.ArcsAhead`). `vanilla` uses this module,
and so do `beam` and `greedy`, by `vanilla`, in batches; docs/howto/plugins.md has a greedy search.

Shapes: R rows, V tokens, K predictors, C = min(size, V) children per row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from sgdec.arrays import Flags, Floats, Ints
from sgdec.context import EOS
from sgdec.protocol import FORBIDDEN
from sgdec.ranking import Coverage, add_attention
from sgdec.search.answers import attention_rows
from sgdec.search.banks import advancing_of, progress_of, with_progress
from sgdec.search.combination.choosing import Choice, Chosen
from sgdec.search.combination.dense import Ranked
from sgdec.search.node import Node
from sgdec.search.row_nodes import RowNodes
from sgdec.search.row_states import ArcStates, RowStates, ScoredStates
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
        if any(space.constellation is not self._constellation for space in spaces):
            raise ValueError("the spaces of one batch must share a constellation")
        self._weights = spaces[0].weights
        self._attentive = self._constellation.attentive(self._weights) if self._ranking.uses_coverage else []
        product = self._constellation.product if self._weights == self._constellation.weights else None
        self._rows: RowStates = (
            ScoredStates(self._constellation, self._weights)
            if product is None
            else ArcStates(self._constellation, self._weights, product)
        )
        self._coverage: Coverage = ()
        """For each predictor with attention ``[R, source]``."""
        self._widths: dict[int, int] = {}
        """For each predictor with attention the length of its longest source."""
        self._nodes = RowNodes(self._constellation, self._ranking.uses_coverage)
        self._begin(spaces)

    def _begin(self, spaces: Sequence[SearchSpace]) -> None:
        """Add a row for each space; keep nodes for those that need them."""
        self._rows.add([space.root for space in spaces])
        reach = [space.reach if space.watched else None for space in spaces]
        self._nodes.add([space.root for space in spaces], [space.traced for space in spaces], reach)

    def add(self, spaces: Sequence[SearchSpace]) -> None:
        """Add one row per space, its empty prefix, after the others.

        Raises ValueError if the spaces have another constellation, or if the ranking has a coverage penalty: then all
        rows must begin together.
        """
        if self._ranking.uses_coverage or any(space.constellation is not self._constellation for space in spaces):
            raise ValueError("rows can be added only for the same constellation, and without a coverage penalty")
        self._begin(spaces)

    def best_children(self, size: int, ending: Flags) -> Ranked:
        """The ``size`` best continuations of each row, best first (ties: lower token).

        ``ending [R]``: whether a row is at its length limit, so that only ``</s>`` can follow. Forbidden tokens have
        score -inf, so a row may have fewer than C children, or none. Calls each predictor once and changes nothing.

        Raises UsageError if widths differ or V is unknown; SgdecError for a score that is NaN or +inf, and for a sum
        that overflows.
        """
        self._nodes.expand()
        rows = self._rows.combined()
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
        chosen = self._rows.best(beams, totals, Choice(size, size, width, all_ends), ending)
        if not advancing:
            return chosen
        besides = self._besides(self._rows.firsts(ending), ending)
        return chosen.and_also(self._rows.cells(*besides, totals), beams)

    def progress(self, rows: Ints, tokens: Ints) -> Ints:
        """``[n]``: how much of all constraints children have met. Child i is row ``rows[i]`` plus ``tokens[i]``.

        Call it after `best_together`, before `consume`; not for children that end with ``</s>``.
        """
        constellation, places = self._constellation, rows.tolist()

        def after(k: int) -> Sequence[Any]:
            known = self._rows.listed(k)
            states = [known[place] for place in places]
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
        tokens = advancing_of(members, counted, self._rows.listed, len(best))
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
        totals = self._rows.grown(before, row, children.tokens.ravel(), children.scores.ravel(), list(ledger))
        return totals.reshape(rows, size)

    def cover(self) -> Floats:
        """``[R]``: the coverage penalty cp (`sgdec.ranking`, equation 14) of every child of a row.

        Call it once per step, before `consume`: it adds the attention for the next token. A child of ``length``
        tokens has the rank score ``total / ranking.length_penalty(length) + cp``. If the ranking has no coverage
        penalty, all values are 0, and no predictor is called.
        """
        if not self._attentive:
            return np.zeros(self._rows.count)
        attention = []
        for k in self._attentive:
            member = self._constellation.members[k]
            rows = attention_rows(member.name, member.ask("attention", self._rows.listed(k)))
            self._widths.setdefault(k, max(map(len, rows), default=0))
            attention.append(_padded(rows, self._widths[k]))
        self._coverage = add_attention(self._coverage, attention)
        return self._ranking.coverage_penalties(self._coverage)

    def consume(self, rows: Ints, tokens: Ints) -> None:
        """Replace the rows by n children: child i is row ``rows[i]`` plus token ``tokens[i]``. Rows may repeat."""
        self._nodes.consume(rows, tokens)
        self._rows.consume(rows, tokens)
        self._cover(rows)

    def keep(self, rows: Ints) -> None:
        """Keep only these n rows, in the order of ``rows [n]``."""
        self._nodes.keep(rows)
        self._rows.keep(rows)
        self._cover(rows)

    def _cover(self, rows: Ints) -> None:
        self._coverage = tuple(None if covered is None else covered[rows] for covered in self._coverage)

    def node(self, row: int, space: SearchSpace, length: int) -> Node:
        """A row of ``length`` tokens as a node, to compute its bound with ``space.bound([node])``.

        The node has neither the tokens nor the total.
        """
        states = [None if weight is None else self._rows.state(k, row) for k, weight in enumerate(self._weights)]
        return Node.root(space.source, self._weights, states, length)

    def watched(self, row: int) -> Node | None:
        """A row as a node, if its search is traced."""
        return self._nodes[row]

    def watched_children(self, rows: Ints, tokens: Ints) -> list[Node | None]:
        """Children of rows as nodes, if their searches are traced: child i is row ``rows[i]`` plus ``tokens[i]``.

        Call it after `best_children` or `best_together`, before `consume`.
        """
        return self._nodes.children(rows, tokens)


def _padded(rows: Sequence[Floats], width: int) -> Floats:
    """``[R, width]``: rows of attention, padded with ones, which count as covered."""
    padded = np.ones((len(rows), width))
    for target, row in zip(padded, rows, strict=True):
        target[: len(row)] = row
    return padded
