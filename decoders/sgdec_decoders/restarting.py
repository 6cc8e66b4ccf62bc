"""Restarting search: repeated greedy search, each pass from the most promising prefix (Stahlberg et al. 2017, Table
3).

Each pass searches greedily from a prefix to the end. The prefixes on its path keep the children that were not taken,
and are put in a queue. The next pass begins with the next child of the first prefix in the queue. ``node_score``
defines the order of the queue:

- ``difference``: smallest loss first, which is the difference between the totals of the child taken last and of the
  next child;
- ``absolute``: best score of the next token first, regardless of earlier tokens;
- ``expansions``: fewest passes so far first;
- ``constant``: in order of arrival.

Branches are cut as in `dfs`, but sooner: passes begin at the most promising prefix, not at the last one.

Guarantee: without a budget the true n-best of the space, best first, under any ranking (alpha, beta), with a proof.
With a budget, the best hypothesis found, and by how much the optimum can be better. The search is refused under the
conditions of `dfs`.

Cost: that of `dfs`; the first hypothesis takes one expansion per token. Memory: all prefixes with children left.

Departures: children are taken and branches cut by bounds, which equal the totals if these never rise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import Annotated, Literal, NamedTuple, final

from pydantic import Field

import sgdec
from sgdec import Decoder, Node
from sgdec.protocol import FORBIDDEN
from sgdec_decoders._branch_and_bound import Children, Tree
from sgdec_decoders._exact import ExactDecoder


@final
@dataclass(eq=False)
class RestartingDecoder(ExactDecoder):
    """Greedy passes, each from the most promising prefix of the earlier ones."""

    node_score: Annotated[
        Literal["difference", "absolute", "constant", "expansions"],
        Field(description="order of the prefixes from which passes begin; see 'sgdec plugins restarting'"),
    ] = "difference"

    def search(self, tree: Tree) -> float:
        queue = _Queue(NODE_COSTS[self.node_score])
        found = tree.root().take()
        while found is not None or queue.passed:
            if found is None:  # end one pass and begin the next
                _, _, passes, prefix, children = queue.pop()
                passes += 1
            elif not tree.recombination.opens(found[1]):
                found = None
                continue
            else:
                still_open = tree.ends([found], queue.bound)
                if still_open is not None:
                    return still_open
                passes, prefix = 0, found[1]
                (children,) = tree.expand([found])
            found = children.take()
            if found is not None:
                queue.push(prefix, found[1], children, passes)
        return FORBIDDEN


class Passed(NamedTuple):
    """A prefix with children that were not taken. The queue is ordered by cost, the lowest first."""

    cost: float
    arrival: int
    passes: int
    """The number of passes that began here."""
    prefix: Node
    children: Children


NodeCost = Callable[[Node, Node, Node, int], float]
"""Computes a prefix's cost from the child taken last, the next one, and the number of passes that began here."""

NODE_COSTS: dict[str, NodeCost] = {
    "difference": lambda prefix, taken, following, passes: taken.total - following.total,
    "absolute": lambda prefix, taken, following, passes: prefix.total - following.total,
    "expansions": lambda prefix, taken, following, passes: passes,
    "constant": lambda prefix, taken, following, passes: 0.0,
}


class _Queue:
    """The visited prefixes that have children left, ordered by cost."""

    def __init__(self, cost: NodeCost) -> None:
        self.passed: list[Passed] = []
        self._cost = cost
        self._arrivals = count()

    def push(self, prefix: Node, taken: Node, children: Children, passes: int) -> None:
        """Adds a prefix if a child that is left can enter the n-best. ``taken``: the child that a pass took."""
        following = children.first()
        if following is not None:
            cost = self._cost(prefix, taken, following[1], passes)
            heappush(self.passed, Passed(cost, next(self._arrivals), passes, prefix, children))

    def bound(self) -> float:
        """The best bound of all children in the queue."""
        return max((passed.children.bound for passed in self.passed), default=FORBIDDEN)

    def pop(self) -> Passed:
        return heappop(self.passed)


@sgdec.hookimpl
def sgdec_decoders() -> dict[str, type[Decoder]]:
    return {"restarting": RestartingDecoder}
