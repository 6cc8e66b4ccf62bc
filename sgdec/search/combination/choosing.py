"""The children of a beam that a search keeps, chosen from the children of all its nodes together.

A beam of n nodes has n x V children, of which the search keeps about n. Each node offers its best children, and the
best of all offers are chosen: in plain Python if there are few of them (`choose`), and with arrays if there are many
(`choose_cells`). Both use the same order: higher total, then earlier node, then higher score, then lower token.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from sgdec.arrays import Flags, Floats, Ints
from sgdec.context import EOS
from sgdec.protocol import FORBIDDEN
from sgdec.search.combination.continuations import Continuation
from sgdec.search.memory import FREE, require_room

CHILD_BYTES = 400
"""The memory that a child of one predictor takes at least, as a continuation and then as a node."""
Child = TypeVar("Child", bound=tuple[Any, ...])
"""A token, its combined score, and more: a `Continuation`, or an arc of a `JointAutomaton`."""


class Choice(NamedTuple):
    """The number of children wanted, and limits on what a node can offer."""

    size: int
    """The number of open children wanted."""
    each: int
    """The number of children, ``</s>`` included, that one node offers: its best."""
    width: float = math.inf
    """A node offers only children whose totals are at most this far below the total of its best child."""
    all_ends: bool = False
    """Whether all offered ``</s>`` are wanted, or only those that come before the last open child chosen."""


class Chosen(NamedTuple):
    """n children of R rows as flat arrays, group after group, best total first."""

    row: Ints
    """``[n]``: the row of the parent."""
    token: Ints
    total: Floats
    score: Floats
    """``[n]``: the combined score of the token."""
    ledger: Floats
    """``[n, K]``: the unweighted scores by predictor."""

    def at(self, places: Any) -> Chosen:
        """The children at these places: ``[n]`` -> ``[len(places)]``."""
        return Chosen(*(part[places] for part in self))

    @classmethod
    def joined(cls, several: Sequence[Chosen]) -> Chosen:
        """The children of several such arrays, in this order."""
        return cls(*map(np.concatenate, zip(*several, strict=True)))

    def without_repeats(self) -> Chosen:
        """The same with each pair of row and token once."""
        width = int(self.token.max(initial=0)) + 1
        return self.at(np.unique(self.row * width + self.token, return_index=True)[1])

    def and_also(self, others: Chosen, groups: Ints) -> Chosen:
        """These children and others that are not among them, in order. ``groups [R]``: the beam of each row."""
        found = Chosen.joined([self, others]).without_repeats()
        return found.at(np.lexsort((found.token, -found.score, found.row, -found.total, groups[found.row])))

    def by_row(self, rows: int) -> list[list[Continuation]]:
        """The children of each of the R rows, in the same order.

        Raises SgdecError if objects of all these children cannot fit into memory.
        """
        if len(self.row) * CHILD_BYTES > FREE:
            require_room(len(self.row), CHILD_BYTES, "the", "children of beams")
        found: list[list[Continuation]] = [[] for _ in range(rows)]
        ledgers = map(tuple, self.ledger.tolist())
        children = zip(self.token.tolist(), self.score.tolist(), ledgers, strict=True)
        for row, child in zip(self.row.tolist(), children, strict=True):
            found[row].append(child)
        return found


def choose(families: Sequence[list[Child]], before: Sequence[float], choice: Choice) -> list[list[Child]]:
    """The chosen children of each node of one beam, and all whose totals equal that of the last chosen one.

    ``families``: the children of each node, best score first, then the lower token. ``before``: the nodes' totals.
    """
    size, each, width, all_ends = choice
    offers = [family[:each] for family in families]
    if width < math.inf:
        for i, (family, total) in enumerate(zip(offers, before, strict=True)):
            if family:
                lowest = total + family[0][1] - width
                offers[i] = [child for child in family if total + child[1] >= lowest]
    opened: list[float] = []
    for family, total in zip(offers, before, strict=True):
        opened += [total + child[1] for child in family if child[0] != EOS]
    if len(opened) <= size:
        return offers
    opened.sort()
    least = opened[-size]
    return [
        [child for child in family if total + child[1] >= least or (all_ends and child[0] == EOS)]
        for family, total in zip(offers, before, strict=True)
    ]


def choose_in_groups(
    families: Sequence[list[Child]], groups: Sequence[int], before: Sequence[float], choice: Choice
) -> list[list[Child]]:
    """The same for the nodes of several beams; ``groups``: the beam of each node, ascending."""
    if groups[0] == groups[-1]:
        return choose(families, before, choice)
    chosen: list[list[Child]] = []
    start = 0
    while start < len(groups):
        end = bisect_right(groups, groups[start])
        chosen += choose(families[start:end], before[start:end], choice)
        start = end
    return chosen


def choose_rows(
    row: Ints, token: Ints, score: Floats, total: Floats, ledger: Sequence[Floats], groups: Ints, choice: Choice
) -> Chosen:
    """The chosen of n children of R rows that list them, row after row, with ascending tokens; in order.

    ``ledger``: for each predictor its scores ``[n]``. ``groups [R]``: the beam of each row, ascending.
    """
    possible = score > FORBIDDEN
    if not possible.all():
        row, token, score, total = row[possible], token[possible], score[possible], total[possible]
        ledger = [scores[possible] for scores in ledger]
    places = choose_arcs(row, token, score, total, groups, choice)
    if places is None:
        cells = Chosen(row, token, total, score, np.array(ledger).T)
        places, _, _ = choose_cells(cells, groups, choice)
    return Chosen(row[places], token[places], total[places], score[places], np.array([of[places] for of in ledger]).T)


def choose_arcs(row: Ints, token: Ints, score: Floats, total: Floats, groups: Ints, choice: Choice) -> Ints | None:
    """The positions of the chosen among n arcs of R rows, group after group in order; None = ask `choose_cells`.

    The arcs come row after row with ascending tokens, all of them possible. This is the short way for automata, whose
    rows have few arcs: all rows offer all of their arcs, or each of them its best one.
    """
    if choice.width < math.inf:
        return None
    places = np.arange(len(row))
    if choice.each == 1:
        first = _changes(row)
        best = np.maximum.reduceat(score, first.nonzero()[0])[first.cumsum() - 1] if len(row) else score
        (places,) = (score == best).nonzero()
        places = places[_changes(row[places])]  # of equal scores the lower token
        token, total = token[places], total[places]
    elif len(row) and int(np.bincount(row).max()) > choice.each:
        return None
    group = groups[row[places]]
    if _changes(group).all():  # no group has two of them
        return places
    order = np.lexsort((-total, group))  # stable: of equal totals the earlier row, then the lower token
    ordered = total[order]
    if (ordered[1:] == ordered[:-1]).any():  # then the score decides before the token
        return None
    is_open = token[order] != EOS
    before = is_open.cumsum() - is_open
    wanted = before < choice.size + before[group.searchsorted(group)]  # the order leaves the groups as they are
    if choice.all_ends:
        wanted |= ~is_open
    chosen: Ints = places[order[wanted]]
    return chosen


def _changes(values: Ints) -> Flags:
    """``[n]``: the values that differ from the one before them."""
    changes = np.ones(len(values), dtype=bool)
    np.not_equal(values[1:], values[:-1], out=changes[1:])
    return changes


def choose_cells(
    cells: Chosen, groups: Ints, choice: Choice, end_is_offered: Flags | None = None
) -> tuple[Ints, set[int], Ints]:
    """The positions of the chosen cells, group after group in order; and two facts that tell if more are needed.

    ``cells``: for each row all cells down to some total, each once, in any order. ``groups [R]``: the beam of each
    row, ascending. ``end_is_offered [R]``: whether a row offers ``</s>``; without it, the cells decide. The second
    result is the set of rows with open cells beyond those they offer; the third is the number of open cells chosen
    per group.
    """
    (possible,) = np.nonzero(cells.score != FORBIDDEN)
    row, token = cells.row[possible], cells.token[possible]
    by_row = np.lexsort((token, -cells.score[possible], row))
    order, row, is_end = possible[by_row], row[by_row], token[by_row] == EOS
    total = cells.total[order]
    first = np.searchsorted(row, row)  # [n]: the position of the best cell of the same row
    offered = np.arange(len(row)) - first < choice.each
    if choice.width < math.inf:
        offered &= total >= total[first] - choice.width
    if end_is_offered is not None:
        offered[is_end] = end_is_offered[row[is_end]]
    cut: set[int] = set()
    if not offered.all():
        cut = set(row[~offered & ~is_end].tolist())
        order, row, total, is_end = order[offered], row[offered], total[offered], is_end[offered]
    group = groups[row]
    by_total = np.lexsort((-total, group))  # stable: of equal totals the earlier row, then the better score
    group, is_open = group[by_total], ~is_end[by_total]
    before = np.cumsum(is_open) - is_open
    before -= before[np.searchsorted(group, group)]  # [n]: open cells of the group that come before this one
    wanted = before < choice.size
    opened = np.bincount(group[wanted & is_open], minlength=int(groups[-1]) + 1)
    if choice.all_ends:
        wanted |= ~is_open
    return order[by_total[wanted]], cut, opened
