"""Beam search as operations on whole arrays, over the hypotheses of many sentences at once.

Searches, stops, prunes and ranks exactly as `beam` does (Stahlberg et al. 2017, Algorithm 2; Wu et al. 2016, section
7), with the same hypotheses, scores, ties and expansions. It is made for two kinds of constellations:

- dense scores: every token has a score, as with neural models, or the default score of an open row, as with ``wc``;
- automata that give their arcs as arrays, as lattices, n-gram models and lists do. There `beam` is this search itself
  if enough hypotheses are in flight.

In other mixes a restricting row, such as a lattice's beside a neural model, is filled to a score for each token;
`beam` looks only at the tokens that it lists. There are no nodes: hypotheses are columns of arrays, and are
reconstructed from back-pointers at the end. For dense scores, the difference in cost between `beam` and this decoder
is the price of generality.

The beams of all sentences together have H hypotheses. R of them are open; each is one row in every predictor's batch.
Each step chooses the children from all rows of a beam together. A matrix of combined scores ``[R, V]`` stays on its
device; only the chosen cells are copied to the host. A sentence that is done has no rows left, and another one begins
in its place.

Guarantee: that of `beam`. Cost: one batch per predictor and step, R <= sentences x ``size``; besides, one pass over
``[R, V]`` or over all arcs, and a number of array operations that depends on neither V nor R. ``recombine`` is not
offered.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, fields
from typing import final

import sgdec
from sgdec import Decoder, Result, SearchSpace
from sgdec.decoder import Feed
from sgdec_decoders._beams import Banks, PruneFinal, Stop, StoppingBeamSearch
from sgdec_decoders._streaming import StreamingDecoder, enough_for_arrays
from sgdec_decoders._together import together


@final
@dataclass(eq=False)
class VanillaDecoder(StoppingBeamSearch, StreamingDecoder):
    """`beam` on arrays: the fastest beam search of sgdec."""

    _: KW_ONLY
    prune_final: PruneFinal = 0.0
    stop: Stop = "best"
    banks: Banks = False

    def decode_stream(self, more: Feed, in_flight: int) -> Iterator[tuple[SearchSpace, Result]]:
        """Raises SgdecError, for all sentences, if a score is NaN or a total overflows.

        Raises UsageError for ``stop length`` without a limit, and ``stop proven`` without bounds.
        """
        return together(self, self.prune_final, more, in_flight)


def on_arrays(options: StoppingBeamSearch, batch_size: int) -> VanillaDecoder | None:
    """This search on arrays, for automata; None if there are too few hypotheses in flight."""
    if not enough_for_arrays(batch_size * options.size):
        return None
    arrays = VanillaDecoder(**{each.name: getattr(options, each.name) for each in fields(VanillaDecoder)})
    arrays.ranking = options.ranking
    return arrays


@sgdec.hookimpl
def sgdec_decoders() -> dict[str, type[Decoder]]:
    return {"vanilla": VanillaDecoder}
