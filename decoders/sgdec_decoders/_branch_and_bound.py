"""What exact searches share: branch and bound (Land and Doig 1960).

A node is a *branch*: all hypotheses that begin with it. Its bound is the best rank score that any of them can reach:
its total, and the most that the predictors can still add (`SearchSpace.bound`), turned into a rank score. A branch
whose bound does not beat the n-th best hypothesis found so far is cut, and nothing of the n-best is lost.

Children are made and bounded in blocks, best score first. Where no predictor's score is ever positive (they declare
``never_positive``), the last of a block bounds all that come after it, so that of a large vocabulary little is looked
at, and no token is consumed for a bound. Otherwise all children of an expanded prefix are bounded, which consumes a
token for each in every predictor that has a bound of its own: cheap for a lattice.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterator, Sequence
from heapq import heappush, heapreplace
from itertools import islice
from operator import itemgetter
from typing import Annotated, TypeAlias

from pydantic import Field

from sgdec import Node, Result, SearchSpace
from sgdec.protocol import FORBIDDEN

BLOCK = 64
"""So many children of a node are produced and bounded at a time."""

MaxExpansions: TypeAlias = Annotated[
    int, Field(ge=0, description="end the search after this many expansions; 0 = no limit")
]
MaxSeconds: TypeAlias = Annotated[float, Field(ge=0, description="end the search after this time; 0 = no limit")]
Recombine: TypeAlias = Annotated[
    bool, Field(description="of prefixes with the same future, open only those that can matter to the n-best")
]

Bounded: TypeAlias = tuple[float, Node]
"""A node behind its bound."""
Bounds: TypeAlias = Callable[[SearchSpace, Sequence[Node]], list[float]]
_bound_of = itemgetter(0)


def best_reachable(space: SearchSpace, nodes: Sequence[Node]) -> list[float]:
    """For each node the highest rank score that any hypothesis can have that begins with it; -inf = there is none.

    Raises UsageError, naming the predictor, where one declares no bound.
    """
    return _ranked(space, nodes, space.bound(nodes))


def reached(space: SearchSpace, nodes: Sequence[Node]) -> list[float]:
    """The same, if nothing were ever added to a total."""
    return _ranked(space, nodes, [0.0] * len(nodes))


def _ranked(space: SearchSpace, nodes: Sequence[Node], more: Sequence[float]) -> list[float]:
    """Totals with so much ``more`` as rank scores: of finished nodes their own, of open ones the best possible."""
    totals = [node.total + added for node, added in zip(nodes, more, strict=True)]
    ranking, limit = space.ranking, space.source.max_length
    if not ranking.uses_length and not ranking.uses_coverage:
        return totals
    longest = None if limit is None else limit + 1
    return [
        space.rank_score(node) if node.finished else ranking.best_possible(total, node.length + 1, longest)
        for node, total in zip(nodes, totals, strict=True)
    ]


class Budget:
    """How far one search may go, from its start."""

    def __init__(self, space: SearchSpace, max_expansions: int, max_seconds: float) -> None:
        """0 = no limit."""
        self._space = space
        self._last = space.expansions + (max_expansions or math.inf)
        self._end = time.monotonic() + (max_seconds or math.inf)

    def left(self) -> float:
        """How many nodes may still be expanded; none where the time is up."""
        return 0 if time.monotonic() >= self._end else self._last - self._space.expansions


class NBest:
    """The n best finished nodes so far, n as the run asks; equal ones in the order found."""

    def __init__(self, space: SearchSpace) -> None:
        self._space = space
        self.nodes: list[Node] = []
        self._costs: list[float] = []
        """Their rank scores, negated, so that they ascend."""

    def add(self, node: Node) -> None:
        cost = -self._space.rank_score(node)
        place = bisect_right(self._costs, cost)
        self._costs.insert(place, cost)
        self.nodes.insert(place, node)
        del self._costs[self._space.nbest :], self.nodes[self._space.nbest :]

    def remove(self, place: int) -> None:
        del self._costs[place], self.nodes[place]

    def highest(self) -> float:
        """The best rank score; -inf = there is none."""
        return -self._costs[0] if self._costs else FORBIDDEN

    def lowest(self, length: int = 0) -> float:
        """The rank score that a hypothesis of at least ``length`` tokens has to beat; -inf = any is welcome."""
        return -self._costs[-1] if len(self._costs) == self._space.nbest else FORBIDDEN

    def result(self, still_open: float = FORBIDDEN) -> Result:
        """``still_open``: the bound of all that was not searched; -inf = nothing."""
        hypotheses = [self._space.finish(node) for node in self.nodes]
        if still_open <= self.lowest():
            return Result(hypotheses, proven=True)
        gap = max(still_open - self.highest(), 0.0) if hypotheses else None
        return Result(hypotheses, proven=False, gap=gap)


class Recombination:
    """Which prefixes need not be opened: as many as are wanted were, with the same future and no lower totals.

    Whatever may follow such a prefix follows the others, too, for totals that are at least as high.
    """

    def __init__(self, space: SearchSpace, *, wanted: int, by_length: bool = False) -> None:
        """``wanted``: prefixes a key; 0 = all, nothing is compared. ``by_length``: only with others of its length."""
        self._space = space
        self._wanted = wanted
        self._by_length = by_length
        self._totals: dict[Hashable, list[float]] = {}
        """By key the ``wanted`` best totals, as a heap: the lowest first."""

    def opens(self, node: Node) -> bool:
        """Whether this prefix is to be opened; if so, it counts from now on."""
        if not self._wanted:
            return True
        (key,) = self._space.keys([node])
        totals = self._totals.setdefault((key, node.length) if self._by_length else key, [])
        if len(totals) < self._wanted:
            heappush(totals, node.total)
            return True
        if node.total > totals[0]:
            heapreplace(totals, node.total)
            return True
        return False


class Tree:
    """A search space as branch and bound sees it: what is finished goes to the n-best, what is open to the search."""

    def __init__(self, space: SearchSpace, best: NBest, *, bounds: Bounds = best_reachable) -> None:
        self.space = space
        self.best = best
        self.bounds = bounds
        limit = space.source.max_length
        self._longest = None if limit is None else limit + 1
        self._totals_are_bounds = space.never_rises or bounds is reached

    def bound_after(self, block: Sequence[Node]) -> float:
        """Of all siblings that come after this block, which have no higher totals; -inf = there is none."""
        if len(block) < BLOCK:
            return FORBIDDEN
        if not self._totals_are_bounds:
            return math.inf
        last = block[-1]
        return self.space.ranking.best_possible(last.total, last.length, self._longest)

    def root(self) -> Children:
        """The empty prefix, as if it were somebody's only child."""
        return Children(self, math.inf, 0, iter([self.space.root]))

    def expand(self, parents: Sequence[Bounded]) -> list[Children]:
        """For each node its children, which have not been seen yet."""
        if not parents:
            return []
        found = self.space.expand([node for _, node in parents])
        return [
            Children(self, bound, node.length + 1, children)
            for (bound, node), children in zip(parents, found, strict=True)
        ]


class Children:
    """The open children of one node, best bound first, produced block by block and only as far as that needs."""

    def __init__(self, tree: Tree, bound: float, length: int, unseen: Iterator[Node]) -> None:
        """``bound``: of their parent, and so of all of them. ``length``: theirs."""
        self._tree = tree
        self._length = length
        self._unseen = unseen
        self._bound_of_unseen = bound
        self._seen: list[Bounded] = []
        """Best last."""

    @property
    def bound(self) -> float:
        """Of all that are left; -inf = none is."""
        return max(self._seen[-1][0], self._bound_of_unseen) if self._seen else self._bound_of_unseen

    def first(self) -> Bounded | None:
        """The best one left, if its bound beats the n-best so far; else none that is left does."""
        lowest = self._tree.best.lowest(self._length)
        while self.bound > lowest:
            if self._seen and self._seen[-1][0] >= self._bound_of_unseen:
                return self._seen[-1]
            self._see_more()
            lowest = self._tree.best.lowest(self._length)
        self._seen.clear()
        return None

    def take(self) -> Bounded | None:
        """The same, and it is no longer among those left."""
        return self._seen.pop() if self.first() is not None else None

    def _see_more(self) -> None:
        block = list(islice(self._unseen, BLOCK))
        self._bound_of_unseen = min(self._bound_of_unseen, self._tree.bound_after(block))
        if not block:
            return
        still_open = []
        for found in zip(self._tree.bounds(self._tree.space, block), block, strict=True):
            if found[1].finished:
                self._tree.best.add(found[1])
            else:
                still_open.append(found)
        # Stable: of equal bounds that which came first is the last, and so the next.
        self._seen = sorted([*reversed(still_open), *self._seen], key=_bound_of)
