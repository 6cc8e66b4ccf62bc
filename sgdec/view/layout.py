"""The layout of a prefix tree: which prefixes are shown first, and the row of each in its column.

The column of a prefix is its length. Within a column, prefixes keep the order of `sgdec.view.tree.prefixes`. The
first child of a prefix is in the same row. Every other child is moved down with its whole subtree until it is clear
of the subtrees of its siblings: the layout of Reingold and Tilford (1981, "Tidier drawings of trees"), aligned at the
top. So edges connect neighbouring columns, never cross and never go up, and the first path is a straight line on top.
Cost: the number of prefixes times the depth.

``rows.js`` computes the same rows in the browser when branches are opened and closed; a test compares both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sgdec.view.tree import TreePrefix


def rows(tree: Sequence[TreePrefix], shown: Iterable[int]) -> dict[int, int]:
    """The row of each shown prefix, from 0 on top. ``shown``: places in the tree that contain their parents."""
    places = sorted(shown)
    children: defaultdict[int | None, list[int]] = defaultdict(list)
    for place in places:
        children[tree[place].parent].append(place)
    shifts: dict[int, int] = {}
    outlines: dict[int | None, _Outline] = {}
    above: int | None
    for above in (*reversed(places), None):  # children before parents; None is above the roots
        outline = outlines[above] = _Outline([], [])
        for child in children[above]:
            shifts[child] = outline.add(outlines.pop(child))
        outline.tops.insert(0, 0)
        outline.bottoms.insert(0, 0)
    found: dict[int, int] = {}
    for place in places:
        parent = tree[place].parent
        found[place] = shifts[place] + (0 if parent is None else found[parent])
    return found


@dataclass
class _Outline:
    """The first and the last row of a subtree in each of its columns, relative to the row of its root."""

    tops: list[int]
    bottoms: list[int]

    def add(self, other: _Outline) -> int:
        """Put another subtree below; return by how many rows it is moved."""
        shift = max((last + 1 - first for last, first in zip(self.bottoms, other.tops, strict=False)), default=0)
        shift = max(shift, 0)
        depth = len(other.tops)
        self.tops += [shift + row for row in other.tops[len(self.tops) :]]
        self.bottoms = [shift + row for row in other.bottoms] + self.bottoms[depth:]
        return shift


def overview(tree: Sequence[TreePrefix], limit: int) -> list[int]:
    """The prefixes that a drawing shows first: hypotheses of the list, and expanded prefixes.

    If there are more than ``limit``, those with the largest subtrees are shown, which shows the long branches of a
    wide search, and all prefixes of the best hypothesis.
    """
    kept = [place for place, prefix in enumerate(tree) if prefix.expansions or prefix.rank is not None]
    if len(kept) > limit:
        best = path(tree, best_place(tree))
        kept.sort(key=lambda place: (place not in best, -_weight(tree[place]), place))
        kept = sorted(kept[: max(limit, len(best))])
    return kept


def path(tree: Sequence[TreePrefix], place: int | None) -> list[int]:
    """The places from the root to this one; empty for None."""
    found: list[int] = []
    while place is not None:
        found.append(place)
        place = tree[place].parent
    return found[::-1]


def best_place(tree: Sequence[TreePrefix]) -> int | None:
    """The place of the best hypothesis; None if the tree has none."""
    return next((place for place, prefix in enumerate(tree) if prefix.rank == 0), None)


def _weight(prefix: TreePrefix) -> int:
    return prefix.below + bool(prefix.expansions)
