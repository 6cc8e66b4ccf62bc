"""The rows of `sgdec.rows.HypothesisRows` as nodes, for searches that are checked, traced, or watched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from sgdec.arrays import Ints
from sgdec.search.checking.constellation import CheckedConstellation
from sgdec.search.combining import Combined
from sgdec.search.constellation import Constellation
from sgdec.search.node import Node

Reach: TypeAlias = Callable[[Node], None]


class RowNodes:
    """One node for each row of a search that is watched, None for the others.

    A search on arrays keeps no nodes, so the predictors are asked a second time for them.
    """

    def __init__(self, constellation: Constellation, coverage: bool) -> None:
        """``coverage``: nodes carry their coverage."""
        self._constellation = constellation
        self._coverage = coverage
        self._nodes: list[Node | None] = []
        self._reach: dict[int, Reach] = {}
        """By identity of the source."""
        self._combined: Combined | None = None
        self._place: dict[int, int] = {}
        """By row the place in ``_combined``."""

    def __getitem__(self, row: int) -> Node | None:
        return self._nodes[row]

    def add(self, roots: Sequence[Node], traced: Sequence[bool], reach: Sequence[Reach | None]) -> None:
        """Add rows of empty prefixes. ``reach``: is called with each node of a search that is expanded."""
        checks = isinstance(self._constellation, CheckedConstellation)
        for root, is_traced, told in zip(roots, traced, reach, strict=True):
            self._nodes.append(root if checks or is_traced or told is not None else None)
            if told is not None:
                self._reach[id(root.source)] = told

    def expand(self) -> None:
        """These rows are expanded now: check and record them."""
        watched = [row for row, node in enumerate(self._nodes) if node is not None]
        self._place = {row: place for place, row in enumerate(watched)}
        nodes = self._asked()
        for node in nodes:
            if reach := self._reach.get(id(node.source)):
                reach(node)
        if nodes:
            if isinstance(self._constellation, CheckedConstellation):
                self._constellation.check(nodes)
            self._combined = self._constellation.observed(nodes)

    def children(self, rows: Ints, tokens: Ints) -> list[Node | None]:
        """The children of rows, after `expand`: child i is row ``rows[i]`` plus token ``tokens[i]``."""
        if not self._place:
            return [None] * len(rows)
        nodes = self._asked()
        assert self._combined is not None
        if self._combined.forgotten:  # other nodes were asked about in between
            self._combined = self._constellation.combine(nodes)
        covered = self._constellation.coverage(nodes) if self._coverage else [()] * len(nodes)
        return [
            None if parent is None else parent.children([self._combined.continuation(at, token)], covered[at])[0]
            for parent, at, token in (
                (self._nodes[row], self._place.get(row, -1), token)
                for row, token in zip(rows.tolist(), tokens.tolist(), strict=True)
            )
        ]

    def keep(self, rows: Ints) -> None:
        self._nodes = [self._nodes[row] for row in rows.tolist()]

    def consume(self, rows: Ints, tokens: Ints) -> None:
        """The rows become these children."""
        self._nodes = self.children(rows, tokens)

    def _asked(self) -> list[Node]:
        """The nodes of all rows that are watched."""
        return [node for node in self._nodes if node is not None]
