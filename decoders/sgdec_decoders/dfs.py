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

import sgdec
from sgdec import Decoder, Result, SearchSpace
from sgdec.ranking import Ranking
from sgdec_decoders._beam_options import Alpha, Beta, Normalize
from sgdec_decoders._branch_and_bound import (
    Budget,
    MaxExpansions,
    MaxSeconds,
    NBest,
    Recombination,
    Recombine,
    Tree,
)


class DfsDecoder(Decoder):
    """Depth-first branch and bound."""

    exact = True

    def __init__(
        self,
        max_expansions: MaxExpansions = 0,
        max_seconds: MaxSeconds = 0.0,
        alpha: Alpha = 0.0,
        beta: Beta = 0.0,
        normalize: Normalize = "gnmt",
        recombine: Recombine = False,
    ) -> None:
        self.max_expansions = max_expansions
        self.max_seconds = max_seconds
        self.recombine = recombine
        self.ranking = Ranking(alpha, beta, normalize)

    def decode(self, space: SearchSpace) -> Result:
        budget = Budget(space, self.max_expansions, self.max_seconds)
        recombination = Recombination(space, wanted=space.nbest if self.recombine else 0)
        return depth_first(Tree(space, NBest(space)), budget, recombination)


def depth_first(tree: Tree, budget: Budget, recombination: Recombination) -> Result:
    """Searches until all is visited or cut, or the budget is spent."""
    path = [tree.root()]
    while path:
        found = path[-1].take()
        if found is None:
            path.pop()
        elif recombination.opens(found[1]):
            if budget.left() <= 0:
                return tree.best.result(still_open=max(found[0], *(siblings.bound for siblings in path)))
            path += tree.expand([found])
    return tree.best.result()


@sgdec.hookimpl
def sgdec_decoders() -> dict[str, type[Decoder]]:
    return {"dfs": DfsDecoder}
