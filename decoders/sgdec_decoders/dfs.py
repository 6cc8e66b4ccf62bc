"""Depth-first search: the whole space, except branches that cannot be in the n-best (Stahlberg et al. 2017, Table 3).

Follows the best branch until it ends, goes back to the last prefix with children left, and continues from there. A
branch is cut if no hypothesis in it can beat the n-th best so far, by the bounds that the predictors declare: scores
may be positive, weights negative, and a lattice's costs below zero.

Guarantee: without a budget the true n-best of the space, best first, under any ranking (alpha, beta), with a proof.
With a budget, the best hypothesis found, and by how much the optimum can be better. The search is refused if a
predictor declares no bound, and if no bound can end it: without length limit and budget, if totals can grow without
limit.

Cost: one expansion for each prefix whose bound beats the n-th best when it is visited: exponential in the length,
unless bounds are tight (an `fst` knows the distance to its end exactly). Memory: one path, with the unvisited
children of its prefixes.

Departures: branches are ordered by bound, not by score; the order is the same if totals never rise. SGNMT's dfs cuts
by scores alone, which is exact only in that case.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import sgdec
from sgdec import Decoder
from sgdec.protocol import FORBIDDEN
from sgdec_decoders._branch_and_bound import Tree
from sgdec_decoders._exact import ExactDecoder


@final
@dataclass(eq=False)
class DfsDecoder(ExactDecoder):
    """Depth-first branch and bound."""

    def search(self, tree: Tree) -> float:
        return depth_first(tree)


def depth_first(tree: Tree) -> float:
    """Search as defined by `ExactDecoder.search`, the best branch first."""
    path = [tree.root()]

    def best_bound() -> float:
        return max(siblings.bound for siblings in path)

    while path:
        found = path[-1].take()
        if found is None:
            path.pop()
        elif tree.recombination.opens(found[1]):
            still_open = tree.ends([found], best_bound)
            if still_open is not None:
                return still_open
            path.extend(tree.expand([found]))
    return FORBIDDEN


@sgdec.hookimpl
def sgdec_decoders() -> dict[str, type[Decoder]]:
    return {"dfs": DfsDecoder}
