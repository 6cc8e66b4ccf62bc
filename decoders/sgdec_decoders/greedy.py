"""Greedy search: always the best next token (Stahlberg et al. 2017, Algorithm 1).

Searches one path. Guarantee: none. It equals `beam` of size 1, and in batches of automata, such as lattices and
n-gram models, it is `vanilla` of size 1. Cost: one expansion per token.
"""

from __future__ import annotations

import sgdec
from sgdec import Decoder, Result, SearchSpace
from sgdec.decoder import BatchDecoder
from sgdec_decoders._streaming import enough_for_arrays
from sgdec_decoders.vanilla import VanillaDecoder


class GreedyDecoder(Decoder):
    """Takes the best continuation until it is ``</s>``; finds no hypothesis if a prefix has no continuation."""

    def in_batches(self, batch_size: int, automata: bool) -> BatchDecoder | None:
        return VanillaDecoder(size=1) if automata and enough_for_arrays(batch_size) else None

    def decode(self, space: SearchSpace) -> Result:
        node = space.root  # line 2
        while not node.finished:  # line 8
            (children,) = space.expand([node], limit=1)  # line 4
            if not children:
                space.stopped("dead end")
                return Result([])
            node = children[0]  # lines 5-7
        space.stopped("finished")
        return Result([space.finish(node)])


@sgdec.hookimpl
def sgdec_decoders() -> dict[str, type[Decoder]]:
    return {"greedy": GreedyDecoder}
