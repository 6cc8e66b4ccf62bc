"""`consensus`: draws samples, and ranks each by how many tokens it shares with the others, on the average."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from pydantic import Field

import sgdec
from sgdec import Decoder, Node, Result, SearchSpace


class Consensus(Decoder):
    """The criterion is the mean Jaccard index of the sets of tokens."""

    ranks_by = "consensus"

    def __init__(self, samples: Annotated[int, Field(ge=1, description="how many are drawn")] = 6) -> None:
        self.samples = samples

    def decode(self, space: SearchSpace) -> Result:
        open_nodes: dict[int, Node] = dict.fromkeys(range(self.samples), space.root)
        drawn: list[Node] = []
        while open_nodes:
            children = space.sample(list(open_nodes.values()), list(open_nodes))
            grown = {number: child for number, child in zip(open_nodes, children, strict=True) if child is not None}
            drawn += [child for child in grown.values() if child.finished]
            open_nodes = {number: child for number, child in grown.items() if not child.finished}
        distinct = {node.tokens: node for node in drawn}
        ranked = [
            replace(space.finish(node), rank_score=sum(alike(node, other) for other in drawn) / len(drawn))
            for node in distinct.values()
        ]
        ranked.sort(key=lambda hypothesis: (-hypothesis.rank_score, hypothesis.tokens))
        return Result(ranked[: space.nbest])


def alike(one: Node, other: Node) -> float:
    a, b = set(one.tokens), set(other.tokens)
    return len(a & b) / len(a | b)


@sgdec.hookimpl
def sgdec_decoders() -> dict[str, type[Decoder]]:
    return {"consensus": Consensus}
