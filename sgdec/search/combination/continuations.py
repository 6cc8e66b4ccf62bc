"""Continuations: tokens that can follow a node, with the combined scores and those of each predictor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from sgdec.arrays import Floats

PIECE = 2
"""The number of continuations of a block that become Python objects at a time."""
Continuation: TypeAlias = tuple[int, float, tuple[float, ...]]
"""Token; combined score; unweighted scores ``[K]``, 0 for a predictor that was not consulted."""


@dataclass(frozen=True, slots=True)
class Block:
    """The best n continuations of one node, best first, in arrays of their own: a block keeps no full rows alive."""

    ranked: list[Continuation] | Floats
    """A list if there are few; otherwise rows ``[n, 2 + K]`` of the same numbers."""
    more: bool
    """Whether the node has further continuations."""

    def __len__(self) -> int:
        return len(self.ranked)

    def __iter__(self) -> Iterator[Continuation]:
        """The continuations, best first; those of an array become Python objects a few at a time."""
        if isinstance(self.ranked, list):
            return iter(self.ranked)
        return chain.from_iterable(self.continuations(place, place + PIECE) for place in range(0, len(self), PIECE))

    def continuations(self, start: int, end: int) -> list[Continuation]:
        """The continuations at positions ``start`` to ``end - 1``."""
        return self._at(slice(start, end))

    def first(self, size: int) -> Block:
        """The block of the ``size`` best of these continuations."""
        return self if len(self) <= size else Block(self.ranked[:size], more=False)

    def ends(self) -> list[Continuation]:
        """The best and the worst continuation, or the only one."""
        return self._at(slice(None, None, max(len(self) - 1, 1)))

    def _at(self, places: slice) -> list[Continuation]:
        if isinstance(self.ranked, list):
            return self.ranked[places]
        rows: list[list[float]] = self.ranked[places].tolist()
        return [(int(token), total, tuple(scores)) for token, total, *scores in rows]

    def rows(self, width: int) -> Floats:
        """All continuations as rows ``[n, width]`` of the same numbers; ``width``: 2 + K."""
        if isinstance(self.ranked, list):
            flat = [(token, total, *scores) for token, total, scores in self.ranked]
            return np.array(flat, np.float64).reshape(-1, width)
        return self.ranked

    def tokens(self) -> npt.NDArray[np.int32]:
        """The tokens of all continuations: ``[n]``."""
        if isinstance(self.ranked, list):
            return np.array([token for token, _, _ in self.ranked], np.int32)
        return self.ranked[:, 0].astype(np.int32)


def best_first(continuation: Continuation) -> tuple[float, int]:
    """Sort key: higher score first, then lower token."""
    return -continuation[1], continuation[0]
