"""Beam search with GNMT's penalties and prunings (Stahlberg et al. 2017, Algorithm 2; Wu et al. 2016, section 7).

Searches breadth first, keeping the ``size`` best partial hypotheses of each length. Partial hypotheses are compared
by their weighted totals, finished ones by equation 14. When it stops:

- ``best``: the best hypothesis of the beam is finished (Algorithm 2, line 16). Finished hypotheses keep their slots.
- ``full``: all hypotheses of the beam are finished. They keep their slots.
- ``proven``: nothing open can still enter the n-best. Finished hypotheses are set aside and take no slot; an open
  one is dropped once its bound, turned into the best rank score it can still reach, does not beat the n-th best.

Guarantee: with ``stop proven`` and a beam as wide as the space has prefixes of one length (or, with ``recombine``
and one best, states of one length), the true n-best. Otherwise none: ``best`` may return less than the n-best even
of what the beam has seen, and is only safe for the first where scores never rise and alpha = beta = 0.

Cost: at most ``size`` expansions for each target position; ``size`` states in memory.

Departures: the paper's ``beamsize`` is two options, ``prune_local`` and ``prune_final``, both off by default, with
3.0 the paper's choice for each. With alpha = beta = 0 and no pruning this is pure beam search.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from operator import attrgetter

import sgdec
from sgdec import Decoder, Node, Result, SearchSpace
from sgdec.ranking import Ranking
from sgdec_decoders._beam_options import Alpha, Beta, Normalize, PruneFinal, PruneLocal, Recombine, Size, Stop

_total = attrgetter("total")


class BeamDecoder(Decoder):
    """Breadth-first search that keeps the best partial hypotheses of each length."""

    def __init__(
        self,
        size: Size = 4,
        alpha: Alpha = 0.0,
        beta: Beta = 0.0,
        normalize: Normalize = "gnmt",
        prune_local: PruneLocal = 0.0,
        prune_final: PruneFinal = 0.0,
        recombine: Recombine = False,
        stop: Stop = "best",
    ) -> None:
        self.size = size
        self.prune_local = prune_local
        self.prune_final = prune_final
        self.recombine = recombine
        self.stop = stop
        self.ranking = Ranking(alpha, beta, normalize)

    def decode(self, space: SearchSpace) -> Result:
        beam = [space.root]  # line 2
        finished: list[Node] = []
        while not self._stopped(beam):  # line 16
            candidates = self._candidates(space, beam)  # lines 4-9
            if self.prune_final:
                candidates = prune_final(space, candidates, finished, self.prune_final)
            if self.recombine:
                candidates = recombine(space, candidates)
            if self.stop == "proven":
                beam, ended = set_finished_aside(candidates, self.size)
                finished = best_ranked(space, finished + ended)
                beam = still_promising(space, beam, finished)
            else:
                beam = candidates[: self.size]  # lines 10-15
        ended = [node for node in beam if node.finished]
        return Result([space.finish(node) for node in best_ranked(space, finished + ended)])

    def _stopped(self, beam: list[Node]) -> bool:
        if self.stop == "best":
            return not beam or beam[0].finished
        return all(node.finished for node in beam)

    def _candidates(self, space: SearchSpace, beam: list[Node]) -> list[Node]:
        """Finished hypotheses as they are, open ones with all that can follow; best total first."""
        expanded = iter(space.expand([node for node in beam if not node.finished], limit=self.size))
        candidates: list[Node] = []
        for node in beam:
            if node.finished:
                candidates.append(node)
            else:
                candidates.extend(prune_local(next(expanded), self.prune_local))
        return sorted(candidates, key=_total, reverse=True)  # stable: ties stay in the order of the beam


def prune_local(children: list[Node], width: float) -> list[Node]:
    """Without the children whose score is more than ``width`` below their best sibling's (0 = all stay)."""
    if not width or not children:
        return children
    return [child for child in children if child.total >= children[0].total - width]


def prune_final(space: SearchSpace, candidates: list[Node], finished: list[Node], width: float) -> list[Node]:
    """Without the finished candidates more than ``width`` below the best rank score so far."""
    ranks = {id(node): space.rank_score(node) for node in [*candidates, *finished] if node.finished}
    if not ranks:
        return candidates
    lowest = max(ranks.values()) - width
    return [node for node in candidates if not node.finished or ranks[id(node)] >= lowest]


def recombine(space: SearchSpace, candidates: list[Node]) -> list[Node]:
    """Only the first, that is the best, of the candidates with the same key."""
    kept: dict[Hashable, Node] = {}
    for node, key in zip(candidates, space.keys(candidates), strict=True):
        kept.setdefault(key, node)
    return list(kept.values())


def set_finished_aside(candidates: list[Node], size: int) -> tuple[list[Node], list[Node]]:
    """The ``size`` best open candidates, and the finished ones that rank before the last of them."""
    beam: list[Node] = []
    ended: list[Node] = []
    for node in candidates:
        if node.finished:
            ended.append(node)
        elif len(beam) == size:
            break
        else:
            beam.append(node)
    return beam, ended


def best_ranked(space: SearchSpace, finished: Iterable[Node]) -> list[Node]:
    """The n-best of finished hypotheses, n as the run asks; equal rank scores in the order given."""
    return sorted(finished, key=space.rank_score, reverse=True)[: space.nbest]


def still_promising(space: SearchSpace, beam: list[Node], finished: list[Node]) -> list[Node]:
    """The open hypotheses that can still enter the n-best."""
    if len(finished) < space.nbest:
        return beam
    lowest = space.rank_score(finished[-1])
    limit = space.source.max_length
    longest = None if limit is None else limit + 1
    return [
        node
        for node, bound in zip(beam, space.bound(beam), strict=True)
        if space.ranking.best_possible(node.total + bound, node.length + 1, longest) > lowest
    ]


@sgdec.hookimpl
def sgdec_decoders() -> dict[str, type[Decoder]]:
    return {"beam": BeamDecoder}
