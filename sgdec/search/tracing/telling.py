"""The part of a search space to which a decoder tells what it does with the nodes that it has received.

A space knows which nodes were expanded, which children it never gave to the decoder, and what is in the list at the
end. Only the decoder knows why it drops a node. Its words are those of `sgdec.trace.records.Fate`, or its own. All
methods do nothing unless the search is traced, or its progress is shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sgdec.context import EOS
from sgdec.protocol import Source
from sgdec.ranking import Ranking
from sgdec.search.node import Node
from sgdec.search.tracing.meter import Meter
from sgdec.search.tracing.recording import Recorder
from sgdec.trace.records import Fate


class Telling:
    """See `sgdec.search.space.SearchSpace`."""

    ranking: Ranking
    source: Source

    def __init__(self, recorder: Recorder | None, meter: Meter | None = None) -> None:
        self.recorder = recorder
        self._meter = meter
        self.expansions = 0
        """The number of nodes expanded or sampled from so far: the measure of search cost."""

    @property
    def traced(self) -> bool:
        """Whether the search is traced: for a decoder that would have to collect what it tells."""
        return self.recorder is not None

    @property
    def wants_bound(self) -> bool:
        """Whether somebody follows the bound of the search now: for a decoder that would have to compute it."""
        return self.recorder is not None or (self._meter is not None and self._meter.due)

    def dropped(self, node: Node, reason: str, into: Node | None = None) -> None:
        """This search will not expand or list a node that it has received.

        ``into``: for the reason ``recombined``, the node that represents both.
        """
        if self.recorder is not None:
            self.recorder.dropped(node, reason, into)

    def noted(self, node: Node, note: str) -> None:
        """A few words that a viewer shows beside this node, such as ``group 2``; a node can have several notes."""
        if self.recorder is not None:
            self.recorder.noted(node, note)

    def dropped_rest(self, parent: Node, reason: str, kept: Iterable[Node] = ()) -> None:
        """The children of a node are dropped, read or not, except for ``kept`` and those with another reason."""
        if self.recorder is not None:
            prefix = parent.tokens
            self.recorder.dropped_rest(parent, reason, {node.last for node in kept if node.tokens[:-1] == prefix})

    def bounded(self, bound: float, best: float) -> None:
        """The best that an exact search can still find, and has found (-inf = nothing), as rank scores."""
        if self.recorder is not None:
            self.recorder.bounded(self.expansions, bound, best)
        if self._meter is not None:
            self._meter.bounded(self.source.id, bound, best)

    def outranks(self) -> None:
        """The list is ranked by a criterion of the decoder's own: finished nodes that are not in it are outranked."""
        if self.recorder is not None:
            self.recorder.outranks()

    def stopped(self, reason: str, still_open: Iterable[Node] = ()) -> None:
        """The search ends now, for this reason; ``still_open``: the nodes that it would have expanded next."""
        if self.recorder is not None:
            self.recorder.stopped(reason)
            for node in still_open:
                if node.last != EOS:
                    self.recorder.dropped(node, Fate.OPEN)

    def received(self, parents: Sequence[Node], candidates: Sequence[Node], width: float) -> None:
        """A beam receives these of the children of ``parents``. `SearchSpace.best_children` calls this itself.

        The other children had no place in the beam, or were more than ``width`` below their best sibling.
        """
        if self.recorder is not None:
            for node in candidates:
                self._received(node)
            self.recorder.chosen(parents, width)

    def _received(self, node: Node) -> Node:
        """The same node, of which the recorder now knows that the decoder has it."""
        if self.recorder is not None:
            rank = self.ranking.score(node.total, node.length, node.coverage) if node.last == EOS else None
            self.recorder.received(node, rank)
        return node
