"""Best-first beam search (Meister, Vieira and Cotterell 2020, "Best-First Beam Search", Algorithm 2).

Finds the hypotheses of `beam` with ``stop best`` in another order: it always takes the best hypothesis of any length
next. At each length only the first ``size`` hypotheses are taken, one per slot of the beam; later ones are dropped.
As in the beam, a finished hypothesis also takes a slot at every greater length, until no slot is left. Beam search
stops with the beam whose first slot a finished hypothesis takes.

Guarantee: if totals never rise, the list of `beam` with the same options and ``stop best``, ties included, with at
most as many expansions. If totals can rise, there is no guarantee. It can miss the same hypotheses as ``stop best``:
see `beam`.

Cost: at most ``size`` expansions for each target position; hypotheses that only fill the beam are not expanded.
Memory: at most ``size`` hypotheses per position wait in the queue; their later siblings wait as arrays of numbers.

Departures: with one best and alpha = beta = 0 the search ends at the first finished hypothesis that no hypothesis in
the queue can beat. Otherwise the list is chosen from all finished hypotheses that have had a slot, regardless of
their totals, so the slots of all beams up to the last are filled first. Scores are not normalised while searching;
the paper's bounds for that are those of `beam` with ``stop proven``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator
from dataclasses import KW_ONLY, dataclass
from heapq import heappop, heappush
from typing import NamedTuple, final

import sgdec
from sgdec import Decoder, Node, Result, SearchSpace
from sgdec.arrays import FORBIDDEN
from sgdec_decoders._beams import BeamSearch, Recombine, patient_stops, prune_local


class Candidate(NamedTuple):
    """A hypothesis in the queue. Ordered as in the beams: by total, then by position in the beam."""

    cost: float
    """Minus its total."""
    position: int
    """The beam it is a candidate for; a finished hypothesis is a candidate for every beam after its own."""
    parent: int
    """The slot of its parent in the previous beam, or its own slot there, if it was finished."""
    node: Node
    siblings: Iterator[Node]
    """The worse children of its parent, one after the other: the next one enters the queue when this one is taken."""


@final
@dataclass(eq=False)
class BestFirstDecoder(BeamSearch):
    """Beam search that expands the best hypothesis of all lengths first."""

    _: KW_ONLY
    recombine: Recombine = False

    def caveat(self, nbest: int, never_rises: bool) -> str | None:
        why = self.losses_of_stop_best(nbest, never_rises)
        return why and f"it can end too early, because {why}."

    def way_out(self, limited: bool, bounded: bool) -> str | None:
        return f"beam with {patient_stops(limited, bounded)} cannot"

    def decode(self, space: SearchSpace) -> Result:
        one_is_enough = space.nbest == 1 and not self.ranking.uses_length and not self.ranking.uses_coverage
        queue: list[Candidate] = []
        _push_first(queue, 0, 0, iter([space.root]))  # line 1
        taken: Counter[int] = Counter()  # line 2: slots by position
        keys: defaultdict[int, dict[Hashable, Node]] = defaultdict(dict)
        last: int | None = None  # the beam with which beam search stops
        finished: list[Node] = []  # of that beam
        pushed_out: list[Candidate] = []  # finished ones that had a slot in the beam before
        best = FORBIDDEN  # total of a finished one
        idle: list[Node] = []  # open ones that have a slot and need not be expanded
        while queue:  # line 3
            if one_is_enough and (last is not None or -queue[0].cost < best):
                break
            _, position, parent, node, siblings = candidate = heappop(queue)  # line 4
            if last is not None and position > last:
                idle.append(node)
                continue
            if taken[position] == self.size:  # line 5
                if node.finished and position > node.length:
                    pushed_out.append(candidate)
                else:
                    space.dropped(node, "beam")
                continue  # its siblings would find no slot either
            _push_first(queue, position, parent, siblings)
            if self.recombine and not _is_new(space, node, keys[position]):
                continue
            slot = taken[position]
            taken[position] += 1  # line 7
            if node.finished:  # lines 8-10
                best = max(best, node.total)
                if slot == 0:
                    last = position
                if position == last:
                    finished.append(node)
                _push_first(queue, position + 1, slot, iter([node]))
            elif position != last and taken[position + 1] < self.size:  # lines 11-13
                (children,) = space.expand([node], limit=self.size, lazy=True)
                _push_first(queue, position + 1, slot, prune_local(space, children, self.prune_local))
            else:
                idle.append(node)
        space.stopped("best" if finished else "empty", [*idle, *(candidate.node for candidate in queue)])
        pushed_out.sort(key=lambda candidate: (candidate.position, candidate.parent))
        every = [*finished, *(candidate.node for candidate in pushed_out)]
        return Result([space.finish(node) for node in space.nbest_of(every)])


def _push_first(queue: list[Candidate], position: int, parent: int, siblings: Iterator[Node]) -> None:
    """Adds the first of these candidates, if there is one."""
    for node in siblings:
        heappush(queue, Candidate(-node.total, position, parent, node, siblings))
        break


def _is_new(space: SearchSpace, node: Node, keys: dict[Hashable, Node]) -> bool:
    """Whether no better candidate for the same beam has the same key."""
    (key,) = space.keys([node])
    best = keys.setdefault(key, node)
    if best is not node:
        space.dropped(node, "recombined", best)
    return best is node


@sgdec.hookimpl
def sgdec_decoders() -> dict[str, type[Decoder]]:
    return {"bestfirst": BestFirstDecoder}
