"""Beam search with penalties and stopping rules, and exact search (Stahlberg and Byrne 2019, Algorithm 1).

TODO: describe both searches, their guarantees, and their cost in expansions. What breaks the curse, and why?
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

import sgdec
from sgdec import Decoder, Result, SearchSpace
from sgdec.ranking import Ranking


class MySearch(Decoder):
    """Beam search, or exact search."""

    def __init__(
        self,
        search: Annotated[Literal["beam", "exact"], Field(description="beam search, or exact search")] = "beam",
        size: Annotated[int, Field(ge=1, description="open hypotheses that are kept")] = 4,
        stop: Annotated[
            Literal["first", "full", "optimal"], Field(description="when the beam search ends")
        ] = "optimal",
        alpha: Annotated[float, Field(ge=0, description="length normalisation; 0 = none")] = 0.0,
        reward: Annotated[float, Field(ge=0, description="added for each token of the output")] = 0.0,
        shortest: Annotated[float, Field(ge=0, description="least length, as a share of the source's")] = 0.0,
    ) -> None:
        self.search = search
        self.size = size
        self.stop = stop
        self.reward = reward
        self.shortest = shortest
        self.ranking = Ranking(alpha)  # space.rank_score(node) is equation 14 of Wu et al.; with alpha 0 the total

    def decode(self, space: SearchSpace) -> Result:
        """The best finished hypotheses by s(Y), at most ``space.nbest``; with ``exact`` or a reward only the best."""
        raise NotImplementedError("both searches")


@sgdec.hookimpl
def sgdec_decoders() -> dict[str, type[Decoder]]:
    return {"mysearch": MySearch}
