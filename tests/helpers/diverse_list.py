"""A decoder whose criterion has no number for each hypothesis, so that its lists have an order of their own."""

from __future__ import annotations

import numpy as np
from sgdec_decoders.beam import BeamDecoder

import sgdec
from sgdec import EOS, Decoder, Hypothesis, Predictor, Result, SearchSpace
from sgdec.testing import Lattice


class DiverseList(Decoder):
    """The list of a beam. Next is always the hypothesis that shares the fewest tokens with those before it."""

    ranks_by = "diversity"

    def decode(self, space: SearchSpace) -> Result:
        with space.asking_for(8):
            left = BeamDecoder(size=8, stop="full").decode(space).hypotheses
        listed: list[Hypothesis] = []
        while left and len(listed) < space.nbest:
            seen = {token for each in listed for token in each.tokens}
            listed.append(min(left, key=lambda each: len(seen & set(each.tokens))))
            left.remove(listed[-1])
        return Result(listed)


class Tiny(Lattice):
    """Allows 4 5, 4 and 6, in this order of probability."""

    def __init__(self) -> None:
        start, after_4, end = 0, 1, 2
        super().__init__({
            start: {4: (np.log(0.8), after_4), 6: (np.log(0.2), end)},
            after_4: {5: (np.log(0.6), end), EOS: (np.log(0.4), end)},
            end: {EOS: (0.0, end)},
        })  # fmt: skip


@sgdec.hookimpl
def sgdec_decoders() -> dict[str, type[Decoder]]:
    return {"diverse": DiverseList}


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[Predictor]]:
    return {"tiny": Tiny}
