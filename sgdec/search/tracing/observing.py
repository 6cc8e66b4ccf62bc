"""Observing the expansions of searches that are traced: which nodes, and what their predictors say about them.

A constellation asks its `Observer` after each answer to an expansion. It is empty, and costs one test, unless a
scheduler traces sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from sgdec.protocol import FORBIDDEN, Source
from sgdec.search.combination.columns import Column
from sgdec.search.combining import Combined
from sgdec.search.listing import TextOf
from sgdec.search.node import Node
from sgdec.search.outcome import Outcome
from sgdec.search.tracing.recording import Recorder, Seen
from sgdec.sparse import Wanted
from sgdec.trace.records import Alone, Batch, SentenceTrace, Tracing

Asking = Callable[[str, Sequence[Node]], Sequence[Mapping[str, Any]]]
"""For the name of an ability and some nodes: for each node the answers of the predictors that have it, by name."""


class Observer:
    """The recorders of the sentences that are traced."""

    def __init__(self) -> None:
        self.recorders: dict[int, tuple[Source, Recorder]] = {}
        """By identity of the source. Each root has its own; it is kept here, so that its identity is not reused."""
        self._children = 0
        self._batches = 0

    def begin(self, root: Node, tracing: Tracing) -> Recorder:
        """Trace the search from this root from now on; forget what was traced of it before."""
        recorder = Recorder(root.source, tracing, root.weights)
        self.recorders[id(root.source)] = root.source, recorder
        self._children = tracing.children
        return recorder

    def end(self, root: Node, outcome: Outcome, text_of: TextOf | None = None) -> SentenceTrace | None:
        """The trace of a search that has ended; None if it was not traced. ``text_of``: as in `Recorder.finish`."""
        found = self.recorders.pop(id(root.source), None)
        return None if found is None else found[1].finish(outcome, text_of)

    def forget(self, root: Node) -> None:
        """End without a trace."""
        self.recorders.pop(id(root.source), None)

    def follows(self, nodes: Sequence[Node]) -> bool:
        """Whether one of these nodes belongs to a sentence that is traced."""
        return bool(self.recorders) and any(id(node.source) in self.recorders for node in nodes)

    def see(self, nodes: Sequence[Node], combined: Combined, seconds: float, ask: Asking) -> None:
        """Record that these nodes are expanded. ``seconds``: what the predictors took for it."""
        self._batches += 1
        batch = Batch(self._batches, len(nodes), seconds)
        places = [place for place, node in enumerate(nodes) if id(node.source) in self.recorders]
        traced = [nodes[place] for place in places]
        best = combined.best_rows(self._children)
        alone = favourites(combined.columns, places)
        attention, where = ask("attention", traced), ask("state_label", traced)
        for place, node, favoured, rows, here in zip(places, traced, alone, attention, where, strict=True):
            seen = Seen(
                best[place],
                combined.candidates_of(place),
                favoured,
                {name: found for name, row in rows.items() if (found := _finite(row))},
                {name: str(said) for name, said in here.items() if said is not None},
            )
            self.recorders[id(node.source)][1].expanded(node, seen, batch)


def favourites(columns: Sequence[Column], places: Sequence[int]) -> list[tuple[Alone | None, ...]]:
    """For each of these nodes the token that each predictor alone would choose, and who forbids it.

    None for a predictor that has no weight, or weight 0, prefers no token to all others, or was asked for candidates
    only. With a single predictor all tuples are empty.
    """
    if len(columns) == 1:
        return [()] * len(places)
    chosen = [_favourites(column, places) for column in columns]
    tokens = [sorted({found[0] for found in row if found is not None}) for row in zip(*chosen, strict=True)]
    wanted = Wanted.of(places, tokens)
    starts = np.concatenate([[0], np.cumsum([len(row) for row in tokens])]).tolist()
    forbids = [(column.scores_of(wanted) == FORBIDDEN).tolist() for column in columns]
    found: list[tuple[Alone | None, ...]] = []
    for start, row, of_node in zip(starts, tokens, zip(*chosen, strict=True), strict=False):
        by = {token: tuple(k for k, flags in enumerate(forbids) if flags[start + i]) for i, token in enumerate(row)}
        found.append(tuple(None if each is None else Alone(each[0], each[1], by[each[0]]) for each in of_node))
    return found


def _favourites(column: Column, places: Sequence[int]) -> list[tuple[int, float] | None]:
    """The token with the best weighted score in each of these nodes' rows (ties: the lowest), and its own score."""
    weighted = [(column.places[place], column.weights[place]) for place in places]
    asked = [(row, weight) for row, weight in weighted if row is not None and weight]
    if not asked:
        return [None] * len(places)
    found = iter(column.scores.favourites(*map(list, zip(*asked, strict=True))))
    return [next(found) if row is not None and weight else None for row, weight in weighted]


def _finite(row: Any) -> tuple[float, ...] | None:
    """A row of attention; None if one of its numbers is NaN or infinite, which only a coverage penalty refuses."""
    found = np.asarray(row, np.float64).ravel()
    return tuple(found.tolist()) if np.isfinite(found).all() else None
