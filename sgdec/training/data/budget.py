"""How much goes into a batch: what a batch costs, the room there is, and batches filled to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt


class Budget(Protocol):
    """Batches are filled as long as their cost is within the room."""

    @property
    def room(self) -> float:
        """The largest cost."""

    def cost(self, examples: int, longest: Sequence[int]) -> float:
        """The cost of this many examples; their longest target has ``longest[0]`` tokens, then come the longest
        sources.

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


def cut(
    lengths: npt.NDArray[np.int64], budget: int | Budget, generator: np.random.Generator | None
) -> list[list[int]]:
    """Examples with these lengths [examples, sides] in batches, as `Text.batches` says; shuffled by a generator."""
    budget = Tokens(budget) if isinstance(budget, int) else budget
    ties = np.arange(len(lengths)) if generator is None else generator.permutation(len(lengths))
    rows = lengths.tolist()
    batches: list[list[int]] = []
    longest: list[int] = []
    for n in np.lexsort((ties, *lengths.T[::-1])).tolist():  # by target, then source, then at random
        grown = list(map(max, longest, rows[n]))
        if not batches or budget.cost(len(batches[-1]) + 1, grown) > budget.room:
            batches.append([])
            grown = rows[n]
        batches[-1].append(n)
        longest = grown
    if generator is not None:
        generator.shuffle(batches)
    return batches
