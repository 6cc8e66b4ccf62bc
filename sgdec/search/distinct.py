"""Recombination in wide beams: enough children of each beam that the keys of as many as it keeps differ.

Many children of a beam can have equal recombination keys, and only the best of each key is kept. So the number of
children needed is not known in advance: it is doubled until enough keys differ. A key can require that a predictor
consumes a token, so each child is made once, and only children that are needed get a key.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from sgdec.search.combination.choosing import Choice
from sgdec.search.node import Node


def until_distinct(
    beam_of: Sequence[int],
    choice: Choice,
    best_children: Callable[[Choice], list[list[Node]]],
    keys_of: Callable[[Sequence[Node]], list[Hashable]],
) -> list[list[Node]]:
    """For each node its best children, with ``choice.size`` different keys of open children in each beam.

    ``beam_of``: the beam of each node, ascending from 0. Fewer only if no more are offered. ``best_children`` returns
    the children of each node for a choice, those of a smaller size among them.
    """
    made: dict[tuple[int, int], Node] = {}
    beams = beam_of[-1] + 1
    keys: list[set[Hashable]] = [set() for _ in range(beams)]
    wanted = choice.size
    while True:
        families = [
            [made.get((place, child.last), child) for child in family]
            for place, family in enumerate(best_children(choice))
        ]
        offered = [0] * beams
        new: list[tuple[int, Node]] = []
        for place, family in enumerate(families):
            beam = beam_of[place]
            for child in family:
                if not child.finished:
                    offered[beam] += 1
                    if len(keys[beam]) < wanted and (place, child.last) not in made:
                        made[place, child.last] = child
                        new.append((beam, child))
        for (beam, _), key in zip(new, keys_of([child for _, child in new]), strict=True):
            keys[beam].add(key)
        if all(len(found) >= wanted or n < choice.size for found, n in zip(keys, offered, strict=True)):
            return families
        choice = choice._replace(size=2 * choice.size)
