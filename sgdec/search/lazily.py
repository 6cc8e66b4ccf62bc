"""Lazy expansion: an iterator over the children of a node, best first, which creates each node when it is read.

An exact search has one open iterator for each prefix that it has expanded, and reads few children from most of them.
To save memory, an open iterator keeps only its node, one block of continuations as numbers, and the tokens that it
has returned. It keeps neither the rows of V scores nor data of other nodes.

The rows of the batch that ranked the first block stay in memory until the next batch. A caller that reads beyond the
first block before that gets the next block from them. Otherwise the predictors are called for this node again. This
does not count as an expansion; because blocks grow, it happens once or twice even for a large vocabulary. If the last
bits of a row depend on its batch, the second answer differs slightly from the first. So tokens already returned are
excluded by their numbers, not by their ranks, and a child's total is capped at that of the child before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from sgdec.protocol import FORBIDDEN
from sgdec.ranking import Coverage
from sgdec.search.combination.continuations import PIECE, Block
from sgdec.search.node import Node, require_finite_after

FIRST_BLOCK = 64
"""The size of the first block."""
GROWTH = 8
"""Each later block is this many times as long as all earlier blocks together."""


BlockAfter: TypeAlias = Callable[[Node, npt.NDArray[np.int32], int], Block]
"""Returns the best continuations of a node, without the given tokens, at most this many."""


def children(
    node: Node, first: Block, block_after: BlockAfter, coverage: Coverage, above: float, names: Sequence[str]
) -> Iterator[Node]:
    """The children of a node with totals > ``above``, best first (ties: lower token).

    ``first``: the block of the best continuations; ``block_after``: for the later ones; ``names``: the predictors'
    names, for errors. Raises SgdecError if a total overflows, when that child is reached.
    """
    block, given, lowest = first, np.zeros(0, np.int32), math.inf
    before, unread, family = node.total, node.unread_children(), node.next_family()
    while True:
        for start in range(0, len(block), PIECE):
            piece = block.continuations(start, start + PIECE)
            if piece[0][1] > lowest:
                piece = [(token, min(score, lowest), scores) for token, score, scores in piece]
            require_finite_after(node, piece, names)
            for token, score, scores in piece:
                total = before + score
                if total <= above:
                    return
                yield Node(family, token, scores, total, unread, coverage)
            lowest = piece[-1][1]
        if not block.more:
            return
        given = np.concatenate([given, block.tokens()])
        block = block_after(node, given, GROWTH * len(given))


def best_children(
    node: Node, best: Block, coverage: Coverage, above: float, names: Sequence[str]
) -> Iterator[Node]:
    """The children with these continuations and with totals > ``above``.

    Raises SgdecError at once if a total overflows.
    """
    require_finite_after(node, best.ends(), names)
    continuations = iter(best)
    if above > FORBIDDEN:
        continuations = takewhile(lambda each: node.total + each[1] > above, continuations)
    return node.lazy_children(continuations, coverage)
