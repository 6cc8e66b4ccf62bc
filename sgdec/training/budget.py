"""How much goes into a batch: what a batch costs, and the room there is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Budget(Protocol):
    """Batches are filled as long as their cost is within the room."""

    @property
    def room(self) -> float:
        """The largest cost."""

    def cost(self, examples: int, longest: Sequence[int]) -> float:
        """Of so many examples; their longest target has ``longest[0]`` tokens, then come the longest sources.

        Never falls as examples or lengths grow.
        """


class Tokens(NamedTuple):
    """Tokens of the longer side, with padding and ``</s>``.

    >>> Tokens(1024).cost(10, (20, 25))
    260
    """

    room: float

    def cost(self, examples: int, longest: Sequence[int]) -> int:
        return examples * (max(longest) + 1)
