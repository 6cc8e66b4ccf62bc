"""Breadth-first search over the hypotheses of many sentences at once, as operations on whole arrays.

The search is that of `sgdec_decoders.beam`, line by line (Stahlberg et al. 2017, Algorithm 2), but without nodes:
hypotheses are columns of arrays, and are reconstructed from back-pointers when their sentence ends. Sentences begin
while others are in flight, each at its own length.

The beams of all sentences together have H hypotheses. R of them are open; each is one row of `HypothesisRows`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby, islice
from operator import itemgetter
from typing import NamedTuple, TypeAlias

import numpy as np

from sgdec import BOS, EOS, Hypothesis, Result, SearchSpace
from sgdec.arrays import Flags, Floats, Ints
from sgdec.decoder import Feed
from sgdec.protocol import FORBIDDEN
from sgdec.rows import Chosen, HypothesisRows
from sgdec_decoders._banks import banked
from sgdec_decoders._beam_arrays import Beams
from sgdec_decoders._beams import StoppingBeamSearch
from sgdec_decoders._streaming import number_to_begin
from sgdec_decoders._told import Told


class BackPointers(NamedTuple):
    """The last tokens of all n hypotheses that got into a beam in one step; views, which give single numbers fast."""

    previous: memoryview
    """``[n]``: back-pointers: indices of links of the step before."""
    token: memoryview
    scores: memoryview
    """``[n * K]``: unweighted scores by predictor."""

    @classmethod
    def of(cls, previous: Ints, token: Ints, scores: Floats) -> BackPointers:
        return cls(previous.data, token.data, scores.ravel().data)


class EndedHypothesis(NamedTuple):
    """A finished hypothesis that is remembered."""

    rank: float
    total: float
    length: int
    trail: int


Step: TypeAlias = tuple[int, tuple[float, ...]]
"""A token and its unweighted scores by predictor."""


class Together:
    """The searches of all sentences in flight. `begin` adds sentences, `step` lets all hypotheses grow by a token."""

    def __init__(self, options: StoppingBeamSearch, prune_final: float) -> None:
        self._options = options
        self._prune_final = prune_final
        self._rows: HypothesisRows | None = None
        nothing = np.zeros(0, np.int64)
        self._beams = Beams(np.zeros((4, 0), np.int64), np.zeros((2, 0)))
        self._links: deque[BackPointers] = deque()
        """The links of the latest steps, as far back as a sentence in flight began."""
        self._steps = 0
        """The number of steps so far."""
        # By sentence in flight:
        self.spaces: list[SearchSpace] = []
        self._finished = FinishedLists(prune_final, self._tokens)
        self._told = Told(options)
        self._traced = False
        """Whether one of them is traced."""
        self._limits = np.zeros(0)
        self._began, self._expansions = nothing, nothing
        """The number of steps before a sentence began, and its expansions so far."""

    def begin(self, spaces: Sequence[SearchSpace]) -> None:
        """Add sentences. Raises UsageError for ``stop length`` without a limit, ``stop proven`` without bounds."""
        for space in spaces:
            self._options.require_end(space, [space.root])
        if not spaces:
            return
        if self._rows is None or not self.spaces:
            self._rows = HypothesisRows(spaces)
        else:
            self._rows.add(spaces)
        limits = [space.source.max_length for space in spaces]
        places, zero = len(self.spaces) + np.arange(len(spaces)), np.zeros(len(spaces), np.int64)
        no_score = np.zeros(len(spaces))
        self._beams = self._beams.and_then(Beams.of(places, zero + BOS, zero, zero, no_score, no_score))  # line 2
        self.spaces += spaces
        self._finished.begin(spaces)
        self._limits = np.append(self._limits, [math.inf if limit is None else limit for limit in limits])
        self._began = np.append(self._began, zero + self._steps)
        self._expansions = np.append(self._expansions, zero)
        self._traced = any(space.traced for space in self.spaces)

    def step(self) -> list[tuple[SearchSpace, Result]]:
        """One step of all searches; returns the results of those that have ended."""
        assert self._rows is not None
        beams, rows, options = self._beams, self._rows, self._options
        is_open = beams.token != EOS
        growing = beams.where(is_open)
        self._count(growing)
        children = rows.best_together(  # lines 4-9
            growing.sentence,
            growing.total,
            options.children_needed,
            growing.length >= self._limits[growing.sentence],
            width=options.prune_local or math.inf,
            all_ends=bool(self._prune_final),
            advancing=options.banks,
        )
        nodes = self._told.grown(rows, self.spaces, growing, children) if self._traced else []
        candidates, child = self._candidates(beams, is_open, self._grown(growing, children, rows.cover()), children)
        progress = self._progress(rows, candidates, child, children) if options.banks else None
        listed, has_slot, is_record = self._listed(candidates, child, progress)  # lines 10-15
        if self._traced:
            pruned = self._finished.prunes(candidates)
            self._told.dropped(self.spaces, candidates.where(~listed), child[~listed], nodes, pruned[~listed])
        self._finished.remember(candidates, (child < 0) & ~listed)
        beams, child, has_slot = candidates.where(listed), child[listed], has_slot[listed]

        made = child >= 0  # the others were finished before, and keep their links
        children = children.at(child[made])
        self._links.append(BackPointers.of(beams.trail[made], children.token, children.ledger))
        self._steps += 1
        beams.trail[made] = np.arange(len(children.token))
        if self._traced:
            self._told.kept(self.spaces, beams, child, nodes, has_slot)

        finished = beams.finished
        self._finished.remember(beams, is_record[listed])
        leaving = self._leaving(beams, finished)
        self._finished.remember(beams, leaving & has_slot & finished, first=not options.sets_aside)
        leaving |= ~has_slot
        goes_on = ~(leaving | finished)
        rows.consume(children.row[goes_on[made]], children.token[goes_on[made]])
        self._beams = beams.where(~leaving)
        if options.stop == "proven":
            self._drop_hopeless(rows)
        return self._take_ended()

    def _count(self, growing: Beams) -> None:
        """Count an expansion for each of these hypotheses. Raises SgdecError for a search that has become endless."""
        self._expansions += np.bincount(growing.sentence, minlength=len(self.spaces))
        for sentence in (self._limits == math.inf).nonzero()[0].tolist():
            self.spaces[sentence].count_expansions(0, self._steps - int(self._began[sentence]))

    def _grown(self, growing: Beams, children: Chosen, cover: Floats) -> Beams:
        """The children as hypotheses. ``cover``: the coverage penalties of the children of each row."""
        row, token, total = children.row, children.token, children.total
        numbers = growing.numbers[:, row]
        numbers[1] = token
        numbers[2] += 1
        rank = np.zeros(len(row))
        (ends,) = np.nonzero(token == EOS)
        if len(ends):
            penalty = self._options.ranking.length_penalty
            divisors = np.array([penalty(length) for length in numbers[2, ends].tolist()])
            rank[ends] = total[ends] / divisors + cover[row[ends]]
        return Beams(numbers, np.array([total, rank]))

    def _candidates(self, beams: Beams, is_open: Flags, grown: Beams, children: Chosen) -> tuple[Beams, Ints]:
        """All candidates for the next beams, best total first: finished hypotheses, and the children.

        Also returns for each candidate its position among the children; -1 for a hypothesis that was finished before.
        """
        child = np.arange(len(grown.token))
        if is_open.all():
            return grown, child
        (ended,), (opened,) = (~is_open).nonzero(), is_open.nonzero()
        child = np.concatenate([np.full(len(ended), -1), child])
        candidates, parent = beams.at(ended).and_then(grown), np.concatenate([ended, opened[children.row]])
        # Among equal totals the order of the beam decides; the children of one parent are sorted already.
        order = np.lexsort((child, parent, -candidates.total, candidates.sentence))
        return candidates.at(order), child[order]

    def _progress(self, rows: HypothesisRows, candidates: Beams, child: Ints, children: Chosen) -> Ints:
        """``[n]``: how much of all constraints the candidates have met; finished ones all."""
        (is_open,) = (~candidates.finished).nonzero()
        met = np.array([space.needed for space in self.spaces], np.int64)[candidates.sentence]
        met[is_open] = rows.progress(children.row[child[is_open]], children.token[child[is_open]])
        return met

    def _listed(self, candidates: Beams, child: Ints, progress: Ints | None) -> tuple[Flags, Flags, Flags]:
        """``[n]``: the candidates that form the next beams; those with a slot; new records, which need none.

        ``progress [n]``: how much of all constraints they have met, if the beams have banks.
        """
        finished, sentence, size = candidates.finished, candidates.sentence, self._options.size

        def slots(takes_slot: Flags) -> Flags:
            if progress is None:
                return first_slots(sentence, takes_slot, size)
            return banked(sentence, progress, takes_slot, size) | ~takes_slot

        everything = np.ones(len(child), dtype=bool)
        if not self._prune_final:
            if not self._options.sets_aside and np.bincount(sentence).max(initial=0) <= size:
                return everything, everything, ~everything
            has_slot = slots(~finished if self._options.sets_aside else everything)
            return has_slot, has_slot, ~everything
        is_record = self._finished.records(candidates)
        kept = ~self._finished.prunes(candidates)
        has_slot = kept & slots(kept & ~finished if self._options.sets_aside else kept)
        return has_slot | is_record, has_slot, is_record

    def _leaving(self, beams: Beams, finished: Flags) -> Flags:
        """``[H]``: finished hypotheses that are set aside, and all hypotheses of sentences that are done."""
        if self._options.sets_aside or not finished.any():
            return finished
        if self._options.stop == "best":
            return finished[_heads(beams.sentence)]
        still_open = np.bincount(beams.sentence, weights=~finished)  # [sentences]
        return np.equal(still_open[beams.sentence], 0)

    def _drop_hopeless(self, rows: HypothesisRows) -> None:
        """Drop the open hypotheses that can no longer enter the n-best."""
        beams, spaces, ended = self._beams, self.spaces, self._finished.lists
        promising = np.ones(len(beams.total), dtype=bool)
        doubted = [row for row, b in enumerate(beams.sentence.tolist()) if len(ended[b]) >= spaces[b].nbest]
        nodes = [rows.node(row, spaces[beams.sentence[row]], int(beams.length[row])) for row in doubted]
        for row, bound in zip(doubted, spaces[0].constellation.bounds(nodes), strict=True):
            space, worst = spaces[beams.sentence[row]], ended[beams.sentence[row]][-1].rank
            longest = None if space.source.max_length is None else space.source.max_length + 1
            total = float(beams.total[row])
            highest = total + space.rounded_up(bound, total)
            best = space.ranking.best_possible(highest, int(beams.length[row]) + 1, longest)
            promising[row] = best > worst
            node = rows.watched(row)
            if node is not None and not promising[row]:
                space.dropped(node, "bound")
        rows.keep(np.flatnonzero(promising))
        self._beams = beams.where(promising)

    def _path(self, sentence: int, ended: EndedHypothesis) -> list[Step]:
        """The steps of a finished hypothesis, read along the back-pointers from its end."""
        first = int(self._began[sentence]) - self._steps  # the index of the links of the first token, from the end
        steps: list[Step] = []
        place = ended.trail
        for step in range(ended.length - 1, -1, -1):
            previous, token, scores = self._links[first + step]
            width = len(scores) // len(token)
            steps.append((token[place], tuple(scores[place * width : (place + 1) * width])))
            place = previous[place]
        return steps[::-1]

    def _tokens(self, sentence: int, ended: EndedHypothesis) -> list[int]:
        """Without ``</s>``."""
        return [token for token, _ in self._path(sentence, ended)[:-1]]

    def _take_ended(self) -> list[tuple[SearchSpace, Result]]:
        """The results of sentences without hypotheses; these sentences are in flight no longer."""
        goes_on = np.bincount(self._beams.sentence, minlength=len(self.spaces)) > 0
        if goes_on.all():
            return []
        results = []
        for sentence in (~goes_on).nonzero()[0].tolist():
            space = self.spaces[sentence]
            space.count_expansions(int(self._expansions[sentence]), 0)
            listed = self._finished.lists[sentence]
            found = [_hypothesis(ended, self._path(sentence, ended), space.weights) for ended in listed]
            if self._traced:
                self._told.ended(space)
            if self._options.banks and not found and (node := space.allowed_output()) is not None:
                found = [space.finish(node)]
            results.append((space, Result(found)))
        self.spaces = [space for space, goes in zip(self.spaces, goes_on.tolist(), strict=True) if goes]
        self._finished.keep(goes_on)
        self._limits, self._began = self._limits[goes_on], self._began[goes_on]
        self._expansions = self._expansions[goes_on]
        self._beams.numbers[0] = (np.cumsum(goes_on) - 1)[self._beams.sentence]
        needed = self._steps - int(self._began.min(initial=self._steps))
        while len(self._links) > needed:
            self._links.popleft()
        return results


class FinishedLists:
    """The finished hypotheses that have left the beams, the n-best of each sentence, best rank score first."""

    def __init__(self, prune_final: float, tokens_of: Callable[[int, EndedHypothesis], Sequence[int]]) -> None:
        """``tokens_of``: the tokens of a hypothesis, without ``</s>``, from its sentence's place and from itself."""
        self.lists: list[list[EndedHypothesis]] = []
        self._spaces: list[SearchSpace] = []
        self._tokens_of = tokens_of
        self._width = prune_final
        self._best = np.zeros(0)  # [sentences]: rank scores so far

    def begin(self, spaces: Sequence[SearchSpace]) -> None:
        """Add sentences."""
        self.lists += [[] for _ in spaces]
        self._spaces += spaces
        self._best = np.append(self._best, np.full(len(spaces), FORBIDDEN))

    def keep(self, goes_on: Flags) -> None:
        """Keep only the sentences that are marked."""
        places = goes_on.nonzero()[0].tolist()
        self.lists = [self.lists[place] for place in places]
        self._spaces = [self._spaces[place] for place in places]
        self._best = self._best[goes_on]

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
        finished = beams.where(which)
        columns = (finished.rank, finished.total, finished.length, finished.trail)
        ended = map(EndedHypothesis, *(column.tolist() for column in columns))
        for sentence, found in groupby(zip(finished.sentence.tolist(), ended, strict=True), itemgetter(0)):
            new, known = [hypothesis for _, hypothesis in found], self.lists[sentence]
            former, latter = (new, known) if first else (known, new)
            listed = [*former, *(hypothesis for hypothesis in latter if hypothesis not in former)]
            listed.sort(key=lambda hypothesis: -hypothesis.rank)
            lowest = self._best[sentence] - self._width if self._width else FORBIDDEN
            space, tokens_of = self._spaces[sentence], partial(self._tokens_of, sentence)
            nbest = islice(space.distinct(listed, tokens_of), space.nbest)
            self.lists[sentence] = [hypothesis for hypothesis in nbest if hypothesis.rank >= lowest]


def first_slots(sentence: Ints, takes_slot: Flags, size: int) -> Flags:
    """``[n]``: the first candidates of each sentence, until one would need slot ``size + 1``.

    >>> first_slots(np.array([0, 0, 0, 4, 4]), np.array([True, False, True, True, False]), 1).tolist()
    [True, True, False, True, True]
    """
    taken: Ints = np.cumsum(takes_slot)
    before: Ints = (taken - takes_slot)[_heads(sentence)]
    return np.less_equal(taken, before + size)


def _heads(sentence: Ints) -> Ints:
    """``[n]``: for each hypothesis the position of the first one of its sentence; sentences ascend."""
    heads: Ints = sentence.searchsorted(sentence)
    return heads


def _hypothesis(ended: EndedHypothesis, path: Sequence[Step], weights: tuple[float | None, ...]) -> Hypothesis:
    tokens, ledger = zip(*path, strict=True)
    return Hypothesis(tokens[:-1], ended.total, ended.rank, ledger, (weights,) * ended.length)


def together(
    options: StoppingBeamSearch, prune_final: float, more: Feed, in_flight: int
) -> Iterator[tuple[SearchSpace, Result]]:
    """Decode all sentences that ``more`` gives, as `sgdec.protocol.BatchDecoder.decode_stream` describes."""
    search = Together(options, prune_final)
    while True:
        wanted = number_to_begin(len(search.spaces), in_flight)
        if wanted and not (search.spaces and options.ranking.uses_coverage):
            search.begin(more(wanted))
        if not search.spaces:
            return
        yield from search.step()
