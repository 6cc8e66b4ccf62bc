"""``diverse-beam``: groups of beams, each kept away from those before it (Vijayakumar et al. 2018, Algorithm 1).

At each position the groups choose one after the other. For group g a child scores its total less ``strength`` for
each hypothesis of an earlier group that took the same token here (Hamming diversity, section 4). Only the choice is
penalised: totals and ledgers stay the model's, and so does the order of the list. No guarantee.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated

from pydantic import Field

import sgdec
from sgdec import Decoder, Node, Result, SearchSpace


class DiverseBeam(Decoder):
    """The list is of all groups, each hypothesis once."""

    def __init__(
        self,
        size: Annotated[int, Field(ge=1, description="hypotheses a group")] = 2,
        groups: Annotated[int, Field(ge=1, description="beams")] = 2,
        strength: Annotated[float, Field(ge=0, description="lambda")] = 0.5,
    ) -> None:
        self.size = size
        self.groups = groups
        self.strength = strength

    def decode(self, space: SearchSpace) -> Result:
        beams: list[list[Node]] = [[space.root] for _ in range(self.groups)]
        while any(not node.finished for beam in beams for node in beam):
            taken: Counter[int] = Counter()
            for g, beam in enumerate(beams):
                growing = [node for node in beam if not node.finished]
                families = space.expand(growing, limit=self.size + len(taken))
                children = [child for family in families for child in family]
                done = [(node, node.total) for node in beam if node.finished]
                new = [(child, child.total - self.strength * taken[child.last]) for child in children]
                best = sorted(done + new, key=lambda each: each[1], reverse=True)[: self.size]
                beams[g] = [node for node, _ in best]
                taken.update(node.last for node in beams[g] if node in children)
        found = {node.tokens: node for beam in reversed(beams) for node in beam if node.finished}
        hypotheses = [space.finish(node) for node in found.values()]
        hypotheses.sort(key=lambda each: (-each.rank_score, each.tokens))
        return Result(hypotheses[: space.nbest])


@sgdec.hookimpl
def sgdec_decoders() -> dict[str, type[Decoder]]:
    return {"diverse-beam": DiverseBeam}
