"""A* search: expands the prefix with the best bound (Hart, Nilsson and Raphael 1968).

The priority of a prefix is its bound: its total plus the most that its predictors can still add, as a rank score.
This is an admissible heuristic (``heuristic predictor``): once the n-th best hypothesis found is no worse than the
bounds of all open prefixes, the n-best list is complete. ``heuristic none`` takes the total alone, which makes A*
uniform-cost search (Dijkstra 1959).

Guarantee: without a budget or an exceeded capacity, the true n-best of the space, best first, under any ranking
(alpha, beta), with a proof; no prefix is expanded whose bound is below the score of the last hypothesis of the list.
With ``heuristic none`` the guarantee holds only if totals never rise, and the proof only if all predictors say so. If
the ``capacity`` drops prefixes, or the budget ends the search, the result states by how much the optimum can be
better. The search is refused if a predictor declares no bound, except for ``heuristic none``, and if no bound can end
the search, as for `dfs`.

Cost: with exact bounds (an `fst` alone) one expansion per token of the list, with loose bounds up to the whole space.
Memory: every expanded prefix with children left; the queue orders these prefixes by their best child, and
``capacity`` counts them.

Departures: the heuristic is a bound on future scores, not an estimate as in SGNMT, and the length limit is enforced.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import Annotated, Literal, TypeAlias, final

from pydantic import Field

import sgdec
from sgdec import Decoder, SearchSpace
from sgdec.protocol import FORBIDDEN
from sgdec_decoders._branch_and_bound import Children, NBest, Tree
from sgdec_decoders._exact import ExactDecoder

Entry: TypeAlias = tuple[float, int, int, Children]
"""Minus the bound of the first of these children; minus its length (longer first); order of arrival."""


@final
@dataclass(eq=False)
class AStarDecoder(ExactDecoder):
    """Best-first search by an admissible heuristic."""

    capacity: Annotated[
        int, Field(ge=0, description="limit on expanded prefixes in the queue; 0 = no limit")
    ] = 0
    heuristic: Annotated[
        Literal["predictor", "none"], Field(description="the bound on future scores: that of the predictors, or none")
    ] = "predictor"

    def caveat(self, nbest: int, never_rises: bool) -> str | None:
        if self.heuristic == "predictor" or never_rises:
            return None
        return "with heuristic none the search can miss the best hypothesis, because totals can rise."

    def way_out(self, limited: bool, bounded: bool) -> str | None:
        return "with heuristic predictor it cannot" if bounded else None

    def tree(self, space: SearchSpace) -> Tree:
        heuristic = self.heuristic == "predictor"
        return Tree(space, self.budget(space), NBest(space), self.recombination(space), heuristic=heuristic)

    def search(self, tree: Tree) -> float:
        queue = _Queue(self.capacity)
        queue.push(tree.root())
        while queue.bound > tree.best.lowest():
            siblings = queue.pop()
            found = siblings.take()
            queue.push(siblings)
            if found is None or not tree.recombination.opens(found[1]):
                continue
            still_open = tree.ends([found], queue.best_bound)
            if still_open is not None:
                return still_open
            for children in tree.expand([found]):
                queue.push(children)
        return queue.lost


class _Queue:
    """Open prefixes ordered by their bounds, siblings together; at most ``capacity`` families, 0 = no limit."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._entries: list[Entry] = []
        self._arrivals = count()
        self.lost = FORBIDDEN
        """The best bound of all dropped families."""

    @property
    def bound(self) -> float:
        """The best bound in the queue; -inf = it is empty."""
        return -self._entries[0][0] if self._entries else FORBIDDEN

    def best_bound(self) -> float:
        """The best bound of all families that are in the queue or were dropped."""
        return max(self.bound, self.lost)

    def push(self, children: Children) -> None:
        """Adds siblings unless none of them can enter the n-best."""
        first = children.first()
        if first is None:
            return
        bound, node = first
        heappush(self._entries, (-bound, -node.length, next(self._arrivals), children))
        if self._capacity and len(self._entries) > self._capacity:
            self._entries.sort()  # a sorted list is a heap
            bound, _, _, lost = self._entries.pop()
            self.lost = max(self.lost, -bound)
            lost.drop("capacity")

    def pop(self) -> Children:
        return heappop(self._entries)[-1]


@sgdec.hookimpl
def sgdec_decoders() -> dict[str, type[Decoder]]:
    return {"astar": AStarDecoder}
