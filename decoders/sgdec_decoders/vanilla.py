"""Beam search as operations on whole arrays, over the hypotheses of many sentences at once.

Searches, stops, prunes and ranks exactly as `beam` does (Stahlberg et al. 2017, Algorithm 2; Wu et al. 2016, section
7), with the same hypotheses, scores, ties and expansions, but only for dense scores: every token has a score, as with
neural models, or the default score of an open row, as with ``wc``. A restricting row, such as a lattice's, is
refused. There are no nodes: hypotheses are rows of arrays, and are reconstructed from back-pointers at the end. The
difference in cost between `beam` and this decoder is the price of generality.

The beams of all sentences together have H hypotheses. R of them are open; each is one row in every predictor's batch.
Each step reduces the matrix of their combined scores ``[R, V]`` to C = min(size, V) children per row, on the device
of the matrix; only these ``[R, C]`` are copied to the host. A sentence that is done has no hypotheses left, and so no
rows.

Guarantee: that of `beam`. Cost: one batch per predictor and target position, R <= sentences x ``size``; besides, one
pass over ``[R, V]`` and a number of array operations that depends on neither V nor R. ``recombine`` is not offered.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias, final

import numpy as np
import numpy.typing as npt

import sgdec
from sgdec import BOS, EOS, Decoder, Hypothesis, Result, SearchSpace
from sgdec.protocol import FORBIDDEN, BatchDecoder
from sgdec.rows import Chosen, HypothesisRows
from sgdec_decoders._beams import PruneFinal, Stop, StoppingBeamSearch

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]
Flags: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Beams:
    """The hypotheses of all sentences: by sentence, and within a sentence in the order of its beam."""

    sentence: Ints
    """``[H]``: the position of the sentence in the batch."""
    total: Floats
    rank: Floats
    """``[H]``: rank scores, valid only for finished hypotheses."""
    token: Ints
    """``[H]``: the last token."""
    length: Ints
    trail: Ints
    """``[H]``: the index of the last link among the `Links` of its length."""

    @property
    def finished(self) -> Flags:
        return np.equal(self.token, EOS)

    def and_then(self, others: Beams) -> Beams:
        """These hypotheses, followed by the others."""
        return Beams(**{name: np.concatenate([part, vars(others)[name]]) for name, part in vars(self).items()})

    def at(self, chosen: Any) -> Beams:
        """The chosen hypotheses: ``[H]`` -> ``[len(chosen)]``."""
        return Beams(**{name: part[chosen] for name, part in vars(self).items()})


class Links(NamedTuple):
    """The last steps of all n hypotheses of one length that were in a beam."""

    previous: Ints
    """``[n]``: back-pointers: indices of links of one token less."""
    token: Ints
    scores: Floats
    """``[n, K]``: unweighted scores by predictor."""


class Ended(NamedTuple):
    """A finished hypothesis that is remembered."""

    rank: float
    total: float
    length: int
    trail: int


@final
@dataclass(eq=False)
class VanillaDecoder(StoppingBeamSearch, BatchDecoder):
    """`beam` for dense scores only: the fastest beam search of sgdec."""

    _: KW_ONLY
    prune_final: PruneFinal = 0.0
    stop: Stop = "best"

    def decode_batch(self, spaces: Sequence[SearchSpace]) -> list[Result]:
        """Raises SgdecError, for all sentences, if a score is NaN or a total overflows.

        Raises UsageError for a restricting row, ``stop length`` without a limit, and ``stop proven`` without bounds.
        """
        if not spaces:
            return []
        for space in spaces:
            self.require_end(space, [space.root])
        rows = HypothesisRows(spaces)
        limits = np.array([np.inf if n is None else n for n in (space.source.max_length for space in spaces)])
        finished = Finished(spaces, self.prune_final)
        links: list[Links] = []
        beams = _roots(len(spaces))  # line 2
        while beams.total.size:  # line 16
            is_open = ~beams.finished
            for sentence, expanded in enumerate(np.bincount(beams.sentence[is_open]).tolist()):
                if expanded:
                    spaces[sentence].count_expansions(expanded, len(links))
            ending = limits[beams.sentence[is_open]] <= len(links)
            children = rows.best_together(  # lines 4-9
                beams.sentence[is_open],
                beams.total[is_open],
                self.children_needed,
                ending,
                width=self.prune_local or math.inf,
                all_ends=bool(self.prune_final),
            )
            candidates, child = self._candidates(beams, children, rows.cover(), len(links) + 1)
            chosen, has_slot, is_record = self._chosen(candidates, finished)  # lines 10-15
            pushed_out = child < 0
            pushed_out[chosen] = False
            finished.remember(candidates, pushed_out)
            beams, child = candidates.at(chosen), child[chosen]

            made = child >= 0  # the others were finished before, and keep their links
            row = children.row[child[made]]
            links.append(Links(beams.trail[made], beams.token[made], children.ledger[child[made]]))
            beams.trail[made] = np.arange(len(row))

            finished.remember(beams, is_record)
            leaving = self._leaving(beams)
            finished.remember(beams, leaving & has_slot & beams.finished, first=not self.sets_aside)
            leaving |= ~has_slot
            goes_on = ~leaving & ~beams.finished
            rows.consume(row[goes_on[made]], beams.token[goes_on])
            beams = beams.at(~leaving)
            if self.stop == "proven":
                promising = still_promising(spaces, rows, beams, finished.lists)
                rows.keep(np.flatnonzero(promising))
                beams = beams.at(promising)
        return [
            Result([_hypothesis(found, links, space.weights) for found in listed])
            for listed, space in zip(finished.lists, spaces, strict=True)
        ]

    def _candidates(self, beams: Beams, children: Chosen, cover: Floats, length: int) -> tuple[Beams, Ints]:
        """All candidates for the next beams, best total first: finished hypotheses, and children of this ``length``.

        Also returns for each candidate its position among the children; -1 for a hypothesis that was finished before.
        """
        (is_open,), (ended,) = np.nonzero(~beams.finished), np.nonzero(beams.finished)
        parent = is_open[children.row]
        rank = children.total / self.ranking.length_penalty(length) + cover[children.row]
        lengths = np.full(len(parent), length)
        grown = Beams(beams.sentence[parent], children.total, rank, children.token, lengths, beams.trail[parent])
        child = np.concatenate([np.full(len(ended), -1), np.arange(len(parent))])
        candidates, parent = beams.at(ended).and_then(grown), np.concatenate([ended, parent])
        # Among equal totals the order of the beam decides; the children of one parent are sorted already.
        order = np.lexsort((child, parent, -candidates.total, candidates.sentence))
        return candidates.at(order), child[order]

    def _chosen(self, candidates: Beams, finished: Finished) -> tuple[Ints, Flags, Flags]:
        """The positions of the candidates that form the next beams, in order.

        Also returns, for each of them, whether it has a slot, and whether it is a new record, which needs no slot.
        """
        chosen = np.arange(len(candidates.total))
        is_record = np.zeros(len(chosen), dtype=bool)
        if self.prune_final:
            is_record = finished.records(candidates)
            chosen = np.flatnonzero(~finished.prunes(candidates))
            is_record = is_record[chosen]
        takes_slot = np.ones(len(chosen), dtype=bool)
        if self.sets_aside:
            takes_slot = ~candidates.finished[chosen]
        has_slot = first_slots(candidates.sentence[chosen], takes_slot, self.size)
        listed = has_slot | is_record
        return chosen[listed], has_slot[listed], is_record[listed]

    def _leaving(self, beams: Beams) -> Flags:
        """``[H]``: finished hypotheses that are set aside, and all hypotheses of sentences that are done."""
        if self.sets_aside:
            return beams.finished
        if self.stop == "best":
            return beams.finished[_heads(beams.sentence)]
        still_open = np.bincount(beams.sentence, weights=~beams.finished)  # [sentences]
        return np.equal(still_open[beams.sentence], 0)


class Finished:
    """The finished hypotheses that have left the beams, the n-best of each sentence, best rank score first."""

    def __init__(self, spaces: Sequence[SearchSpace], prune_final: float) -> None:
        self.lists: list[list[Ended]] = [[] for _ in spaces]
        self._nbest = [space.nbest for space in spaces]
        self._width = prune_final
        self._best = np.full(len(spaces), FORBIDDEN)  # [sentences]: rank scores so far

    def records(self, candidates: Beams) -> Flags:
        """``[n]``: the first candidate of each sentence that is finished with a higher rank score than all earlier
        ones."""
        before, is_finished = self._best, candidates.finished
        self._best = before.copy()
        np.maximum.at(self._best, candidates.sentence[is_finished], candidates.rank[is_finished])
        best = self._best[candidates.sentence]
        (higher,) = np.nonzero(is_finished & (candidates.rank == best) & (best > before[candidates.sentence]))
        _, first = np.unique(candidates.sentence[higher], return_index=True)
        return np.isin(np.arange(len(is_finished)), higher[first])

    def prunes(self, candidates: Beams) -> Flags:
        """``[n]``: the finished candidates that are more than the width below the best."""
        lowest = self._best[candidates.sentence] - self._width
        return np.logical_and(candidates.finished, candidates.rank < lowest)

    def remember(self, beams: Beams, which: Flags, first: bool = False) -> None:
        """Add hypotheses that leave the beams. Among equal rank scores they come after the known ones, or with
        ``first`` before them."""
        if not which.any():
            return
        finished = beams.at(which)
        columns = (finished.rank, finished.total, finished.length, finished.trail)
        ended = map(Ended, *(column.tolist() for column in columns))
        for sentence, found in groupby(zip(finished.sentence.tolist(), ended, strict=True), itemgetter(0)):
            new, known = [hypothesis for _, hypothesis in found], self.lists[sentence]
            former, latter = (new, known) if first else (known, new)
            listed = [*former, *(hypothesis for hypothesis in latter if hypothesis not in former)]
            listed.sort(key=lambda hypothesis: -hypothesis.rank)
            lowest = self._best[sentence] - self._width if self._width else FORBIDDEN
            nbest = listed[: self._nbest[sentence]]
            self.lists[sentence] = [hypothesis for hypothesis in nbest if hypothesis.rank >= lowest]


def first_slots(sentence: Ints, takes_slot: Flags, size: int) -> Flags:
    """``[n]``: the first candidates of each sentence, until one would need slot ``size + 1``.

    >>> first_slots(np.array([0, 0, 0, 4, 4]), np.array([True, False, True, True, False]), 1).tolist()
    [True, True, False, True, True]
    """
    taken: Ints = np.cumsum(takes_slot)
    before: Ints = (taken - takes_slot)[_heads(sentence)]
    return np.less_equal(taken, before + size)


def still_promising(
    spaces: Sequence[SearchSpace], rows: HypothesisRows, beams: Beams, ended: Sequence[Sequence[Ended]]
) -> Flags:
    """``[H]``: the open hypotheses that can still enter the n-best."""
    promising = np.ones(len(beams.total), dtype=bool)
    doubted = [row for row, b in enumerate(beams.sentence.tolist()) if len(ended[b]) >= spaces[b].nbest]
    nodes = [rows.node(row, spaces[beams.sentence[row]], int(beams.length[row])) for row in doubted]
    for row, bound in zip(doubted, spaces[0].constellation.bounds(nodes), strict=True):
        space, worst = spaces[beams.sentence[row]], ended[beams.sentence[row]][-1].rank
        longest = None if space.source.max_length is None else space.source.max_length + 1
        best = space.ranking.best_possible(beams.total[row] + bound, int(beams.length[row]) + 1, longest)
        promising[row] = best > worst
    return promising


def _roots(sentences: int) -> Beams:
    """One open hypothesis per sentence: the empty prefix."""
    places, none, zero = np.arange(sentences), np.zeros(sentences, dtype=np.int64), np.zeros(sentences)
    return Beams(places, zero, zero, none + BOS, none, places)


def _heads(sentence: Ints) -> Ints:
    """``[n]``: for each hypothesis the position of the first one of its sentence; sentences ascend."""
    heads: Ints = np.searchsorted(sentence, sentence)
    return heads


def _hypothesis(ended: Ended, links: Sequence[Links], weights: tuple[float | None, ...]) -> Hypothesis:
    """The hypothesis, read along the back-pointers from its end to its start."""
    tokens, ledger, place = [], [], ended.trail
    for link in reversed(links[: ended.length]):
        tokens.append(int(link.token[place]))
        ledger.append(tuple(link.scores[place].tolist()))
        place = int(link.previous[place])
    return Hypothesis(tuple(tokens[:0:-1]), ended.total, ended.rank, tuple(ledger[::-1]), (weights,) * ended.length)


@sgdec.hookimpl
def sgdec_decoders() -> dict[str, type[Decoder]]:
    return {"vanilla": VanillaDecoder}
