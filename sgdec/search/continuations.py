"""Tokens that can follow a node, with their scores: what combining the scores of several predictors gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Continuation: TypeAlias = tuple[int, float, tuple[float, ...]]
"""One token that can follow; its combined score; its unweighted scores ``[K]``, 0 where a predictor was not asked."""


@dataclass(frozen=True, slots=True)
class Block:
    """Some continuations of one node, best first, apart from all that they were chosen from."""

    ranked: list[Continuation] | npt.NDArray[np.float64]
    """A few as values, many as rows ``[n, 2 + K]`` of the same numbers."""
    more: bool
    """Whether others come after them."""

    def __len__(self) -> int:
        return len(self.ranked)

    def continuations(self, start: int, end: int) -> list[Continuation]:
        """Some of them, as values."""
        if isinstance(self.ranked, list):
            return self.ranked[start:end]
        rows: list[list[float]] = self.ranked[start:end].tolist()
        return [(int(token), total, tuple(scores)) for token, total, *scores in rows]

    def tokens(self) -> npt.NDArray[np.int32]:
        """``[n]``."""
        if isinstance(self.ranked, list):
            return np.array([token for token, _, _ in self.ranked], np.int32)
        return self.ranked[:, 0].astype(np.int32)


def best_first(continuation: Continuation) -> tuple[float, int]:
    """Higher score first, then lower token."""
    return -continuation[1], continuation[0]
