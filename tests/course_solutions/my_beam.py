"""Beam search (Stahlberg et al. 2017, Algorithm 2), with length normalisation (Wu et al. 2016, equation 14).

Searches breadth first, keeping the ``size`` best hypotheses of each length. Guarantee: none. Cost: at most ``size``
expansions a target position.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

import sgdec
from sgdec import Decoder, Node, Result, SearchSpace
from sgdec.ranking import Ranking


class MyBeam(Decoder):
    """Keeps the ``size`` best hypotheses of each length."""

    def __init__(
        self,
        size: Annotated[int, Field(ge=1, description="n, the hypotheses that are kept")] = 4,
        alpha: Annotated[float, Field(ge=0, description="length normalisation; 0 = none")] = 0.0,
    ) -> None:
        self.size = size
        self.alpha = alpha
        self.ranking = Ranking(alpha)

    def decode(self, space: SearchSpace) -> Result:
        beam = [space.root]  # line 2
        finished: list[Node] = []
        while not self._stops(beam):  # line 16
            candidates = self._candidates(space, beam)  # lines 4-9
            candidates.sort(key=lambda node: -node.total)  # stable: equal totals stay in order
            beam = candidates[: self.size]  # lines 10-15
            finished += [node for node in beam if node.finished and node not in finished]
        finished.sort(key=space.rank_score, reverse=True)
        return Result([space.finish(node) for node in finished[: space.nbest]])

    def _candidates(self, space: SearchSpace, beam: list[Node]) -> list[Node]:
        expanded = iter(space.expand([node for node in beam if not node.finished], limit=self.size))
        candidates = []
        for node in beam:
            candidates += [node] if node.finished else next(expanded)
        return candidates

    def _stops(self, beam: list[Node]) -> bool:
        if self.alpha == 0:
            return not beam or beam[0].finished
        return all(node.finished for node in beam)


@sgdec.hookimpl
def sgdec_decoders() -> dict[str, type[Decoder]]:
    return {"mybeam": MyBeam}
