"""Beam search (Stahlberg et al. 2017, Algorithm 2), with length normalisation (Wu et al. 2016, equation 14).

TODO: describe the search, its guarantees, and its cost in expansions.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

import sgdec
from sgdec import Decoder, Result, SearchSpace
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
        self.ranking = Ranking(alpha)  # space.rank_score(node) is then equation 14; with alpha 0 the total

    def decode(self, space: SearchSpace) -> Result:
        """All finished hypotheses that were ever in the beam, best rank score first, at most ``space.nbest``.

        A finished hypothesis that loses its place in the beam is returned, too.

        A node is (h, c, s) of the paper in one value: ``node.tokens``, ``node.total``, and states that you never see.
        """
        raise NotImplementedError("Algorithm 2")


@sgdec.hookimpl
def sgdec_decoders() -> dict[str, type[Decoder]]:
    return {"mybeam": MyBeam}
