"""The size of a batch: its cost, the largest cost allowed, and cutting examples into batches within it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from sgdec.arrays import Ints


class BatchBudget(Protocol):
    """A limit on the cost of a batch: examples are added as long as the cost is at most ``room``."""

    @property
    def room(self) -> float:
        """The largest cost that a batch may have."""

    def cost(self, examples: int, longest: Sequence[int]) -> float:
        """The cost of a batch with this many examples.

        ``longest``: the tokens of the longest target, then those of the longest sources. The cost never decreases as
        the number of examples or the lengths grow.
        """


class TokenCounts(NamedTuple):
    """A budget in tokens of the longest side, with padding and ``</s>``.

    >>> TokenCounts(1024).cost(10, (20, 25))
    260
    """

    room: float

    def cost(self, examples: int, longest: Sequence[int]) -> int:
        return examples * (max(longest) + 1)


@dataclass(frozen=True)  # a tuple would equal the `TokenCounts` of the same number
class ExampleCounts:
    """A budget in examples of any length.

    >>> ExampleCounts(128).cost(10, (20, 25))
    10
    """

    room: float

    def cost(self, examples: int, longest: Sequence[int]) -> int:
        return examples


def cut(lengths: Ints, budget: int | BatchBudget, generator: np.random.Generator | None) -> list[list[int]]:
    """Cut examples with these lengths [examples, sides] into batches, as `Text.batches` describes.

    With a generator, both the examples of equal lengths and the batches are shuffled.
    """
    budget = TokenCounts(budget) if isinstance(budget, int) else budget
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
