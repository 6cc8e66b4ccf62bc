"""``best-of-two``: what two decoders list, best total first.

No guarantee but this one: the best output has at least the total of either decoder's. Cost: that of both.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

import sgdec
from sgdec import Decoder, DecoderSpec, Result, SearchSpace

GREEDY = DecoderSpec("greedy")


class BestOfTwo(Decoder):
    """Both decoders search the whole space, one after the other."""

    def __init__(
        self,
        first: Annotated[DecoderSpec, Field(description="the one decoder")] = GREEDY,
        second: Annotated[DecoderSpec | None, Field(description="the other decoder")] = None,
    ) -> None:
        self.inner = [spec for spec in (first, second) if spec is not None]

    def decode(self, space: SearchSpace) -> Result:
        listed = [hypothesis for spec in self.inner for hypothesis in spec.decode(space).hypotheses]
        first = {hypothesis.tokens: hypothesis for hypothesis in reversed(listed)}
        return Result(sorted(first.values(), key=lambda each: -each.score)[: space.nbest])


@sgdec.hookimpl
def sgdec_decoders() -> dict[str, type[Decoder]]:
    return {"best-of-two": BestOfTwo}
