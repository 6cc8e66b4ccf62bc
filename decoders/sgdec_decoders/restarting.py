"""Restarting search: greedy to the end, then again from the most promising prefix (Stahlberg et al. 2017, Table 3).

Each pass goes greedily from a prefix to the end; the prefixes that it passes keep the children not taken, and wait in
a queue. The next pass begins with the next child of the first prefix in the queue, whose order is ``node_score``:

- ``difference``: that first which loses least, by the totals of the child taken last and the next one;
- ``absolute``: that first whose next token has the best score, whatever was taken before;
- ``expansions``: that first from which the fewest passes have begun;
- ``constant``: in the order in which they were passed.

Branches are cut as in `dfs`, but sooner: it goes on where much can be won, and not where it happens to be.

Guarantee: without a budget the true n-best of the space, best first, under any ranking (alpha, beta), with a proof.
With a budget the best that was found, and by how much the optimum can be better. Refused where `dfs` is.

Cost: as `dfs`; the first hypothesis takes one expansion a token. Memory: all prefixes with children left.

Departures: children are taken, and branches cut, by bounds; they are the scores where scores never rise.
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
    """Greedy passes, each from the most promising prefix of those before."""

    node_score: Annotated[
        Literal["difference", "absolute", "constant", "expansions"],
        Field(description="which prefix a pass begins from; see 'sgdec plugins restarting'"),
    ] = "difference"

    def search(self, tree: Tree) -> float:
        queue = _Queue(NODE_COSTS[self.node_score])
        found = tree.root().take()
        while found is not None or queue.passed:
            if found is None:  # the end of a pass, and the beginning of the next
                _, _, passes, prefix, children = queue.pop()
                passes += 1
            elif not tree.recombination.opens(found[1]):
                found = None
                continue
            elif tree.budget.left() <= 0:
                return max([found[0], *(passed.children.bound for passed in queue.passed)])
            else:
                passes, prefix = 0, found[1]
                (children,) = tree.expand([found])
            found = children.take()
            if found is not None:
                queue.push(prefix, found[1], children, passes)
        return FORBIDDEN


class Passed(NamedTuple):
    """A prefix with children that were not taken; the first in the queue is that of the lowest cost."""

    cost: float
    arrival: int
    passes: int
    """How many began here."""
    prefix: Node
    children: Children


NodeCost = Callable[[Node, Node, Node, int], float]
"""Of a prefix, the child taken last, the next one, and how many passes began here."""

NODE_COSTS: dict[str, NodeCost] = {
    "difference": lambda prefix, taken, following, passes: taken.total - following.total,
    "absolute": lambda prefix, taken, following, passes: prefix.total - following.total,
    "expansions": lambda prefix, taken, following, passes: passes,
    "constant": lambda prefix, taken, following, passes: 0.0,
}


class _Queue:
    """The prefixes that passes went through and that have children left, by their costs."""

    def __init__(self, cost: NodeCost) -> None:
        self.passed: list[Passed] = []
        self._cost = cost
        self._arrivals = count()

    def push(self, prefix: Node, taken: Node, children: Children, passes: int) -> None:
        """Unless none of the children left can enter the n-best. ``taken``: the child that a pass went on with."""
        following = children.first()
        if following is not None:
            cost = self._cost(prefix, taken, following[1], passes)
            heappush(self.passed, Passed(cost, next(self._arrivals), passes, prefix, children))

    def pop(self) -> Passed:
        return heappop(self.passed)


@sgdec.hookimpl
def sgdec_decoders() -> dict[str, type[Decoder]]:
    return {"restarting": RestartingDecoder}
