"""Two semirings over natural-log scores, and distances in weighted graphs (Mohri 2002, "Semiring frameworks and
algorithms for shortest-distance problems").

The score of a path is the sum of the scores of its arcs. The combined score of several paths is the best of their
scores (`TROPICAL`) or the log of the sum of their probabilities (`LOG`). Distances combine all paths; a cycle leads
to infinitely many paths. Each strongly connected component is a system of linear equations in the semiring,

    x_i = b_i (+) sum over arcs i -> j of (s_ij (x) x_j),

and components are solved one after the other. Cost: linear in the arcs if there are no cycles; for a cyclic component
of n states, n times its arcs (tropical: Bellman-Ford), or n^3 (log: Gaussian elimination).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from functools import cache
from typing import TypeAlias, TypeVar

import numpy as np

from sgdec.arrays import Floats, Ints
from sgdec.protocol import FORBIDDEN

ROUNDING = 1e-6
"""A cycle that gains less than this is treated as gaining nothing, because files store costs in single precision."""

Q = TypeVar("Q", bound=Hashable)
"""A state of a graph."""
Ways: TypeAlias = Sequence[tuple[float, Q]]
"""The arcs of a state: pairs of score and target."""
Arcs: TypeAlias = Collection[tuple[int, int, float]]
"""Within a component: origin, target, score."""


class Semiring(ABC):
    """The operation that combines the scores of several paths."""

    @abstractmethod
    def plus(self, scores: Collection[float]) -> float:
        """The combined score of these paths; -inf if there are none."""

    def solve(self, constants: Sequence[float], arcs: Arcs) -> list[float]:
        """The x_i of one strongly connected component (b_i = ``constants``); +inf where the sum diverges."""
        origins, targets, scores = zip(*arcs, strict=True)
        highest = max(constants)
        if math.isinf(highest):  # all states reach each other
            return [highest] * len(constants)
        if math.inf in scores:
            return [math.inf] * len(constants)
        system = np.array(constants), np.array(origins), np.array(targets), np.array(scores)
        found = self._solve(*system)
        return [math.inf] * len(constants) if found is None else found.tolist()

    @abstractmethod
    def _solve(self, constants: Floats, origins: Ints, targets: Ints, scores: Floats) -> Floats | None:
        """Solves the equations if some constant is finite; None if the sum diverges."""


class Tropical(Semiring):
    """The best path."""

    def plus(self, scores: Collection[float]) -> float:
        return max(scores, default=FORBIDDEN)

    def _solve(self, constants: Floats, origins: Ints, targets: Ints, scores: Floats) -> Floats | None:
        """Bellman-Ford: n sweeps find every path that visits no state twice; later gains come from a cycle."""
        found = constants
        for _ in range(len(constants)):
            longer = found.copy()
            np.maximum.at(longer, origins, scores + found[targets])
            if np.array_equal(longer, found):
                return found
            found = longer
        return found if (scores + found[targets] <= found[origins] + ROUNDING).all() else None


class Log(Semiring):
    """The sum of the probabilities of all paths."""

    def plus(self, scores: Collection[float]) -> float:
        if len(scores) == 1:
            return next(iter(scores))
        highest = max(scores, default=FORBIDDEN)
        if math.isinf(highest):
            return highest
        return highest + math.log(math.fsum(math.exp(score - highest) for score in scores))

    def _solve(self, constants: Floats, origins: Ints, targets: Ints, scores: Floats) -> Floats | None:
        """x = A x + b in probabilities, each relative to the best path: then 0 <= A, b <= 1 <= x for scores of any
        magnitude.

        The sum over all paths, (I + A + A^2 + ...) b, converges just if (I - A) y = 1 has a solution y > 0.
        """
        best = TROPICAL._solve(constants, origins, targets, scores)
        if best is None:  # one cycle alone diverges
            return None
        matrix = np.eye(len(best))
        np.subtract.at(matrix, (origins, targets), np.exp(scores + best[targets] - best[origins]))
        right = np.stack([np.exp(constants - best), np.ones(len(best))], axis=1)
        try:
            found, growth = np.linalg.solve(matrix, right).T
        except np.linalg.LinAlgError:
            return None
        if not ((growth > 0) & (growth < 1 / ROUNDING)).all():
            return None
        gained: Floats = np.log(found)
        return best + gained


TROPICAL, LOG = Tropical(), Log()


def times(*scores: float) -> float:
    """The score of two arcs in sequence; a forbidden arc stays forbidden with any other score.

    >>> times(-1.0, -0.5), times(math.inf, FORBIDDEN)
    (-1.5, -inf)
    """
    return FORBIDDEN if FORBIDDEN in scores else sum(scores)


def distances_to_end(
    semiring: Semiring, starts: Iterable[Q], ways: Callable[[Q], Ways[Q]], end: Callable[[Q], float]
) -> dict[Q, float]:
    """The combined score of all paths from each reachable state to an end; +inf if it diverges.

    ``end``: the score of ending in a state; -inf = paths cannot end there.
    """
    found: dict[Q, float] = {}
    kept = cache(ways)
    for component in components(starts, kept):
        leaving = [
            semiring.plus([end(state), *[times(score, found[t]) for score, t in kept(state) if t in found]])
            for state in component
        ]
        place = {state: i for i, state in enumerate(component)}
        within = [(i, place[t], score) for q, i in place.items() for score, t in kept(q) if t in place]
        found.update(zip(component, semiring.solve(leaving, within) if within else leaving, strict=True))
    return found


def distances_from(semiring: Semiring, start: Q, ways: Callable[[Q], Ways[Q]]) -> dict[Q, float]:
    """The combined score of all paths from ``start`` to each reachable state."""
    entering: dict[Q, list[float]] = {start: [0.0]}
    found: dict[Q, float] = {}
    for component in reversed(components([start], ways)):
        place = {state: i for i, state in enumerate(component)}
        entered = [semiring.plus(entering.get(state, ())) for state in component]
        within = [(place[t], i, score) for q, i in place.items() for score, t in ways(q) if t in place]
        found.update(zip(component, semiring.solve(entered, within) if within else entered, strict=True))
        for state in component:
            for score, target in ways(state):
                if target not in place:
                    entering.setdefault(target, []).append(found[state] + score)
    return found


def components(starts: Iterable[Q], ways: Callable[[Q], Ways[Q]]) -> list[list[Q]]:
    """Strongly connected components, each after those that its arcs lead to (Tarjan 1972, without recursion).

    >>> graph = {0: [(0.0, 1)], 1: [(0.0, 2)], 2: [(0.0, 1), (0.0, 3)], 3: []}
    >>> components([0], graph.__getitem__)
    [[3], [1, 2], [0]]
    """
    order: dict[Q, int] = {}
    lowest: dict[Q, int] = {}
    """The earliest state that each state is known to reach; removed once its component is complete."""
    waiting: list[Q] = []
    path: list[tuple[Q, Iterator[tuple[float, Q]]]] = []
    found: list[list[Q]] = []

    def enter(state: Q) -> None:
        order[state] = lowest[state] = len(order)
        waiting.append(state)
        path.append((state, iter(ways(state))))

    for start in starts:
        if start not in order:
            enter(start)
        while path:
            state, left = path[-1]
            for _, target in left:
                if target not in order:
                    enter(target)
                    break
                if target in lowest:
                    lowest[state] = min(lowest[state], order[target])
            else:
                path.pop()
                if path:
                    above = path[-1][0]
                    lowest[above] = min(lowest[above], lowest[state])
                if lowest[state] == order[state]:
                    found.append(_down_to(state, waiting))
                    for member in found[-1]:
                        del lowest[member]
    return found


def _down_to(state: Q, stack: list[Q]) -> list[Q]:
    """Remove this state, and all above it, from the stack."""
    taken = [stack.pop()]
    while taken[-1] != state:
        taken.append(stack.pop())
    return taken[::-1]
