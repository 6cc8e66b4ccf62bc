"""Lazy expansion: the children of a node, best first, made as they are wanted; and how little that keeps.

An exact search has an iterator open for every prefix that it has expanded, and takes few children of most. So an open
iterator keeps its node, a block of continuations as numbers, and which tokens it has given: nothing of the job that
ranked them, neither its rows of V scores nor what belongs to other nodes.

A caller that reads beyond the first block at once gets more from the rows of that job, which are there until the next
one. Later the predictors are asked about this node again; that is not counted as an expansion, and blocks grow, so it
happens once or twice even for a large vocabulary. Where the last bits of a row depend on the batch that it is in, the
second answer is not quite the first. So the tokens given are left out by their numbers, not by their ranks, and no
child's total is above that of the one before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sgdec.ranking import Coverage
from sgdec.search.combining import Combined
from sgdec.search.continuations import Block
from sgdec.search.node import Node, require_finite

FIRST_BLOCK = 64
"""Children of a node that are ranked first."""
GROWTH = 8
"""Each later block is so many times as long as all blocks before it together."""
PIECE = 8
"""Children that are made at a time."""


@dataclass
class Job:
    """The job that ranked a node's first continuations, and asks again once that is forgotten."""

    combine: Callable[[Sequence[Node]], Combined]
    combined: Combined
    place: int
    """Where the node is in it."""

    def block_after(self, node: Node, given: npt.NDArray[np.int32], size: int) -> Block:
        """The ``size`` best continuations of the node, without the tokens ``given``."""
        if self.combined.forgotten:
            self.combined, self.place = self.combine([node]), 0
        return self.combined.block_after(self.place, given, size)


def children(
    node: Node, first: Block, job: Job, coverage: Coverage, above: float, names: Sequence[str]
) -> Iterator[Node]:
    """All children of a node whose totals exceed ``above``, best first, lower token first.

    ``first``: the best continuations; ``job``: what ranked them, and knows the others.
    """
    block, given, lowest = first, np.zeros(0, np.int32), math.inf
    while True:
        for start in range(0, len(block), PIECE):
            piece = block.continuations(start, start + PIECE)
            if piece[0][1] > lowest:
                piece = [(token, min(score, lowest), scores) for token, score, scores in piece]
            family = node.children(piece, coverage)
            require_finite(family, names)
            for child in family:
                if child.total <= above:
                    return
                yield child
            lowest = piece[-1][1]
        if not block.more:
            return
        given = np.concatenate([given, block.tokens()])
        block = job.block_after(node, given, GROWTH * len(given))
