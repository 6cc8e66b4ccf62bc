"""``two-pass``: a beam with the first predictor alone, and its list reranked by all of them.

The second pass follows each hypothesis once more through the whole constellation, token by token. So what comes out
has the totals and ledgers of all predictors, and what one of them forbids is out. No guarantee.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

import sgdec
from sgdec import Decoder, Node, Result, SearchSpace


class TwoPass(Decoder):
    """Cost: one expansion for each hypothesis of the beam and position, twice."""

    def __init__(self, size: Annotated[int, Field(ge=1, description="hypotheses that are reranked")] = 4) -> None:
        self.size = size

    def decode(self, space: SearchSpace) -> Result:
        followed = (self.follow(space, node.tokens) for node in self.first_pass(space))
        hypotheses = [space.finish(node) for node in followed if node is not None]
        hypotheses.sort(key=lambda each: -each.rank_score)
        return Result(hypotheses[: space.nbest])

    def first_pass(self, space: SearchSpace) -> list[Node]:
        first, *others = space.root.weights
        beam = [space.root.with_weights([first, *(None for _ in others)])]
        finished: list[Node] = []
        while beam and len(finished) < self.size:
            families = space.expand(beam, limit=self.size)
            children = sorted((c for f in families for c in f), key=lambda child: -child.total)[: self.size]
            finished += [child for child in children if child.finished]
            beam = [child for child in children if not child.finished]
        return finished

    def follow(self, space: SearchSpace, tokens: tuple[int, ...]) -> Node | None:
        node = space.root
        for token in tokens:
            (children,) = space.expand([node])
            following = next((child for child in children if child.last == token), None)
            if following is None:
                return None
            node = following
        return node


@sgdec.hookimpl
def sgdec_decoders() -> dict[str, type[Decoder]]:
    return {"two-pass": TwoPass}
