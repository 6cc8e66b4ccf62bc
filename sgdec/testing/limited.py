"""A search space that ends a search which has no end of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from sgdec.search.constellation import Constellation
from sgdec.search.node import Node
from sgdec.search.space import SearchSpace


class LimitedSpace(SearchSpace):
    """Raises AssertionError once more than ``most`` nodes are expanded: the same on every machine, however slow."""

    def __init__(self, constellation: Constellation, root: Node, *, most: int, **options: Any) -> None:
        super().__init__(constellation, root, **options)
        self._most = most
        self.expanded: Counter[int] = Counter()
        """By the length of prefixes, how many were expanded or sampled from; without what a decoder asks itself."""

    def count_expansions(self, nodes: int, length: int) -> None:
        super().count_expansions(nodes, length)
        self._require_few()

    def _count(self, nodes: Sequence[Node]) -> None:
        super()._count(nodes)
        self.expanded.update(node.length for node in nodes)
        self._require_few()

    def _require_few(self) -> None:
        assert self.expansions <= self._most, (
            f"a search must end: this one expanded more than {self._most:,} nodes of a small space"
        )
