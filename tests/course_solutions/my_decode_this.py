"""Cyclic best-first search within a budget: one queue per length, ordered by total + bound.

Each pass goes through the lengths, and expands the best prefixes of each queue, so that every pass is a beam search
among what earlier passes left. The first pass is as wide as the budget allows, the others have width 1. Prefixes that
cannot beat the best hypothesis, and those with the future of a better prefix, are cut. Guarantee: the best hypothesis
if the queues are empty before the budget is spent. Cost: at most ``budget`` expansions.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable
from heapq import heappop, heappush
from itertools import count
from typing import Annotated

from pydantic import Field

import sgdec
from sgdec import Decoder, Node, Result, SearchSpace

Queue = list[tuple[float, int, Node]]
"""Minus (total + bound), the order of arrival, the prefix."""


class MyDecoder(Decoder):
    """Passes of beam search over what earlier passes left."""

    def __init__(
        self, budget: Annotated[int, Field(ge=1, description="expansions for each sentence, at most")] = 100
    ) -> None:
        self.budget = budget

    def decode(self, space: SearchSpace) -> Result:
        queues: dict[int, Queue] = defaultdict(list)
        queues[0] = [(-math.inf, 0, space.root)]
        reached: dict[Hashable, float] = {}
        best: Node | None = None
        arrivals, length = count(1), -1
        while (left := self.budget - space.expansions) > 0 and (open_lengths := [n for n in queues if queues[n]]):
            length = min((n for n in open_lengths if n > length), default=min(open_lengths))
            taken: list[Node] = []
            while queues[length] and len(taken) < self._width(space, best, length, left):
                bound, _, node = heappop(queues[length])
                if -bound > total_of(best) and node.total >= reached.get(space.keys([node])[0], -math.inf):
                    taken.append(node)
            if not taken:
                continue
            children = [child for family in space.expand(taken, bounded=True) for child in family]
            for child, bound, key in zip(children, space.bound(children), space.keys(children), strict=True):
                if child.total + bound <= total_of(best) or child.total <= reached.get(key, -math.inf):
                    continue
                reached[key] = child.total
                if child.finished:
                    best = child
                else:
                    heappush(queues[child.length], (-child.total - bound, next(arrivals), child))
        return Result([space.finish(best)] if best else [])

    def _width(self, space: SearchSpace, best: Node | None, length: int, left: int) -> int:
        """The prefixes of this length to expand: one after the first pass, which shares what is left."""
        if best is not None or space.source.max_length is None:
            return 1
        return max(1, left // (space.source.max_length + 2 - length))


def total_of(node: Node | None) -> float:
    return -math.inf if node is None else node.total


@sgdec.hookimpl
def sgdec_decoders() -> dict[str, type[Decoder]]:
    return {"mydecoder": MyDecoder}
