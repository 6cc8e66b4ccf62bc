"""Bucket search: small beam search passes over prefixes kept by length (Stahlberg et al. 2017, section 4).

A bucket holds the open prefixes of one length. Each step selects a bucket, expands the ``size`` best in it, and puts
their children into the next bucket. So the first hypothesis is found early, and every further pass improves on it,
until no open prefix can beat the n-best or the budget is spent. ``selector`` chooses the next bucket:

- ``iter``: the next longer bucket, and the shortest after the longest: repeated passes of beam search. ``iter-3``
  ends after three passes;
- ``score``: the bucket with the best score, the longest of equal ones;
- ``score-end``: the bucket with the best score, and then all longer ones, up to the end;
- ``maxscore``: as ``iter``, but only buckets whose score is above a threshold, which starts at 0 and falls by 5 until
  there is a bucket above it.

The score of a bucket is a property of its best prefix:

- ``difference``: its total, minus the total of the best hypothesis found at the same length;
- ``heap``: its bound, minus the rank score of the best hypothesis: the largest possible improvement;
- ``absolute``: its total; ``constant``: 0.

Until there is a hypothesis to compare with, ``difference`` and ``heap`` give all buckets the same score.

Guarantee: without a budget (``iter-N`` is one) the true n-best of the space, best first, under any ranking (alpha,
beta), with a proof. As ``max_expansions`` grows, the best score never falls. With a budget, the best hypothesis
found, and by how much the optimum can be better. The search is refused under the conditions of `dfs`.

Cost: at most ``size`` expansions per step, in one batch. Memory: all expanded prefixes with children left.

Departures: buckets are ordered and branches cut by bounds, which equal the totals if these never rise.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import accumulate, count
from typing import Annotated, Literal, TypeAlias, final

from pydantic import Field

import sgdec
from sgdec import Decoder, Node
from sgdec.protocol import FORBIDDEN
from sgdec_decoders._branch_and_bound import Bounded, Children, Tree
from sgdec_decoders._exact import ExactDecoder


@final
@dataclass(eq=False)
class BucketDecoder(ExactDecoder):
    """Prefixes in buckets by length, expanded a few at a time."""

    size: Annotated[int, Field(ge=1, description="number of prefixes expanded at a time")] = 4
    selector: Annotated[
        str,
        Field(
            pattern=r"^(iter(-[1-9][0-9]*)?|maxscore|score|score-end)$",
            description="order of buckets: iter, iter-N, maxscore, score or score-end; see 'sgdec plugins bucket'",
        ),
    ] = "maxscore"
    score_strategy: Annotated[
        Literal["difference", "heap", "absolute", "constant"],
        Field(description="the score of a bucket; see 'sgdec plugins bucket'"),
    ] = "difference"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._select, self._passes = parse_selector(self.selector)
        self._score = SCORES[self.score_strategy]

    def search(self, tree: Tree) -> float:
        buckets = Buckets(tree, self._score)
        buckets.add(0, tree.root())
        selected: float = math.inf
        passes = 0
        while lengths := buckets.lengths():
            longer = [length for length in lengths if length > selected]
            if not longer:
                if passes == self._passes:
                    break
                passes += 1
            selected = length = self._select(buckets, lengths, longer)
            left = tree.budget.left()
            best = buckets.take(length, min(self.size, max(left, 1)))
            if best:  # not earlier: skipped prefixes cost nothing
                still_open = tree.ends(best, buckets.bound)
                if still_open is not None:
                    return still_open
            for children in tree.expand(best):
                buckets.add(length + 1, children)
        return buckets.bound()


Select: TypeAlias = "Callable[[Buckets, list[int], list[int]], int]"
"""Returns the length of the next bucket, given all lengths, ascending, and those above the last one."""


def _iter(buckets: Buckets, lengths: list[int], longer: list[int]) -> int:
    return (longer or lengths)[0]


def _score(buckets: Buckets, lengths: list[int], longer: list[int]) -> int:
    return max(lengths, key=lambda length: (buckets.score(length), length))


def _score_end(buckets: Buckets, lengths: list[int], longer: list[int]) -> int:
    return longer[0] if longer else _score(buckets, lengths, longer)


def _maxscore(buckets: Buckets, lengths: list[int], longer: list[int]) -> int:
    scores = {length: buckets.score(length) for length in lengths}
    best = max(scores.values())
    threshold = _threshold(best)
    return next(length for length in [*longer, *lengths] if scores[length] > threshold or scores[length] == best)


STEP = 5.0
"""The threshold of ``maxscore`` falls by this much."""


def _threshold(best: float) -> float:
    """The highest of 0, -5, -10, ... that is below ``best``, if floats of that size can differ by 5."""
    if best > 0.0:
        return 0.0
    return -STEP * (math.floor(-best / STEP) + 1) if best > -math.inf else best


SELECTORS: dict[str, Select] = {"iter": _iter, "score": _score, "score-end": _score_end, "maxscore": _maxscore}


def parse_selector(name: str) -> tuple[Select, float]:
    """The function that chooses the next bucket, and the number of passes after which the search ends.

    >>> parse_selector("iter-3") == (_iter, 3), parse_selector("iter") == (_iter, math.inf)
    (True, True)
    """
    if name in SELECTORS:
        return SELECTORS[name], math.inf
    return _iter, int(name.removeprefix("iter-"))


Score: TypeAlias = "Callable[[Buckets, int, Bounded], float]"
"""Returns the score of the bucket of this length, given its best prefix; higher is better."""


def _difference(buckets: Buckets, length: int, first: Bounded) -> float:
    before = buckets.total_of_best(length)
    return math.inf if before is None else first[1].total - before


def _heap(buckets: Buckets, length: int, first: Bounded) -> float:
    return first[0] - buckets.best.highest()


SCORES: dict[str, Score] = {
    "difference": _difference,
    "heap": _heap,
    "absolute": lambda buckets, length, first: first[1].total,
    "constant": lambda buckets, length, first: 0.0,
}

Entry: TypeAlias = tuple[float, int, Children]
"""Minus the bound of the first of these children; order of arrival."""


class Buckets:
    """The open prefixes by length, best bound first."""

    def __init__(self, tree: Tree, score: Score) -> None:
        self.best = tree.best
        self._recombination = tree.recombination
        self._score = score
        self._heaps: defaultdict[int, list[Entry]] = defaultdict(list)
        self._arrivals = count()
        self._hypothesis: Node | None = None
        self._totals: list[float] = []
        """The totals of the prefixes of the best hypothesis so far, by length from 0."""

    def add(self, length: int, children: Children) -> None:
        """Adds siblings unless none of them can enter the n-best."""
        first = children.first()
        if first is not None:
            heappush(self._heaps[length], (-first[0], next(self._arrivals), children))

    def lengths(self) -> list[int]:
        """The lengths of the buckets with a prefix that can enter the n-best, the shortest first."""
        return sorted(length for length in list(self._heaps) if self.first(length) is not None)

    def score(self, length: int) -> float:
        """The score of a bucket that is not empty."""
        first = self.first(length)
        assert first is not None
        return self._score(self, length, first)

    def first(self, length: int) -> Bounded | None:
        """The best prefix of a bucket."""
        heap = self._heaps[length]
        while heap:
            first = heap[0][-1].first()
            if first is not None:
                return first
            heappop(heap)
        del self._heaps[length]
        return None

    def take(self, length: int, most: float) -> list[Bounded]:
        """Removes and returns the best prefixes of a bucket that must be expanded."""
        taken: list[Bounded] = []
        while len(taken) < most and (first := self.first(length)) is not None:
            _, _, children = heappop(self._heaps[length])
            children.take()
            self.add(length, children)
            if self._recombination.opens(first[1]):
                taken.append(first)
        return taken

    def bound(self) -> float:
        """The best bound of all open prefixes; -inf = there are none."""
        bounds = (children.bound for heap in self._heaps.values() for _, _, children in heap)
        return max(bounds, default=FORBIDDEN)

    def total_of_best(self, length: int) -> float | None:
        """The total of the first ``length`` tokens of the best hypothesis so far, or of all its tokens if it is
        shorter."""
        if not self.best.nodes:
            return None
        if self._hypothesis is not self.best.nodes[0]:
            self._hypothesis = self.best.nodes[0]
            scores = (
                sum(weight * score for weight, score in zip(step.weights, step.scores, strict=True) if weight)
                for step in self._hypothesis.steps()
            )
            self._totals = list(accumulate(scores, initial=0.0))
        return self._totals[min(length, len(self._totals) - 1)]


@sgdec.hookimpl
def sgdec_decoders() -> dict[str, type[Decoder]]:
    return {"bucket": BucketDecoder}
