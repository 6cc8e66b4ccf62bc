"""Solutions of assignment ``beam`` with one mistake each, and the promises that it breaks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sgdec import Hypothesis, Node, Result, SearchSpace
from tests.course_solutions.my_beam import MyBeam

GREEDY = "with size 1 it is greedy search (Algorithm 1)"
NBEST = "the n best hypotheses are kept, whichever parents they have (line 11)"
TIES = "among equal totals the first in the beam is kept, then the lower token (line 11)"
FINISHED = "finished hypotheses keep their places in the beam, and are remembered when pushed out (lines 11 to 15)"
STOP = "it stops as soon as the best of the beam ends with </s> (line 16)"
NORMALISED = "with length normalisation it continues until all of the beam is finished"
BEST_FIRST = "hypotheses come best first"
AS_ASKED = "a list is no longer than asked for"
COMPLETE = "hypotheses are complete and within the length limit"
SCORES = "scoring the tokens again gives the same numbers"
EMPTY = "an empty space gives an empty list"
SIDE_BY_SIDE = "one decoder searches many spaces side by side"
LARGE = "beams and vocabularies can be large"
ALL = (GREEDY, NBEST, TIES, FINISHED, STOP, NORMALISED, BEST_FIRST, AS_ASKED, COMPLETE, SCORES, EMPTY, SIDE_BY_SIDE)

WRONG: list[tuple[type[MyBeam], set[str]]] = []


def breaks(*promises: str) -> Callable[[type[MyBeam]], type[MyBeam]]:
    """Marks a class with one mistake, and names all promises that it breaks."""

    def mark(cls: type[MyBeam]) -> type[MyBeam]:
        WRONG.append((cls, set(promises)))
        return cls

    return mark


@breaks(FINISHED, NORMALISED)
class DropsFinished(MyBeam):
    """A hypothesis that ends and is not the best is gone."""

    def _candidates(self, space: SearchSpace, beam: list[Node]) -> list[Node]:
        return super()._candidates(space, [node for node in beam if not node.finished])


@breaks(NORMALISED)
class StopsTooEarly(MyBeam):
    """Line 16 as it is, under length normalisation, too: a longer hypothesis may still rank higher."""

    def _stops(self, beam: list[Node]) -> bool:
        return not beam or beam[0].finished


@breaks(FINISHED, STOP)
class StopsTooLate(MyBeam):
    """Waits for all of the beam."""

    def _stops(self, beam: list[Node]) -> bool:
        return all(node.finished for node in beam)


@breaks(FINISHED, NORMALISED)
class StopsAtTheFirstEnd(MyBeam):
    """Whoever ends first has won."""

    def _stops(self, beam: list[Node]) -> bool:
        return not beam or any(node.finished for node in beam)


@breaks(TIES)
class TiesTheOtherWay(MyBeam):
    def _candidates(self, space: SearchSpace, beam: list[Node]) -> list[Node]:
        return super()._candidates(space, beam)[::-1]


@breaks(TIES)
class TiesByToken(MyBeam):
    """The lower token first, from whichever hypothesis."""

    def _candidates(self, space: SearchSpace, beam: list[Node]) -> list[Node]:
        return sorted(super()._candidates(space, beam), key=lambda node: node.last)


@breaks(NBEST, TIES, FINISHED, NORMALISED)
class BestChildOnly(MyBeam):
    """n greedy searches in one."""

    def _candidates(self, space: SearchSpace, beam: list[Node]) -> list[Node]:
        found = []
        for node in beam:
            found += [node] if node.finished else space.expand([node], limit=1)[0]
        return found


class Written(MyBeam):
    """The right search once more, on one page, for mistakes in the middle of it."""

    def decode(self, space: SearchSpace) -> Result:
        beam = [space.root]
        finished: list[Node] = []
        while not self._stops(beam):
            beam = self._next(space, self._candidates(space, beam))
            finished += [node for node in beam if node.finished and node not in finished]
        return self._result(space, finished)

    def _next(self, space: SearchSpace, candidates: list[Node]) -> list[Node]:
        return sorted(candidates, key=lambda node: -node.total)[: self.size]

    def _result(self, space: SearchSpace, finished: list[Node]) -> Result:
        finished.sort(key=space.rank_score, reverse=True)
        return Result([space.finish(node) for node in finished[: space.nbest]])


@breaks(NBEST, TIES, FINISHED, NORMALISED)
class OneTooMany(Written):
    def _next(self, space: SearchSpace, candidates: list[Node]) -> list[Node]:
        return sorted(candidates, key=lambda node: -node.total)[: self.size + 1]


@breaks(NBEST, TIES, FINISHED, NORMALISED)
class NOfEachParent(Written):
    """Cuts each hypothesis' continuations at n, but not all of them together."""

    def _next(self, space: SearchSpace, candidates: list[Node]) -> list[Node]:
        return sorted(candidates, key=lambda node: -node.total)


@breaks(NORMALISED)
class NormalisesPartialHypotheses(Written):
    """Compares open hypotheses by rank score, too."""

    def _next(self, space: SearchSpace, candidates: list[Node]) -> list[Node]:
        return sorted(candidates, key=space.rank_score, reverse=True)[: self.size]


@breaks(FINISHED, NORMALISED, BEST_FIRST)
class DoesNotSort(Written):
    """The list in the order in which it was found, not by rank score."""

    def _result(self, space: SearchSpace, finished: list[Node]) -> Result:
        return Result([space.finish(node) for node in finished[: space.nbest]])


@breaks(NBEST, TIES, FINISHED, NORMALISED, AS_ASKED)
class GivesAll(Written):
    def _result(self, space: SearchSpace, finished: list[Node]) -> Result:
        finished.sort(key=space.rank_score, reverse=True)
        return Result([space.finish(node) for node in finished])


@breaks(FINISHED, NORMALISED)
class ForgetsWhatLostItsPlace(Written):
    """Algorithm 2 to the letter: only the last beam counts."""

    def decode(self, space: SearchSpace) -> Result:
        beam = [space.root]
        while not self._stops(beam):
            beam = self._next(space, self._candidates(space, beam))
        return self._result(space, [node for node in beam if node.finished])


@breaks(SCORES)
class RoundsScores(Written):
    def _result(self, space: SearchSpace, finished: list[Node]) -> Result:
        found = super()._result(space, finished).hypotheses
        return Result([replace(h, score=round(h.score, 1)) for h in found])


@breaks(COMPLETE, SCORES, EMPTY)
class NeverGivesUp(Written):
    """Where there is no hypothesis it makes one up."""

    def _result(self, space: SearchSpace, finished: list[Node]) -> Result:
        nothing = Hypothesis((), -1e9, -1e9, ((-1e9,),), ((1.0,),))
        return Result(super()._result(space, finished).hypotheses or [nothing])


@breaks(SIDE_BY_SIDE)
class SearchesInItself(Written):
    """Two searches that take turns write to one list."""

    def _candidates(self, space: SearchSpace, beam: list[Node]) -> list[Node]:
        self.found: list[Node] = []
        for node in beam:
            children = [node] if node.finished else space.expand([node], limit=self.size)[0]
            self.found += children
        return self.found


@breaks(GREEDY, NBEST, TIES, FINISHED, NORMALISED)
class HasALimitOfItsOwn(Written):
    """Gives up after as many tokens as the source has, and one."""

    def decode(self, space: SearchSpace) -> Result:
        beam = [space.root]
        for _ in range(len(space.source.tokens) + 1):
            if self._stops(beam):
                break
            beam = self._next(space, self._candidates(space, beam))
        return self._result(space, [node for node in beam if node.finished])


@breaks(COMPLETE, SCORES, EMPTY)
class ForgetsTheLengthLimit(Written):
    """Searches a longer space than it was given."""

    def decode(self, space: SearchSpace) -> Result:
        limit = space.source.max_length
        longer = replace(space.source, max_length=None if limit is None else limit + 1)
        (root,) = space.constellation.roots([longer])
        inner = SearchSpace(space.constellation, root, ranking=self.ranking, nbest=space.nbest)
        result = super().decode(inner)
        space.expansions += inner.expansions
        return result


@breaks(*ALL)
class NeverEnds(MyBeam):
    """Begins again and again."""

    def decode(self, space: SearchSpace) -> Result:
        while True:
            space.expand([space.root], limit=1)


@breaks(*ALL)
class FindsNothing(MyBeam):
    """No hypothesis is wrong."""

    def decode(self, space: SearchSpace) -> Result:
        return Result([])


@breaks(LARGE)
class LooksAtFive(MyBeam):
    """No node of the tests has more children."""

    def _candidates(self, space: SearchSpace, beam: list[Node]) -> list[Node]:
        found = []
        for node in beam:
            found += [node] if node.finished else space.expand([node], limit=5)[0]
        return found
