"""Solutions of assignment ``bag`` with one mistake each, and the promises that it breaks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from sgdec import BOS, EOS, Scores, Source
from sgdec.protocol import SparseRow
from tests.course_solutions.my_bag import Bag, MyBag

FORMULA = "scores are those of formula (1)"
ONLY = "only what is left in the bag can follow"
END = "</s> follows an empty bag, with score 0, and no other"
SUBSETS = "with subsets the scores are those of formula (2)"
OFTEN = "predict next may be called never once or often"
RESTORED = "restoring a state restores its scores"
VALUE = "a state is a value that later calls leave alone"
AFRESH = "initialize starts a sentence afresh"
IN_FLIGHT = "sentences in flight do not disturb each other"
FUTURES = "equal state keys have equal futures"
SHARED_KEY = "prefixes that leave the same bag share a state key"
BEAM = "beam search with another predictor finds the best order"
ASTAR = "A* accepts it: no score is above 0, and it says so"
LARGE = "a bag can be large, and its tokens can be any numbers"
STATES = (OFTEN, RESTORED, VALUE, AFRESH, IN_FLIGHT, FUTURES, SHARED_KEY)
"""Not kept by a predictor whose scores do not depend on the prefix or the sentence."""

WRONG: list[tuple[type[MyBag], set[str]]] = []


def breaks(*promises: str) -> Callable[[type[MyBag]], type[MyBag]]:
    """Marks a class with one mistake, and names all promises that it breaks."""

    def mark(cls: type[MyBag]) -> type[MyBag]:
        WRONG.append((cls, set(promises)))
        return cls

    return mark


def row_of(scores: Scores) -> SparseRow:
    return scores.rows[0]


@breaks(RESTORED, VALUE, BEAM, ASTAR)
class AliasedState(MyBag):
    """get_state gives away the counter that consume goes on changing."""

    def initialize(self, source: Source) -> None:
        self._counter = Counter(source.tokens)

    def predict_next(self, candidates: Sequence[int] | None = None) -> Scores:
        self._bag = tuple(sorted((+self._counter).items()))
        return super().predict_next()

    def consume(self, token: int) -> None:
        self._counter[token] -= 1

    def get_state(self) -> Any:
        return self._counter

    def set_state(self, state: Any) -> None:
        self._counter = state

    def state_key(self, states: Sequence[Any]) -> list[Hashable]:
        return [tuple(sorted((+state).items())) for state in states]


@breaks(IN_FLIGHT)
class FillsInPlace(MyBag):
    """initialize changes a list that is there since __init__: all sentences have the last one's tokens."""

    def __init__(self, subsets: bool = False) -> None:
        super().__init__(subsets)
        self._tokens: list[int] = []

    def initialize(self, source: Source) -> None:
        self._tokens.clear()
        self._tokens.extend(source.tokens)
        self._taken: tuple[int, ...] = ()

    def predict_next(self, candidates: Sequence[int] | None = None) -> Scores:
        self._bag = tuple(sorted((Counter(self._tokens) - Counter(self._taken)).items()))
        return super().predict_next()

    def consume(self, token: int) -> None:
        self._taken = tuple(sorted((*self._taken, token)))

    def get_state(self) -> Any:
        return self._taken

    def set_state(self, state: Any) -> None:
        self._taken = state


@breaks(OFTEN)
class ConsumesEarly(MyBag):
    """What can only be one token is taken out before anybody says so."""

    def predict_next(self, candidates: Sequence[int] | None = None) -> Scores:
        scores = super().predict_next()
        if sum(count for _, count in self._bag) == 1:
            self._bag = ()
        return scores


@breaks(END, ONLY, SUBSETS, BEAM, ASTAR)
class EndsWithTheStart(MyBag):
    """Takes 1, which is <s>, for </s>."""

    def predict_next(self, candidates: Sequence[int] | None = None) -> Scores:
        row = row_of(super().predict_next())
        return Scores.sparse([BOS if token == EOS else token for token in row.tokens], row.scores)


@breaks(FORMULA, SUBSETS, BEAM, ASTAR)
class ForgetsHowMany(MyBag):
    """A set, where copies count."""

    def predict_next(self, candidates: Sequence[int] | None = None) -> Scores:
        row = row_of(super().predict_next())
        return Scores.sparse(row.tokens, [-math.log(len(row.tokens))] * len(row.tokens))


@breaks(FORMULA, END, SUBSETS, BEAM, ASTAR)
class ForgetsTheLog(MyBag):
    def predict_next(self, candidates: Sequence[int] | None = None) -> Scores:
        row = row_of(super().predict_next())
        return Scores.sparse(row.tokens, [math.exp(score) for score in row.scores])


@breaks(AFRESH)
class KeepsWhatWasLeft(MyBag):
    """What the sentence before left in the bag is still there."""

    def initialize(self, source: Source) -> None:
        self._bag = tuple(sorted((Counter(dict(self._bag)) + Counter(source.tokens)).items()))


@breaks(END, BEAM, ASTAR)
class EndsAnyTime(MyBag):
    """</s> is allowed while there is something left."""

    def predict_next(self, candidates: Sequence[int] | None = None) -> Scores:
        row = row_of(super().predict_next())
        if EOS in row.tokens:
            return Scores.sparse(row.tokens, row.scores)
        return Scores.sparse([*row.tokens, EOS], [*row.scores, 0.0])


@breaks(SHARED_KEY)
class KeyOfThePrefix(MyBag):
    """The state is the prefix, and so is the key: right, but nothing is ever recombined."""

    def initialize(self, source: Source) -> None:
        super().initialize(source)
        self._prefix: tuple[int, ...] = ()

    def consume(self, token: int) -> None:
        super().consume(token)
        self._prefix = (*self._prefix, token)

    def get_state(self) -> Any:
        return self._bag, self._prefix

    def set_state(self, state: Any) -> None:
        self._bag, self._prefix = state


@breaks(FUTURES)
class KeyOfTheLength(MyBag):
    def state_key(self, states: Sequence[Bag]) -> list[Hashable]:
        return [sum(count for _, count in bag) for bag in states]


@breaks(ASTAR)
class SaysNoBound(MyBag):
    max_score = math.inf


@breaks(ONLY, END, BEAM)
class OpenRow(MyBag):
    """What is not in the bag is unlikely, not forbidden."""

    def predict_next(self, candidates: Sequence[int] | None = None) -> Scores:
        row = row_of(super().predict_next())
        return Scores.sparse(row.tokens, row.scores, default=-20.0)


@breaks(FORMULA, ONLY, END, SUBSETS, BEAM, ASTAR, *STATES)
class NeverTakesOut(MyBag):
    """consume does nothing."""

    def consume(self, token: int) -> None:
        pass


@breaks(SUBSETS)
class IgnoresItsOption(MyBag):
    def __init__(self, subsets: bool = False) -> None:
        super().__init__()


@breaks(FORMULA, ONLY, END, SUBSETS, BEAM, ASTAR, *STATES)
class KnowsOneSentence(MyBag):
    """Hard-coded for the sentence of the handout."""

    def initialize(self, source: Source) -> None:
        self._bag = ((3, 2), (4, 1))


@breaks(LARGE)
class KnowsSmallTokens(MyBag):
    """The tokens of the tests are small numbers."""

    def initialize(self, source: Source) -> None:
        super().initialize(source)
        self._bag = tuple((token, count) for token, count in self._bag if token < 100)
