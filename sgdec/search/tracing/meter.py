"""The state of the searches in flight, for a line of progress: a search can take long before it has an outcome."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

SECONDS = 0.5
"""The least time between two calls of `Meter.show`."""


class Meter:
    """Follows all searches of a scheduler. Their spaces tell it what they do."""

    def __init__(self, show: Callable[[Meter], object]) -> None:
        """``show`` is called while searches run, at most once in `SECONDS`."""
        self.expansions = 0
        """The number of nodes expanded so far, in all searches."""
        self._gaps: dict[int, float] = {}
        """By sentence, of the exact searches in flight: bound - best rank score; inf = no hypothesis so far."""
        self._show = show
        self._shown = time.monotonic()

    @property
    def gap(self) -> float | None:
        """The largest gap of the exact searches in flight; inf = unknown, None = there are no such searches."""
        return max(self._gaps.values(), default=None)

    @property
    def due(self) -> bool:
        """Whether it is time to show something new: for a search that has to compute its bound."""
        return time.monotonic() >= self._shown + SECONDS

    def expanded(self, nodes: int) -> None:
        """A search has expanded this number of nodes."""
        self.expansions += nodes
        if self.due:
            self._shown = time.monotonic()
            self._show(self)

    def bounded(self, sentence: int, bound: float, best: float) -> None:
        """The best that the search for a sentence can still find, and has found (-inf = nothing), as rank scores."""
        self._gaps[sentence] = math.inf if best == -math.inf else max(bound - best, 0.0)

    def ended(self, sentence: int) -> None:
        """The search for a sentence has ended."""
        self._gaps.pop(sentence, None)
