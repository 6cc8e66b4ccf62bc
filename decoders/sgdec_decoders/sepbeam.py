"""Separate beam search: system combination at the cost of one system (Stahlberg et al. 2017, section 4).

Algorithm 2, but the first beam has one empty hypothesis for each predictor, and only this predictor scores the
continuations of its hypothesis. All hypotheses compete for the slots of one beam by their totals, so the result is
that of the system with the best score for its own output. Stopping, prunings, recombination and ranking are those of
`beam`.

Guarantee: with ``stop length`` or ``proven`` and a beam as wide as the number of all systems' prefixes of one length,
the best of the optima of the single systems, and likewise the n-best. Otherwise there is no guarantee.

Cost: that of `beam` with one predictor. A list can hold one hypothesis twice, from two systems.

With beta > 0 a hypothesis is ranked by its own system's coverage, so every system needs attention; otherwise the
search is refused before it begins.

Departures: scores are multiplied by the predictors' weights, which SGNMT ignores; predictors with weight 0 are not
systems.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import sgdec
from sgdec import Decoder, Node, SearchSpace, UsageError
from sgdec_decoders._beams import Stop
from sgdec_decoders.beam import BreadthFirst


@final
@dataclass(eq=False)
class SepBeamDecoder(BreadthFirst):
    """Beam search over hypotheses of single predictors."""

    stop: Stop = "best"

    def first_beam(self, space: SearchSpace) -> list[Node]:
        return systems(space)


def systems(space: SearchSpace) -> list[Node]:
    """For each predictor with a weight an empty prefix, whose continuations only this predictor scores.

    Raises UsageError if beta > 0 and a system has no attention.
    """
    alone = {
        name: [weight if other == k else None for other in range(len(space.weights))]
        for k, (name, weight) in enumerate(zip(space.constellation.names, space.weights, strict=True))
        if weight
    }
    for name, weights in alone.items():
        if space.ranking.uses_coverage and not space.constellation.attentive(weights):
            raise UsageError(
                f"sepbeam: a coverage penalty (beta = {space.ranking.beta:g}) needs attention in each system, and "
                f"{name!r} has none: set beta to 0, or the weight of {name!r}, which excludes it."
            )
    return [space.root.with_weights(weights) for weights in alone.values()]


@sgdec.hookimpl
def sgdec_decoders() -> dict[str, type[Decoder]]:
    return {"sepbeam": SepBeamDecoder}
