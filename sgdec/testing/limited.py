"""A search space with a limit on expansions, to stop searches that would not end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from sgdec.search.constellation import Constellation
from sgdec.search.node import Node
from sgdec.search.space import SearchSpace


class LimitedSpace(SearchSpace):
    """Raises AssertionError when more than ``most`` nodes are expanded. Unlike a time limit, it ignores speed."""

    def __init__(self, constellation: Constellation, root: Node, *, most: int, **options: Any) -> None:
        super().__init__(constellation, root, **options)
        self._most = most
        self.expanded: Counter[int] = Counter()
        """For each length the number of expanded or sampled prefixes, without a decoder's own predictor calls."""

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
