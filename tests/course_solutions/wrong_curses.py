"""Solutions of assignment ``curse`` with one mistake each, and the promises that it breaks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from sgdec import Node, Result, SearchSpace
from tests.course_solutions.my_curse import MySearch

ASIDE = "finished hypotheses are set aside, and the n best open ones are kept"
FIRST = "stop first: it ends after the position at which a hypothesis has finished"
FULL = "stop full: it ends once n hypotheses have finished"
OPTIMAL = "stop optimal: it ends once no open hypothesis can win, and no sooner"
ALPHA = "alpha: finished hypotheses are compared under length normalisation"
REWARD = "reward: each token of the output adds it to the score of a finished hypothesis"
SHORTEST = "shortest: no output is shorter than this share of the source"
EMPTY = "an empty space gives an empty list"
EXACT = "exact: it finds the best of all paths"
LONG_ENOUGH = "exact: it finds the best of all paths that are long enough"
MODE = "exact: it finds the mode of the translation model"
COST = "exact: it expands at most twice as many prefixes as an exact search must"
FIGURES = "the figures of the table are those of the reference"
DEFAULTS = "the default options break the curse: F1 of 0.9, and more probable outputs than greedy search"
TOGETHER = "all options work together, also in wide beams"

WRONG: list[tuple[type[MySearch], set[str]]] = []


def breaks(*promises: str) -> Callable[[type[MySearch]], type[MySearch]]:
    """Marks a class with one mistake, and names all promises that it breaks."""

    def mark(cls: type[MySearch]) -> type[MySearch]:
        WRONG.append((cls, set(promises)))
        return cls

    return mark


@breaks(ASIDE, OPTIMAL, FULL, ALPHA, REWARD, SHORTEST, FIGURES, DEFAULTS)
class AnyEndWillDo(MySearch):
    """Every rule is the first one."""

    def _stops(self, space: SearchSpace, beam: list[Node], finished: list[Node]) -> bool:
        return len(finished) > 0


@breaks(OPTIMAL, REWARD, FIGURES)
class ForgetsTheLimit(MySearch):
    """Ranks open hypotheses as if they ended now: longer ones can still win."""

    def _stops(self, space: SearchSpace, beam: list[Node], finished: list[Node]) -> bool:
        if self.stop != "optimal" or len(finished) < space.nbest:
            return super()._stops(space, beam, finished)
        worst = sorted((self._score(space, node) for node in finished), reverse=True)[space.nbest - 1]
        return all(self.ranking.score(node.total, node.length + 1) <= worst for node in beam)


@breaks(FULL)
class OneIsEnough(MySearch):
    """Does not wait for n."""

    def _stops(self, space: SearchSpace, beam: list[Node], finished: list[Node]) -> bool:
        return super()._stops(space, beam, finished) or (self.stop == "full" and len(finished) > 0)


@breaks(FIRST, FIGURES)
class FirstIsLast(MySearch):
    """The first rule waits for n."""

    def _stops(self, space: SearchSpace, beam: list[Node], finished: list[Node]) -> bool:
        return False if self.stop == "first" and len(finished) < self.size else super()._stops(space, beam, finished)


@breaks(ALPHA, OPTIMAL, FULL, FIGURES)
class RanksByTotals(MySearch):
    def _score(self, space: SearchSpace, node: Node) -> float:
        return node.total + self.reward * (node.length - 1)


@breaks(REWARD, FIGURES)
class NoReward(MySearch):
    def _score(self, space: SearchSpace, node: Node) -> float:
        return space.rank_score(node)


@breaks(SHORTEST, LONG_ENOUGH, FIGURES)
class NoLimit(MySearch):
    def _long_enough(self, space: SearchSpace, node: Node) -> bool:
        return True


@breaks(EMPTY)
class NeverEmpty(MySearch):
    """An empty space is an error."""

    def decode(self, space: SearchSpace) -> Result:
        found = super().decode(space)
        found.hypotheses[0]
        return found


@breaks(EXACT, LONG_ENOUGH)
class CutsByTotals(MySearch):
    """Totals can rise."""

    def _exact(self, space: SearchSpace) -> list[Node]:
        space.bound = lambda nodes: [0.0] * len(nodes)  # type: ignore[method-assign]
        try:
            return super()._exact(space)
        finally:
            del space.bound


@breaks(MODE, EXACT, LONG_ENOUGH, COST)
class TakesTheFirst(MySearch):
    """Greedy search, under the name of exact search."""

    def _exact(self, space: SearchSpace) -> list[Node]:
        found = self._first(space)
        return [found] if found else []


@breaks(COST)
class EndsInOrder(MySearch):
    """Goes down the best branch first, and sees on the way back that an output could have ended long ago."""

    def _exact(self, space: SearchSpace) -> list[Node]:
        best: Node | None = None
        stack = [space.root]
        while stack:
            node = stack.pop()
            lowest = best.total if best else -math.inf
            if not node.finished and node.total + space.bound([node])[0] > lowest:
                stack += list(space.expand([node], above=lowest if space.never_rises else -math.inf)[0])[::-1]
            elif node.finished and node.total > lowest and self._long_enough(space, node):
                best = node
        return [best] if best else []


@breaks(DEFAULTS)
class CursedByDefault(MySearch):
    """The defaults are those of the starter, with a wide beam."""

    def __init__(self, search: Any = "beam", size: int = 64, alpha: float = 0.0, **options: Any) -> None:
        super().__init__(search=search, size=size, alpha=alpha, **{"shortest": 0.0, **options})


@breaks(ASIDE, FIRST, FULL, OPTIMAL, ALPHA, REWARD, SHORTEST)
class OneTooFew(MySearch):
    """A finished candidate takes the place of an open one."""

    def _beam(self, space: SearchSpace) -> list[Node]:
        inner = space.best_children
        space.best_children = lambda beam, size: inner(beam, size - 1)  # type: ignore[method-assign,misc,assignment]
        try:
            return super()._beam(space)
        finally:
            del space.best_children


@breaks(TOGETHER)
class ForgetsTheLimitForRewards(MySearch):
    """Each option works alone."""

    def _long_enough(self, space: SearchSpace, node: Node) -> bool:
        return self.reward > 0 or super()._long_enough(space, node)
