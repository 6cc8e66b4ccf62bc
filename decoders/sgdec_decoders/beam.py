"""Beam search with GNMT's penalties and prunings (Stahlberg et al. 2017, Algorithm 2; Wu et al. 2016, section 7).

Searches breadth first, keeping the ``size`` best partial hypotheses of each length. Partial hypotheses are compared
by their weighted totals, finished ones by their rank scores (equation 14 of
Wu et al.). The option ``stop`` says when it ends:

- ``best``: the best hypothesis of the beam is finished (Algorithm 2, line 16). Finished hypotheses keep their slots.
- ``full``: all hypotheses of the beam are finished. They keep their slots.
- ``length``: no hypothesis is open, which is the case at the length limit at the latest. Finished hypotheses are set
  aside and take no slot. This is GNMT's search without pruning; it needs a length limit.
- ``proven``: as ``length``, but an open hypothesis is dropped once its bound, the best rank score that it can still
  reach, does not beat the n-th best. The search ends earlier; all predictors must declare bounds.
- ``hf-true``, ``hf-false``, ``hf-never``: the search of ``generate()`` in transformers with this ``early_stopping``.
  Hypotheses that end are listed if at most ``size - 1`` children of the beam have better totals, and take no slot.
  The list has at most ``size`` hypotheses, whatever ``--nbest`` is. The search ends when the list is full and, unless
  it is ``hf-true``, no open hypothesis seems able to beat the worst of it: the best open total divided by the length
  penalty of its present length (``hf-false``), or of the greatest length if alpha > 0 (``hf-never``). Its
  ``length_penalty`` is alpha with ``normalize length``. It counts a forced first token too: ``length_offset 1``.

With the first two stops, the list is the n-best of all finished hypotheses that have had a slot, even if open ones
took it later; with ``length`` and ``proven``, of all finished hypotheses that were better than the first open one
without a slot. Equal rank scores are ordered as in Algorithm 2: first those of the last beam, then the others in the
order in which they left it.

Guarantee: with ``stop length`` or ``proven`` and a beam as wide as the space has prefixes of one length (or, with
``recombine`` and one best, states of one length), the true n-best. Otherwise there is no guarantee. ``best`` can end
before it has found the best that this beam would find, if alpha or beta is not 0 or totals can rise, and before it
has found the n-best in any case. ``length`` and ``proven`` never end too early, nor does ``full``; but with ``full``
finished hypotheses take the slots of open ones that would rank higher. The stops of ``generate()`` guarantee nothing.

Cost: at most ``size`` expansions for each target position; ``size`` states in memory.

Departures: Algorithm 2 returns the best of the last beam, even if a hypothesis that lost its slot is better. Wu et
al.'s ``beamsize`` is two options, ``prune_local`` and ``prune_final``, both off by default, with 3.0 their choice for
each. ``prune_final`` drops finished hypotheses more than this below the best rank score so far, from the beam and
from the list. The best hypothesis is listed even if it had no slot. In their search this pruning leads to a quick
end; here it ends no search, because an open hypothesis has no rank score yet, and ``stop proven`` ends one without
loss. A source token without attention adds beta log(1e-30) to a rank score, not -inf, so that hypotheses stay
comparable. With alpha = beta = 0 and no pruning this is pure beam search.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, replace
from typing import final

import numpy as np

import sgdec
from sgdec import EOS, Decoder, Node, Result, SearchSpace
from sgdec.decoder import BatchDecoder
from sgdec.protocol import FORBIDDEN
from sgdec_decoders._banks import banked
from sgdec_decoders._beams import (
    Banks,
    LengthOffset,
    PruneFinal,
    Recombine,
    StopOfBeam,
    StoppingBeamSearch,
    drop,
)
from sgdec_decoders._generate import (
    caveat_of_generate,
    is_of_generate,
    require_options_of_generate,
    search_of_generate,
)
from sgdec_decoders.vanilla import on_arrays


@dataclass(eq=False)
class BreadthFirst(StoppingBeamSearch):
    """Algorithm 2. Its variants override the first beam, and the candidates that can follow a beam."""

    _: KW_ONLY
    prune_final: PruneFinal = 0.0
    recombine: Recombine = False
    stop: StopOfBeam = "best"

    def decode(self, space: SearchSpace) -> Result:
        """Raises UsageError for ``stop length`` without a length limit, ``stop proven`` without bounds."""
        beam = self.first_beam(space)  # line 2
        self.require_end(space, beam)
        finished = Finished(space, self.prune_final)
        aside = self.sets_aside
        while not self._stopped(beam):  # line 16
            candidates = self.candidates(space, beam, finished)  # lines 4-9
            if self.prune_final:
                candidates = finished.prune(candidates)
            chosen = in_banks(space, candidates, self.size, aside) if self.banks else candidates
            if aside:
                beam, ended = set_finished_aside(chosen, self.size)
                finished.remember(ended)
            else:
                ended = [node for node in beam if node.last == EOS]
                beam = chosen[: self.size]  # lines 10-15
                if ended and ended[-1] not in beam:  # the worst of them leaves first
                    finished.remember([node for node in ended if node not in beam])
            if space.traced:
                drop(space, set(candidates).difference(beam, ended, finished.nodes), "beam")
            if self.stop == "proven":
                beam = still_promising(space, beam, finished.nodes)
        space.stopped(self.stop if beam else "empty", beam)
        found = finished.ranked_with(beam)
        if self.banks and not found and (node := space.allowed_output()) is not None:
            found = [node]
        return Result([space.finish(node) for node in found])

    def _stopped(self, beam: list[Node]) -> bool:
        if self.stop == "best":
            return not beam or beam[0].finished
        return all(node.finished for node in beam)

    @abstractmethod
    def first_beam(self, space: SearchSpace) -> list[Node]:
        """The first beam, of empty hypotheses. Raises UsageError if the search cannot begin."""

    def candidates(self, space: SearchSpace, beam: list[Node], finished: Finished) -> list[Node]:
        """The finished hypotheses, and the continuations of open ones that can get a slot; best total first."""
        best_children = space.bank_children if self.banks else space.best_children
        return best_children(
            beam,
            self.children_needed,
            width=self.prune_local or math.inf,
            all_ends=bool(self.prune_final),
            distinct=self.recombine,
        )


@final
@dataclass(eq=False)
class BeamDecoder(BreadthFirst):
    """Breadth-first search that keeps the best partial hypotheses of each length."""

    _: KW_ONLY
    length_offset: LengthOffset = 0
    banks: Banks = False

    def __post_init__(self) -> None:
        """Raises UsageError for options that the search of `generate()` does not have, with one of its stops."""
        super().__post_init__()
        self.ranking = replace(self.ranking, length_offset=self.length_offset)
        if is_of_generate(self.stop):
            require_options_of_generate(self)

    def caveat(self, nbest: int, never_rises: bool) -> str | None:
        if is_of_generate(self.stop):
            return caveat_of_generate(self.stop, self.alpha, never_rises)
        return super().caveat(nbest, never_rises)

    def in_batches(self, batch_size: int, automata: bool) -> BatchDecoder | None:
        if not automata or self.recombine or is_of_generate(self.stop):
            return None
        return on_arrays(self, batch_size)

    def decode(self, space: SearchSpace) -> Result:
        """Raises UsageError for a stop that needs a length limit without one, ``stop proven`` without bounds."""
        if not is_of_generate(self.stop):
            return super().decode(space)
        found = search_of_generate(space, self.size, self.stop)
        return Result([space.finish(node) for node in space.nbest_of(found)])

    def first_beam(self, space: SearchSpace) -> list[Node]:
        return [space.root]


class Finished:
    """The finished hypotheses that have left the beam of one search: the n-best of them, best rank score first."""

    def __init__(self, space: SearchSpace, prune_final: float) -> None:
        self.nodes: list[Node] = []
        self._space = space
        self._width = prune_final
        self._best = FORBIDDEN

    def remember(self, nodes: Iterable[Node]) -> None:
        """Add hypotheses that leave the beam; those with equal rank scores stay in the order in which they are
        added."""
        new = [node for node in nodes if node not in self.nodes]
        if new:
            self._keep([*self.nodes, *new])

    def ranked_with(self, beam: Iterable[Node]) -> list[Node]:
        """The n-best of these and of the last beam, whose hypotheses come first among equals."""
        last = [node for node in beam if node.finished]
        self._keep([*last, *(node for node in self.nodes if node not in last)])
        return self.nodes

    def prune(self, candidates: list[Node]) -> list[Node]:
        """Drop finished candidates that are more than the width below the best rank score so far, and update that
        score."""
        ranks = {node: self._space.rank_score(node) for node in candidates if node.finished}
        if ranks and max(ranks.values()) > self._best:
            best = max(ranks, key=ranks.__getitem__)
            self._best = ranks[best]
            self.remember([best])
        lowest = self._best - self._width
        drop(self._space, (node for node, rank in ranks.items() if rank < lowest), "final")
        return [node for node in candidates if not node.finished or ranks[node] >= lowest]

    def _keep(self, nodes: list[Node]) -> None:
        self.nodes = self._space.nbest_of(nodes)
        if self._width:
            lowest = self._best - self._width
            self.nodes = [node for node in self.nodes if self._space.rank_score(node) >= lowest]


def set_finished_aside(candidates: list[Node], size: int) -> tuple[list[Node], list[Node]]:
    """The ``size`` best open candidates, and the finished ones before the first open one without a slot."""
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


def in_banks(space: SearchSpace, candidates: list[Node], size: int, aside: bool) -> list[Node]:
    """The candidates that get one of ``size`` slots if each bank has its share.

    ``aside``: finished ones need none.
    """
    sentence, progress = np.zeros(len(candidates), np.int64), np.array(space.progress(candidates), np.int64)
    finished = np.array([node.finished for node in candidates], dtype=bool)
    has_slot = banked(sentence, progress, ~finished if aside else np.ones_like(finished), size)
    kept = has_slot | finished if aside else has_slot
    return [node for node, keeps in zip(candidates, kept.tolist(), strict=True) if keeps]


def still_promising(space: SearchSpace, beam: list[Node], finished: list[Node]) -> list[Node]:
    """The open hypotheses that can still enter the n-best."""
    if len(finished) < space.nbest:
        return beam
    lowest = space.rank_score(finished[-1])
    limit = space.source.max_length
    longest = None if limit is None else limit + 1
    kept = [
        node
        for node, bound in zip(beam, space.bound(beam), strict=True)
        if space.ranking.best_possible(node.total + bound, node.length + 1, longest) > lowest
    ]
    drop(space, (node for node in beam if node not in kept), "bound")
    return kept


@sgdec.hookimpl
def sgdec_decoders() -> dict[str, type[Decoder]]:
    return {"beam": BeamDecoder}
