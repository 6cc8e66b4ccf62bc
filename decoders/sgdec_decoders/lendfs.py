"""Depth-first search for the best hypothesis of each length (Stahlberg and Byrne 2019, section 3).

As `dfs`, but finished hypotheses compete only with those of their own length: a branch is cut if, at every length
that it can still reach, it cannot beat the best hypothesis of that length so far. |Y| counts ``</s>``.

Guarantee: without a budget, the true best hypothesis of each length, with a proof. The list has the ``--nbest`` best
of these, best rank score first, so the first is the optimum of the space; with ``--distinct-text``, those of them
whose texts differ. With a budget, the best hypotheses found, and by how much the optimum can be better than the
first. The search is refused under the conditions of `dfs`.

Cost: that of `dfs`, plus all branches that `dfs` cuts because of a hypothesis of another length. At most ``--nbest``
lengths are searched: ``--nbest 1`` is `dfs`.

Departures: the paper takes initial lower bounds by length from another search; here the first path gives one.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar, final

import sgdec
from sgdec import Decoder, Node, SearchSpace
from sgdec.protocol import FORBIDDEN
from sgdec_decoders._branch_and_bound import NBest, Recombination, Tree
from sgdec_decoders._exact import ExactDecoder
from sgdec_decoders.dfs import depth_first


@final
@dataclass(eq=False)
class LenDfsDecoder(ExactDecoder):
    """Depth-first branch and bound, with one best hypothesis for each length."""

    exact: ClassVar[bool] = False
    """Not the n-best of the space, which may all have one length."""

    def tree(self, space: SearchSpace) -> Tree:
        # Among prefixes with the same future and length, only the best matters.
        recombination = Recombination(space, wanted=1 if self.recombine else 0, by_length=True)
        return Tree(space, self.budget(space), BestByLength(space), recombination)

    def search(self, tree: Tree) -> float:
        return depth_first(tree)


class BestByLength(NBest):
    """The n best among the best finished nodes of each length."""

    def __init__(self, space: SearchSpace) -> None:
        super().__init__(space)
        limit = space.source.max_length
        self._lengths = None if limit is None else limit + 1
        self._lowest_from: list[float] = []
        """For each length the lowest rank score in the list at this or a greater length; -inf if a length has no
        hypothesis."""

    def add(self, node: Node) -> None:
        super().add(node)
        self._lowest_from = self._lowest_by_length()

    def rivals(self, node: Node) -> int:
        return node.length

    def lowest(self, length: int = 0) -> float:
        """The rank score to beat: that of the last entry of the list, or the worst of the lengths that the hypothesis
        can have."""
        last = super().lowest(length)
        return max(last, self._lowest_from[length]) if self._lowest_from else last

    def _lowest_by_length(self) -> list[float]:
        if self._lengths is None:
            return []
        ranks = {node.length: self._space.rank_score(node) for node in self.nodes}
        by_length = [ranks.get(length, FORBIDDEN) for length in range(1, self._lengths + 1)]
        lowest = list(accumulate(reversed(by_length), min))[::-1]
        return [lowest[0], *lowest]  # no hypothesis has length 0


@sgdec.hookimpl
def sgdec_decoders() -> dict[str, type[Decoder]]:
    return {"lendfs": LenDfsDecoder}
