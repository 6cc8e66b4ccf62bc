"""Relaxations of predictors whose scores depend on a count alone, such as the number of tokens so far."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from sgdec import EOS
from sgdec.arrays import Floats, Ints
from sgdec.protocol import FORBIDDEN, SparseRow
from sgdec.relaxations import Relaxation

COUNTED = 1 << 9
"""At most this many counts are distinguished: in a cyclic automaton without a length limit they never end."""


class Counted(Relaxation):
    """Exact up to a count. One token has a score of its own, and all others score alike.

    The relaxed state is the count. Rows are computed on first use, because a lattice seldom has long paths.
    """

    def __init__(
        self,
        size: int,
        row: Callable[[int], SparseRow],
        count: Callable[[int], int],
        *,
        beyond: tuple[float, float] | None = None,
        scored: int = EOS,
        counted: int | None = None,
    ) -> None:
        """``row`` returns the scores after a count, and ``count`` the count of one of the predictor's states.

        ``beyond``: the last relaxed state stands for all higher counts too, and all scores after these are between
        these two numbers. ``scored``: the token with a score of its own. ``counted``: the token that is counted;
        None = all.
        """
        self.size = size
        self.memory = 0 if size == 1 else None
        self._row, self._count = row, count
        self._beyond = beyond
        self._scored, self._counted = scored, counted
        self._table = np.zeros((0, 2))
        """By count: the scores of ``scored`` and of all other tokens."""

    def of(self, states: Sequence[int]) -> list[int]:
        return [min(self._count(state), self.size - 1) for state in states]

    def after(self, states: Ints, tokens: Ints) -> Ints:
        return np.minimum(states + (1 if self._counted is None else tokens == self._counted), self.size - 1)

    def highest(self, states: Ints, tokens: Ints) -> Floats:
        return self._bounds(states, tokens, 1)

    def lowest(self, states: Ints, tokens: Ints) -> Floats:
        scores = self._bounds(states, tokens, 0)
        scores[(scores == FORBIDDEN) & ~self._is_beyond(states)] = np.inf  # no finite score
        return scores

    def _bounds(self, states: Ints, tokens: Ints, which: int) -> Floats:
        """The scores, or one of the bounds ``beyond`` the counts that are distinguished."""
        beyond = self._is_beyond(states)
        exact = np.where(beyond, 0, states)
        wanted = int(exact.max(initial=0)) + 1
        if wanted > len(self._table):
            rows = map(self._row, range(len(self._table), wanted))
            added = [(row.get(self._scored), row.default) for row in rows]
            self._table = np.concatenate([self._table, added])
        scores: Floats = self._table[exact, (tokens != self._scored).astype(np.int64)]
        if self._beyond is not None:
            scores[beyond] = self._beyond[which]
        return scores

    def _is_beyond(self, states: Ints) -> np.ndarray:
        return (states == self.size - 1) if self._beyond is not None else np.zeros(len(states), bool)
