"""`narrowing`: a beam that is wide at first, and narrower by one hypothesis at each token. No guarantee."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

import sgdec
from sgdec import Decoder, Node, Result, SearchSpace


class Narrowing(Decoder):
    """Finished hypotheses leave the beam; the search ends when the beam is empty."""

    def __init__(
        self,
        first: Annotated[int, Field(ge=1, description="width at the first token")] = 8,
        last: Annotated[int, Field(ge=1, description="least width")] = 2,
    ) -> None:
        self.first = first
        self.last = last

    def caveat(self, nbest: int, never_rises: bool) -> str | None:
        return f"lists can be shorter than {nbest}; a larger last makes them longer" if nbest > self.last else None

    def decode(self, space: SearchSpace) -> Result:
        beam, finished, width = [space.root], list[Node](), self.first
        while beam:
            families = space.expand(beam, limit=width)
            children = sorted((child for family in families for child in family), key=lambda child: -child.total)
            finished += [child for child in children[:width] if child.finished]
            beam = [child for child in children[:width] if not child.finished]
            width = max(self.last, width - 1)
        finished.sort(key=space.rank_score, reverse=True)
        return Result([space.finish(node) for node in finished[: space.nbest]])


@sgdec.hookimpl
def sgdec_decoders() -> dict[str, type[Decoder]]:
    return {"narrowing": Narrowing}
