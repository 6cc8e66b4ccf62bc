"""The record of a breadth-first search on arrays, for sentences that are traced: the same that `beam` gives.

A search on arrays keeps no nodes. `HypothesisRows` makes nodes for the rows of traced sentences, and `Told` tells
their spaces what becomes of them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from sgdec import Node, SearchSpace
from sgdec.arrays import Flags, Ints
from sgdec.rows import Chosen, HypothesisRows
from sgdec_decoders._beam_arrays import Beams
from sgdec_decoders._beams import StoppingBeamSearch

Key = tuple[int, int, int]
"""The identity of its space, its length and its trail: a finished hypothesis that is in a beam."""


class Told:
    """Tells the spaces of traced sentences about one step after the other."""

    def __init__(self, options: StoppingBeamSearch) -> None:
        self._options = options
        self._finished: dict[Key, Node] = {}
        """The finished hypotheses that have entered a beam."""
        self._left: dict[int, list[Node]] = {}
        """By identity of a space the open hypotheses of its beam."""

    def grown(
        self, rows: HypothesisRows, spaces: Sequence[SearchSpace], growing: Beams, children: Chosen
    ) -> list[Node | None]:
        """The children that the searches receive, as nodes; None for sentences that are not traced."""
        found = rows.watched_children(children.row, children.token)
        families: defaultdict[int, list[Node]] = defaultdict(list)
        for sentence, child in zip(growing.sentence[children.row].tolist(), found, strict=True):
            if child is not None:
                families[sentence].append(child)
        for sentence, space in enumerate(spaces):
            if space.traced:
                parents = [rows.watched(row) for row in (growing.sentence == sentence).nonzero()[0].tolist()]
                width = self._options.prune_local or math.inf
                space.received([node for node in parents if node is not None], families[sentence], width)
                self._left[id(space)] = []
        return found

    def dropped(
        self,
        spaces: Sequence[SearchSpace],
        dropped: Beams,
        child: Ints,
        nodes: Sequence[Node | None],
        pruned: Flags,
    ) -> None:
        """These n candidates get no slot.

        ``child [n]``: the places of the new ones in ``nodes``, -1 for hypotheses that were finished before. ``pruned
        [n]``: they are finished, and rank too far below others.
        """
        columns = (dropped.sentence, dropped.length, dropped.trail, child, pruned)
        for sentence, length, trail, place, too_low in zip(*(each.tolist() for each in columns), strict=True):
            space = spaces[sentence]
            node = nodes[place] if place >= 0 else self._finished.get((id(space), length, trail))
            if node is not None and (place >= 0 or too_low):
                space.dropped(node, "final" if too_low else "beam")

    def kept(
        self,
        spaces: Sequence[SearchSpace],
        beams: Beams,
        child: Ints,
        nodes: Sequence[Node | None],
        has_slot: Flags,
    ) -> None:
        """These n hypotheses are the next beams; ``child [n]`` as above. Without a slot they are only remembered."""
        columns = (beams.sentence, beams.length, beams.trail, child, has_slot)
        for sentence, length, trail, place, slot in zip(*(each.tolist() for each in columns), strict=True):
            space = spaces[sentence]
            if not space.traced or not slot:
                continue
            node = nodes[place] if place >= 0 else self._finished[id(space), length, trail]
            assert node is not None
            self._left[id(space)].append(node)
            if node.finished:
                self._finished[id(space), length, trail] = node

    def ended(self, space: SearchSpace) -> None:
        """A search has ended."""
        left = self._left.pop(id(space), [])
        if self._options.sets_aside:
            left = []
        space.stopped(self._options.stop if left else "empty", left)
        self._finished = {key: node for key, node in self._finished.items() if key[0] != id(space)}
