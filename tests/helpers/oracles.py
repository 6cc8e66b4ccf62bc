"""A search that misses nothing, and ways into small spaces.

The other oracles are the kit's own: `sgdec.testing.enumerate_space` and `score_path`, which use nothing of the code
that combines, ranks or searches, and the toy predictors of `sgdec.testing.toys`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from sgdec.chain import UNCHAINED, Chain
from sgdec.decoder import Decoder
from sgdec.protocol import BatchPredictor, Predictor, Result, Source
from sgdec.ranking import Ranking
from sgdec.search.constellation import Constellation
from sgdec.search.node import Node
from sgdec.search.space import SearchSpace
from sgdec.testing import TinySpace


class Exhaustive(Decoder):
    """Expands every node; the true n-best of any finite space."""

    exact = True

    def decode(self, space: SearchSpace) -> Result:
        finished = finished_nodes(space)
        finished.sort(key=lambda node: (-space.rank_score(node), node.tokens))
        return Result([space.finish(node) for node in finished[: space.nbest]], proven=True)


def tiny(
    max_length: int | None = None,
    weights: Sequence[float | None] | None = None,
    vocab_size: int | None = None,
    **predictors: Predictor | BatchPredictor,
) -> TinySpace:
    """The space of these predictors, by name, over one sentence."""
    make = partial(Constellation.of, predictors, weights=weights, vocab_size=vocab_size)
    return TinySpace(" and ".join(predictors), make, Source(1, (3, 4, 3), max_length=max_length))


def opened(tiny: TinySpace, *, ranking: Ranking | None = None, nbest: int = 1) -> SearchSpace:
    constellation = tiny.constellation()
    (root,) = constellation.roots([tiny.source])
    return SearchSpace(constellation, root, ranking=ranking, nbest=nbest)


def leaves(space: TinySpace, chain: Chain = UNCHAINED) -> dict[tuple[int, ...], float]:
    """The probability of each leaf under the chained local distributions: hypotheses, with ``</s>``, and dead ends.

    Not for chains that keep a number.
    """
    here = opened(space)
    found: dict[tuple[int, ...], float] = {}
    stack = [(here.root, 1.0)]
    while stack:
        node, probability = stack.pop()
        children = [] if node.finished else sorted(here.expand([node])[0], key=lambda child: child.last)
        if not children:
            found[node.tokens] = probability
            continue
        local = chain.apply(np.array([child.total - node.total for child in children]))
        for at, log_prob in zip(local.places.tolist(), local.log_probs.tolist(), strict=True):
            stack.append((children[at], probability * math.exp(log_prob)))
    return found


def open_nodes(space: SearchSpace) -> list[Node]:
    """Every node of a space that is not finished, shortest first."""
    return [node for node in _all_nodes(space) if not node.finished]


def finished_nodes(space: SearchSpace) -> list[Node]:
    """Every node of a space that ends with ``</s>``, shortest first."""
    return [node for node in _all_nodes(space) if node.finished]


def _all_nodes(space: SearchSpace) -> Iterator[Node]:
    nodes = [space.root]
    while nodes:
        yield from nodes
        nodes = [child for found in space.expand([n for n in nodes if not n.finished]) for child in found]
