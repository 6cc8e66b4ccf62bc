"""Greedy search: always the best next token (Stahlberg et al. 2017, Algorithm 1).

Searches one path. Guarantee: none. It equals `beam` of size 1. Cost: one expansion per token.
"""

from __future__ import annotations

import sgdec
from sgdec import Decoder, Result, SearchSpace
from sgdec.protocol import BatchDecoder
from sgdec_decoders.vanilla import VanillaDecoder, on_arrays


class GreedyDecoder(Decoder):
    """Takes the best continuation until it is ``</s>``; finds no hypothesis if a prefix has no continuation."""

    def in_batches(self, batch_size: int, automata: bool) -> BatchDecoder | None:
        return on_arrays(VanillaDecoder(size=1), batch_size) if automata else None

    def decode(self, space: SearchSpace) -> Result:
        node = space.root  # line 2
        while not node.finished:  # line 8
            (children,) = space.expand([node], limit=1)  # line 4
            if not children:
                return Result([])
            node = children[0]  # lines 5-7
        return Result([space.finish(node)])


@sgdec.hookimpl
def sgdec_decoders() -> dict[str, type[Decoder]]:
    return {"greedy": GreedyDecoder}
