"""Best-first beam search (Meister, Vieira and Cotterell 2020, "Best-First Beam Search", Algorithm 2).

Finds what `beam` with ``stop best`` finds, in another order: always the best hypothesis of any length is next. At
each length only the first ``size`` are taken, as many as the beam has slots; what comes later is dropped. A finished
hypothesis takes a slot at every length after its own, too, as it does in the beam. The search ends when the first
hypothesis that is taken at some length is a finished one: there beam search would stop.

Guarantee: where scores never rise, the list of `beam` with the same options and ``stop best``, ties included, for
never more expansions. Where scores can rise, none.

Cost: at most ``size`` expansions for each target position, and none of what the beam would only keep to fill it.
Memory: at most ``size`` x ``size`` hypotheses a position wait in the queue.

Departures: more than one best hypothesis, and a ranking by alpha and beta, need the last beam as a whole; so its
slots are filled before the search ends. Scores are not normalised while searching; the paper's bounds for that are
those of `beam` with ``stop proven``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable
from heapq import heappop, heappush
from typing import NamedTuple

import sgdec
from sgdec import Decoder, Node, Result, SearchSpace
from sgdec.ranking import Ranking
from sgdec_decoders._beam_options import Alpha, Beta, Normalize, PruneLocal, Recombine, Size
from sgdec_decoders.beam import best_ranked, prune_local


class Candidate(NamedTuple):
    """A hypothesis in the queue. The order is that of the beams: by total, and of equals as the beam lists them."""

    cost: float
    """Minus its total."""
    position: int
    """Which beam it is a candidate for; a finished hypothesis is one for every beam after its own."""
    parent: int
    """The slot of its parent in the beam before, or its own there, if it was finished."""
    rank: int
    """Among its siblings."""
    node: Node


class BestFirstDecoder(Decoder):
    """Beam search that expands the best hypothesis of all lengths first."""

    def __init__(
        self,
        size: Size = 4,
        alpha: Alpha = 0.0,
        beta: Beta = 0.0,
        normalize: Normalize = "gnmt",
        prune_local: PruneLocal = 0.0,
        recombine: Recombine = False,
    ) -> None:
        self.size = size
        self.prune_local = prune_local
        self.recombine = recombine
        self.ranking = Ranking(alpha, beta, normalize)

    def decode(self, space: SearchSpace) -> Result:
        one_is_enough = space.nbest == 1 and not self.ranking.uses_length and not self.ranking.uses_coverage
        queue = [Candidate(-space.root.total, 0, 0, 0, space.root)]  # line 1
        taken: Counter[int] = Counter()  # line 2: slots by position
        keys: defaultdict[int, set[Hashable]] = defaultdict(set)
        last: int | None = None  # the beam with which beam search stops
        finished: list[Node] = []  # of that beam
        while queue and not (last is not None and (taken[last] == self.size or one_is_enough)):  # line 3
            cost, position, _, _, node = heappop(queue)  # line 4
            if (last is not None and position > last) or taken[position] == self.size:  # line 5
                continue
            if self.recombine and not _is_new(space, node, keys[position]):
                continue
            slot = taken[position]
            taken[position] += 1  # line 7
            if node.finished:  # lines 8-10
                if slot == 0:
                    last = position
                if position == last:
                    finished.append(node)
                heappush(queue, Candidate(cost, position + 1, slot, 0, node))
            elif position != last:  # lines 11-13
                (children,) = space.expand([node], limit=self.size)
                for rank, child in enumerate(prune_local(children, self.prune_local)):
                    heappush(queue, Candidate(-child.total, position + 1, slot, rank, child))
        return Result([space.finish(node) for node in best_ranked(space, finished)])


def _is_new(space: SearchSpace, node: Node, keys: set[Hashable]) -> bool:
    """Whether no better candidate for the same beam has the same key."""
    (key,) = space.keys([node])
    if key in keys:
        return False
    keys.add(key)
    return True


@sgdec.hookimpl
def sgdec_decoders() -> dict[str, type[Decoder]]:
    return {"bestfirst": BestFirstDecoder}
