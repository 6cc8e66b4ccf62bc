"""What several tests measure against: a search that misses nothing, random small constellations, plain combination.

The enumerator of whole spaces is the kit's own, `sgdec.testing.enumerate_space`; nothing here uses the code that
combines scores or picks the best.
"""

from __future__ import annotations

from sgdec.node import Node
from sgdec.protocol import Decoder, Result
from sgdec.search import SearchSpace


class Exhaustive(Decoder):
    """Expands every node; the true n-best of any finite space."""

    exact = True

    def decode(self, space: SearchSpace) -> Result:
        finished: list[Node] = []
        nodes = [space.root]
        while nodes:
            children = [child for found in space.expand(nodes) for child in found]
            finished += [node for node in children if node.finished]
            nodes = [node for node in children if not node.finished]
        finished.sort(key=lambda node: (-space.rank_score(node), node.tokens))
        return Result([space.finish(node) for node in finished[: space.nbest]], proven=True)
