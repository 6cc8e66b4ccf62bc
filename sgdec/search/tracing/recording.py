"""Recording what a search does (`sgdec.trace.records`).

A `Recorder` belongs to one sentence. Constellations tell it which prefixes were expanded, with their best children
(`sgdec.search.tracing.observing`); search spaces, which children the decoder has received and why it did not receive
the others; decoders, through their spaces, what became of those that they received.

Nodes are compared as prefixes: nodes with the same tokens and weights are one node of the trace, so a decoder that
expands a prefix twice is seen to expand it once.
"""

from __future__ import annotations

import math
import time
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from sgdec.arrays import Floats
from sgdec.context import EOS
from sgdec.protocol import Source
from sgdec.search.blame import told
from sgdec.search.listing import TextOf
from sgdec.search.node import Family, Node
from sgdec.search.outcome import Outcome
from sgdec.trace.records import Alone, Batch, Bound, Ended, Expansion, Fate, SentenceTrace, Tracing

Prefix: TypeAlias = tuple[tuple[int, ...], tuple[float | None, ...]]
"""Tokens, and the weights for scoring the next one."""


@dataclass
class Seen:
    """The facts about one node that are known when it is expanded."""

    best: Floats
    """``[n, 2 + K]``: its best continuations, best first: token, combined score, unweighted scores."""
    candidates: int
    alone: tuple[Alone | None, ...] = ()
    attention: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    place: Mapping[str, str] = field(default_factory=dict)
    """These four as in `Expansion`."""


class Expanded:
    """An expansion, as long as its search runs."""

    def __init__(self, number: int, parent: int | None, node: Node, seen: Seen, batch: Batch) -> None:
        self.number = number
        self.parent = parent
        self.token = node.last if node.length else None
        self.total = node.total
        self.weights = node.weights
        self.ending = node.length == node.source.max_length
        self.seen = seen
        self.batch = batch
        self.fates: dict[int, int | str] = {}
        """Those that are known so far, by token."""
        self.received: dict[int, tuple[float, tuple[float, ...]]] = {}
        """The totals and scores of the children that the decoder has received."""
        self.into: dict[int, tuple[int, int]] = {}
        self.rest: str = Fate.UNREAD
        """The fate of the children that it has not received."""
        self.notes: dict[int, list[str]] = {}
        """Those of the decoder about its children, by token."""

    def closed(self, run: Sequence[float | None]) -> Expansion:
        """The expansion as a value. ``run``: the weights of the run."""
        best = self.seen.best
        tokens: list[int] = best[:, 0].astype(np.int64).tolist()
        totals: list[float] = (self.total + best[:, 1]).tolist()
        scores = list(map(tuple, best[:, 2:].tolist()))
        more = self.received.keys() - tokens
        for token in sorted(more, key=lambda token: (-self.received[token][0], token)):
            tokens.append(token)
            totals.append(self.received[token][0])
            scores.append(self.received[token][1])
        fates = [self.fates.get(token) or self._unsaid(token) for token in tokens]
        return Expansion(
            number=self.number,
            parent=self.parent,
            token=self.token,
            candidates=self.seen.candidates,
            tokens=tuple(tokens),
            totals=tuple(totals),
            scores=tuple(scores),
            fates=tuple(fates),
            rest=self.rest,
            into=self.into,
            notes={token: tuple(notes) for token, notes in self.notes.items()},
            alone=self.seen.alone,
            ending=self.ending,
            weights=None if tuple(self.weights) == tuple(run) else tuple(self.weights),
            attention=self.seen.attention,
            place=self.seen.place,
            batch=self.batch.number,
        )

    def _unsaid(self, token: int) -> str:
        return Fate.UNSAID if token in self.received else self.rest


class Recorder:
    """Records the search for one sentence."""

    def __init__(self, source: Source, tracing: Tracing, weights: Sequence[float | None]) -> None:
        """``weights [K]``: those of the run."""
        self._source = source
        self._tracing = tracing
        self._weights = tuple(weights)
        self._expanded: list[Expanded] = []
        self._numbers: dict[Prefix, int] = {}
        self._parents: dict[int, tuple[Family, Expanded | None]] = {}
        """By identity of a family the parent of its members; the family is kept, so that it keeps its identity."""
        self._ended: list[tuple[Expanded, Node, float]] = []
        """Finished children that the decoder received: their parents, they, and their rank scores."""
        self._bounds: list[Bound] = []
        self._outranks = False
        """Whether all finished children that are not in the list are outranked."""
        self._stopped: str | None = None
        self._began = time.monotonic()

    # Told by constellations and spaces.

    def expanded(self, node: Node, seen: Seen, batch: Batch) -> None:
        """This prefix was expanded."""
        prefix = node.tokens, tuple(node.weights)
        if prefix in self._numbers:
            return
        number, full = len(self._expanded), len(self._expanded) >= self._tracing.expansions
        parent = self._parent(node)
        if parent is not None:
            parent.fates[node.last] = Fate.UNRECORDED if full else number
            parent.received.setdefault(node.last, (node.total, node.scores))
        if full:
            return
        self._numbers[prefix] = number
        self._expanded.append(Expanded(number, None if parent is None else parent.number, node, seen, batch))

    def rest(self, nodes: Iterable[Node], fate: str) -> None:
        """The fate of those children of these nodes that the decoder will not receive."""
        for node in nodes:
            found = self._of(node)
            if found is not None:
                found.rest = fate

    def received(self, node: Node, rank: float | None = None) -> None:
        """The decoder has received this child. ``rank``: its rank score if it is finished."""
        parent = self._parent(node)
        if parent is not None:
            parent.received[node.last] = node.total, node.scores
            if rank is not None:
                self._ended.append((parent, node, rank))

    def chosen(self, parents: Sequence[Node], width: float) -> None:
        """The children of these nodes that the decoder has not received lost the competition for its beam."""
        self.rest(parents, Fate.BEAM)
        if width == math.inf:
            return
        for node in parents:
            found = self._of(node)
            if found is not None and len(found.seen.best):
                totals = found.total + found.seen.best[:, 1]
                tokens = found.seen.best[:, 0].astype(np.int64).tolist()
                too_low = (totals < totals[0] - width).tolist()
                found.rest = Fate.LOCAL if too_low[-1] else Fate.BEAM_OR_LOCAL  # none of them is above the last
                for token, pruned in zip(tokens, too_low, strict=True):
                    if token not in found.received:
                        found.fates[token] = Fate.LOCAL if pruned else Fate.BEAM

    # Told by decoders, through their spaces.

    def dropped(self, node: Node, fate: str, into: Node | None = None) -> None:
        parent = self._parent(node)
        if parent is None:
            return
        parent.received.setdefault(node.last, (node.total, node.scores))
        if not isinstance(parent.fates.get(node.last), int):
            parent.fates[node.last] = str(fate)
        if into is not None and (found := self._parent(into)) is not None:
            parent.into[node.last] = found.number, into.last

    def noted(self, node: Node, note: str) -> None:
        parent = self._parent(node)
        if parent is not None:
            parent.received.setdefault(node.last, (node.total, node.scores))
            notes = parent.notes.setdefault(node.last, [])
            if note not in notes:
                notes.append(str(note))

    def dropped_rest(self, parent: Node, fate: str, kept: Container[int]) -> None:
        """The fate of all children of a node whose fate is not known, except for those with these tokens."""
        found = self._of(parent)
        if found is not None:
            found.rest = fate
            for token in found.received:
                if token not in kept:
                    found.fates.setdefault(token, str(fate))

    def bounded(self, expansions: int, bound: float, best: float) -> None:
        """The best that an exact search can still find, and has found (-inf = nothing), as rank scores."""
        if bound == -math.inf:  # nothing to find, which the end of the trace says
            return
        found = None if best == -math.inf else best
        if not self._bounds or (self._bounds[-1].bound, self._bounds[-1].best) != (bound, found):
            self._bounds.append(Bound(expansions, bound, found, time.monotonic() - self._began))

    def outranks(self) -> None:
        self._outranks = True

    def stopped(self, reason: str) -> None:
        self._stopped = str(reason)

    # The end.

    def finish(self, outcome: Outcome, text_of: TextOf | None = None) -> SentenceTrace:
        """The trace of a search that has ended. ``text_of``: the texts of its list are distinct."""
        result, hypotheses = outcome.result, []
        received = {node.tokens[:-1]: parent.number for parent, node, _ in self._ended}  # under whatever weights
        for found in result.hypotheses:
            prefix = found.tokens, found.weights[-1] if found.weights else ()
            number = self._numbers.get(prefix, received.get(found.tokens)) if found.weights else None
            if number is not None:
                self._expanded[number].fates[EOS] = Fate.LISTED
            hypotheses.append(Ended(found.tokens, found.score, found.rank_score, number, found.text))
        worst = min((found.rank_score for found in result.hypotheses), default=math.inf)
        texts = set() if text_of is None else {text_of(found.tokens) for found in result.hypotheses}
        for parent, node, rank in self._ended:
            known = parent.fates.get(EOS, Fate.OUTRANKED)
            if text_of is not None and known == Fate.OUTRANKED and text_of(node.tokens[:-1]) in texts:
                parent.fates[EOS] = Fate.TEXT
            elif self._outranks or rank <= worst:
                parent.fates.setdefault(EOS, Fate.OUTRANKED)
        expansions = tuple(expanded.closed(self._weights) for expanded in self._expanded)
        return SentenceTrace(
            id=outcome.source.id,
            tokens=outcome.source.tokens,
            text=outcome.source.text,
            max_length=outcome.source.max_length,
            expansions=expansions,
            bounds=tuple(self._bounds),
            hypotheses=tuple(hypotheses),
            stopped=self._stopped,
            counted=max(result.expansions, len(expansions)),  # a search that fails returns no count
            proven=result.proven,
            gap=result.gap,
            error=None if outcome.error is None else _without_place(told(outcome.error, None), result.dead_end),
            batches=tuple(dict.fromkeys(expanded.batch for expanded in self._expanded)),
            seconds=outcome.seconds,
        )

    def _of(self, node: Node) -> Expanded | None:
        """The expansion of this prefix."""
        parent = self._parent(node)
        number = None if parent is None else parent.fates.get(node.last)
        if isinstance(number, int) and self._expanded[number].weights == node.weights:
            return self._expanded[number]
        number = self._numbers.get((node.tokens, tuple(node.weights)))
        return None if number is None else self._expanded[number]

    def _parent(self, node: Node) -> Expanded | None:
        """The expansion whose child this is; None for a root, and if it was not recorded."""
        known = self._parents.get(id(node.family))
        if known is not None:
            return known[1]
        if not node.length:
            return None
        number = self._numbers.get((node.tokens[:-1], tuple(node.family.scored_under)))
        parent = None if number is None else self._expanded[number]
        self._parents[id(node.family)] = node.family, parent
        return parent


def _without_place(error: str, dead_end: str | None) -> str:
    """The error without the place where the search died: the trace itself shows it, for every decoder."""
    return error if dead_end is None else error.removesuffix(f" {dead_end}")
