"""Depth-first search: the whole space, but for what cannot be in the n-best (Stahlberg et al. 2017, Table 3).

Goes down the best branch until it ends, back up to the last prefix with children left, and down again. A branch is
cut where all that it can still reach is no better than the n-th best so far, by the bounds that the predictors
declare: scores may be positive, weights negative, and a lattice's costs below zero.

Guarantee: without a budget the true n-best of the space, best first, under any ranking (alpha, beta), with a proof.
With a budget the best that was found, and by how much the optimum can be better. Refused where a predictor declares
no bound, and where no bound can end the search: without a length limit and a budget, if totals can grow for ever.

Cost: every prefix whose bound beats the n-th best when its turn comes: exponential in the length, but for good bounds
(an `fst` knows the distance to its end exactly). Memory: one path, with the children of its prefixes left to visit.

Departures: branches are ordered by bound, not by score, which is the same where scores never rise; SGNMT's dfs cuts
by scores alone, which is exact only there.
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
    """Searches as `ExactDecoder.search` says, down the best branch first."""
    path = [tree.root()]
    while path:
        found = path[-1].take()
        if found is None:
            path.pop()
        elif tree.recombination.opens(found[1]):
            if tree.budget.left() <= 0:
                return max(found[0], *(siblings.bound for siblings in path))
            path += tree.expand([found])
    return FORBIDDEN


@sgdec.hookimpl
def sgdec_decoders() -> dict[str, type[Decoder]]:
    return {"dfs": DfsDecoder}
