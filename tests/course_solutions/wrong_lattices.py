"""Solutions of assignment ``lattice`` with one mistake each, and the promises that it breaks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tests.course_solutions.my_lattice import Lattice, MyLattice

ADMISSIBLE = "admissible: best_remaining is never below what can still be added"
CONSISTENT = "consistent: total + best_remaining never rises from a prefix to the next"
EXACT = "exact: best_remaining is no higher than it must be"
END = "if only the end is left, best_remaining is the score of </s>"
DEAD = "if no path leads to an end, best_remaining is -inf"
IN_FLIGHT = "sentences in flight keep their own bounds"
LARGE = "a lattice of 3,000 states and 2^3000 paths is no problem"
OPTIMUM = "A* finds the true n-best, alone and beside another predictor"
FEW = "A* expands one prefix for each token of the best path, and no other"
WORST = "worst_remaining is the least that can still be added, exactly"
NEGATIVE = "A* finds the true n-best with a negative weight"
PURE = "abilities change nothing"
LARGE_COSTS = "costs can be large"

WRONG: list[tuple[type[MyLattice], set[str]]] = []


def breaks(*promises: str) -> Callable[[type[MyLattice]], type[MyLattice]]:
    """Marks a class with one mistake, and names all promises that it breaks."""

    def mark(cls: type[MyLattice]) -> type[MyLattice]:
        WRONG.append((cls, set(promises)))
        return cls

    return mark


def distances(lattice: Lattice, *, highest: float = math.inf, end: bool = True) -> list[float]:
    """The best way to the end, with scores cut at ``highest``; without the score of ``</s>`` unless ``end``."""
    found = [min(score, highest) if end or score == -math.inf else 0.0 for score in lattice.final]
    for state in reversed(range(len(found))):
        ways = [min(score, highest) + found[target] for score, target in lattice.arcs[state].values()]
        found[state] = max([found[state], *ways])
    return found


@breaks(ADMISSIBLE, CONSISTENT, EXACT, END, DEAD, OPTIMUM, FEW)
class IgnoresNegativeCosts(MyLattice):
    """0 is a bound of log-probabilities, but costs may be negative."""

    def best_remaining(self, states: Sequence[int]) -> list[float]:
        return [0.0] * len(states)


@breaks(ADMISSIBLE, CONSISTENT, END, OPTIMUM, FEW)
class TakesGainsForNothing(MyLattice):
    """The best way, if no arc gained anything."""

    def best_remaining(self, states: Sequence[int]) -> list[float]:
        found = distances(self._lattice, highest=0.0)
        return [found[state] for state in states]


@breaks(ADMISSIBLE, CONSISTENT, EXACT, DEAD, OPTIMUM, FEW)
class LooksOneArcAhead(MyLattice):
    """The best next score: an estimate, not a bound."""

    def best_remaining(self, states: Sequence[int]) -> list[float]:
        lattice = self._lattice
        return [
            max([lattice.final[state], *(score for score, _ in lattice.arcs[state].values())]) for state in states
        ]


@breaks(ADMISSIBLE, CONSISTENT, DEAD, OPTIMUM, FEW)
class TakesTheWorst(MyLattice):
    """A minimum, as with costs."""

    def best_remaining(self, states: Sequence[int]) -> list[float]:
        return self.worst_remaining(states)


@breaks(ADMISSIBLE, CONSISTENT, OPTIMUM, FEW)
class GreedyWay(MyLattice):
    """The way of the best next arc, always: some way to the end, not the best."""

    def best_remaining(self, states: Sequence[int]) -> list[float]:
        return [self._follow(state) for state in states]

    def _follow(self, state: int) -> float:
        total = 0.0
        while self._lattice.arcs[state]:
            score, state = max(self._lattice.arcs[state].values())
            total += score
        return total + self._lattice.final[state]


@breaks(END, OPTIMUM, FEW)
class ForgetsTheEnd(MyLattice):
    """Of the score of </s> nothing is counted."""

    def best_remaining(self, states: Sequence[int]) -> list[float]:
        found = distances(self._lattice, end=False)
        return [found[state] for state in states]


@breaks(DEAD)
class HopesInDeadEnds(MyLattice):
    """Where there is no way to the end it says 0, for -inf looks dangerous."""

    def best_remaining(self, states: Sequence[int]) -> list[float]:
        return [max(bound, -1e9) for bound in super().best_remaining(states)]


@breaks(EXACT, END, FEW)
class OneMoreThanNeeded(MyLattice):
    """To be on the safe side."""

    def best_remaining(self, states: Sequence[int]) -> list[float]:
        return [bound + 1.0 for bound in super().best_remaining(states)]


@breaks(EXACT, FEW)
class BestArcsOfAll(MyLattice):
    """As if the best arc of the lattice could be taken at every state."""

    def best_remaining(self, states: Sequence[int]) -> list[float]:
        lattice = self._lattice
        best = max([0.0, *(score for out in lattice.arcs for score, _ in out.values())])
        end = max(lattice.final)
        return [
            lattice.best[state] if lattice.best[state] == -math.inf else best * (len(lattice.arcs) - 1 - state) + end
            for state in states
        ]


@breaks(EXACT, END, DEAD, FEW)
class KnowsNothing(MyLattice):
    """Infinite is always a bound."""

    def best_remaining(self, states: Sequence[int]) -> list[float]:
        return [math.inf] * len(states)


@breaks(CONSISTENT, EXACT, END, FEW)
class SometimesLoose(MyLattice):
    """Admissible, but at odd states by 2 too high."""

    def best_remaining(self, states: Sequence[int]) -> list[float]:
        found = super().best_remaining(states)
        return [bound + 2.0 * (state % 2) for state, bound in zip(states, found, strict=True)]


@breaks(IN_FLIGHT)
class SharedCache(MyLattice):
    """A dictionary that is there since __init__: states of all sentences meet in it."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._known: dict[int, float] = {}

    def best_remaining(self, states: Sequence[int]) -> list[float]:
        found = super().best_remaining(states)
        return [self._known.setdefault(state, bound) for state, bound in zip(states, found, strict=True)]


@breaks(LARGE)
class Recursive(MyLattice):
    """Right, and too deep for a long lattice."""

    def best_remaining(self, states: Sequence[int]) -> list[float]:
        return [self._best(state) for state in states]

    def _best(self, state: int) -> float:
        ways = [score + self._best(target) for score, target in self._lattice.arcs[state].values()]
        return max([self._lattice.final[state], *ways])


@breaks(WORST, NEGATIVE)
class SameForBoth(MyLattice):
    """Under a negative weight the most becomes the least."""

    def worst_remaining(self, states: Sequence[int]) -> list[float]:
        return self.best_remaining(states)


@breaks(PURE, OPTIMUM, FEW)
class BoundsMove(MyLattice):
    """What has been asked about is forbidden as an end."""

    def best_remaining(self, states: Sequence[int]) -> list[float]:
        found = super().best_remaining(states)
        for state in states:
            self._lattice.final[state] -= 1.0
        return found


@breaks(LARGE_COSTS)
class KnowsSmallCosts(MyLattice):
    """A thousand stands for infinity."""

    def best_remaining(self, states: Sequence[int]) -> list[float]:
        return [bound if bound > -1e3 else -math.inf for bound in super().best_remaining(states)]
