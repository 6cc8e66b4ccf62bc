"""Beam search with penalties and stopping rules, and exact search (Stahlberg and Byrne 2019, Algorithm 1).

Beam: the ``size`` best open hypotheses of each length; finished ones are set aside. No guarantee; at most ``size``
expansions per position. Exact: depth first, cut by the best hypothesis so far. Guarantee: the true best; it expands
the prefixes that can beat the best, and those of the greedy search that it begins with.

The default options break the curse: totals favour short outputs, length normalisation compares scores per token, and
``shortest`` rules out empty outputs that win even so.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field

import sgdec
from sgdec import Decoder, Node, Result, SearchSpace
from sgdec.ranking import Ranking


class MySearch(Decoder):
    """Beam search, or exact search."""

    def __init__(
        self,
        search: Annotated[Literal["beam", "exact"], Field(description="beam search, or exact search")] = "beam",
        size: Annotated[int, Field(ge=1, description="open hypotheses that are kept")] = 16,
        stop: Annotated[
            Literal["first", "full", "optimal"], Field(description="when the beam search ends")
        ] = "optimal",
        alpha: Annotated[float, Field(ge=0, description="length normalisation; 0 = none")] = 1.0,
        reward: Annotated[float, Field(ge=0, description="added for each token of the output")] = 0.0,
        shortest: Annotated[float, Field(ge=0, description="least length, as a share of the source's")] = 0.8,
    ) -> None:
        self.search = search
        self.size = size
        self.stop = stop
        self.reward = reward
        self.shortest = shortest
        self.ranking = Ranking(alpha)

    def decode(self, space: SearchSpace) -> Result:
        found = self._beam(space) if self.search == "beam" else self._exact(space)
        return Result([space.finish(node) for node in found])

    def _beam(self, space: SearchSpace) -> list[Node]:
        """The best finished hypotheses by s(Y), at most ``space.nbest``."""
        beam, finished = [space.root], list[Node]()
        while beam and not self._stops(space, beam, finished):
            candidates = space.best_children(beam, self.size + 1)  # one of them can end
            beam = []
            for node in candidates:
                if not node.finished:
                    if len(beam) == self.size:
                        break
                    beam.append(node)
                elif self._long_enough(space, node):
                    finished.append(node)
        ranked = sorted(finished, key=lambda node: self._score(space, node), reverse=True)
        return ranked[: 1 if self.reward else space.nbest]

    def _score(self, space: SearchSpace, node: Node) -> float:
        """s(Y): equation 14 of Wu et al., and the reward."""
        return space.rank_score(node) + self.reward * (node.length - 1)

    def _long_enough(self, space: SearchSpace, node: Node) -> bool:
        return node.length - 1 >= self.shortest * len(space.source.tokens)

    def _stops(self, space: SearchSpace, beam: list[Node], finished: list[Node]) -> bool:
        wanted = {"first": 1, "full": self.size, "optimal": space.nbest}[self.stop]
        if len(finished) < wanted:
            return False
        if self.stop != "optimal":
            return True
        worst = sorted((self._score(space, node) for node in finished), reverse=True)[wanted - 1]
        limit = space.source.max_length
        if limit is None:
            longest, most = None, math.inf if self.reward else 0.0
        else:
            longest, most = limit + 1, self.reward * limit
        return all(
            self.ranking.best_possible(node.total + bound, node.length + 1, longest) + most <= worst
            for node, bound in zip(beam, space.bound(beam), strict=True)
        )

    def _exact(self, space: SearchSpace) -> list[Node]:
        """The hypothesis with the best total of all that are long enough."""
        space.require_end()
        best = self._first(space)
        stack = [space.root]
        while stack:
            node = stack.pop()
            lowest = best.total if best else -math.inf
            if node.total + space.bound([node])[0] <= lowest:
                continue
            (children,) = space.expand([node], above=lowest if space.never_rises else -math.inf)
            opened = []
            for child in children:
                if not child.finished:
                    opened.append(child)
                elif self._long_enough(space, child) and (best is None or child.total > best.total):
                    best = child
            lowest = best.total if best else -math.inf
            stack += [
                child
                for child, bound in zip(opened[::-1], space.bound(opened[::-1]), strict=True)
                if child.total + bound > lowest
            ]
        return [best] if best else []

    def _first(self, space: SearchSpace) -> Node | None:
        """A good hypothesis, with which the search cuts from the start: that of a greedy search."""
        node = space.root
        while not node.finished:
            children = space.expand([node], limit=2)[0]
            if not children:
                return None
            allowed = [child for child in children if not child.finished or self._long_enough(space, child)]
            if not allowed:
                return None
            node = allowed[0]
        return node


@sgdec.hookimpl
def sgdec_decoders() -> dict[str, type[Decoder]]:
    return {"mysearch": MySearch}
