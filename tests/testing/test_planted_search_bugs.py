"""The promise: contracts for exact decoders, beams and predictors in exact searches catch what the others let pass.

Each class below has one planted bug. It passes `DecoderContract` or `PredictorContract`, and breaks the promise that
is named for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from sgdec.context import BOS, EOS
from sgdec.decoder import BatchDecoder, Decoder
from sgdec.protocol import Candidates, Predictor, Result, Scores, Source, State
from sgdec.search.node import Node
from sgdec.search.space import SearchSpace
from sgdec.testing import (
    BeamContract,
    DecoderContract,
    ExactDecoderContract,
    PredictorContract,
    PredictorSearchContract,
    Table,
    breach,
    promises,
)
from sgdec.testing.toys import Prefix
from tests.helpers.breadth import examples, some

V = 12
"""Tokens of the predictors below."""
MORE = 20.0
Contract = DecoderContract | PredictorContract | PredictorSearchContract
BUGS: dict[str, tuple[type[Any], str]] = {}
"""By class: the class, and the test that must fail."""


def breaks(test: str) -> Callable[[type[Any]], type[Any]]:
    """Marks a class with one planted bug, and names the test that must catch it."""

    def mark(cls: type[Any]) -> type[Any]:
        BUGS[cls.__name__] = cls, test
        return cls

    return mark


class BestFirst(Decoder):
    """A* with a budget: always goes on with the prefix of the highest bound."""

    exact = True

    def __init__(self, max_expansions: float = math.inf) -> None:
        self.max_expansions = max_expansions

    def decode(self, space: SearchSpace) -> Result:
        order, best = count(), list[Node]()
        queue = [(-math.inf, next(order), space.root)]
        while queue and not self.is_done(space, -queue[0][0], best):
            if space.expansions >= self.max_expansions:
                return self.cut(space, -queue[0][0], best)
            for node, bound in self.children(space, heappop(queue)[2]):
                if node.finished:
                    best = sorted([*best, node], key=lambda node: -node.total)[: space.nbest]
                elif bound > -math.inf:
                    heappush(queue, (-bound, next(order), node))
        return Result([space.finish(node) for node in best], proven=True)

    def children(self, space: SearchSpace, node: Node) -> list[tuple[Node, float]]:
        (iterator,) = space.expand([node])
        found = list(iterator)
        return [(child, child.total + more) for child, more in zip(found, self.bounds(space, found), strict=True)]

    def bounds(self, space: SearchSpace, nodes: list[Node]) -> list[float]:
        return space.bound(nodes)

    def is_done(self, space: SearchSpace, bound: float, best: list[Node]) -> bool:
        return len(best) == space.nbest and bound <= best[-1].total

    def cut(self, space: SearchSpace, bound: float, best: list[Node]) -> Result:
        hypotheses = [space.finish(node) for node in best]
        gap = max(bound - hypotheses[0].score, 0.0) if hypotheses else None
        return Result(hypotheses, proven=False, gap=gap)


@breaks("test_the_true_nbest_is_found_in_random_spaces")
class TakesThreePredictorsForModels(BestFirst):
    """Believes that totals of three cannot rise; the handmade spaces have two at most."""

    def bounds(self, space: SearchSpace, nodes: list[Node]) -> list[float]:
        bounds = super().bounds(space, nodes)
        return [min(bound, 0.0) for bound in bounds] if len(space.predictors) > 2 else bounds


@breaks("test_a_search_that_comes_to_its_end_is_proven")
class NeverSaysSo(BestFirst):
    def decode(self, space: SearchSpace) -> Result:
        return replace(super().decode(space), proven=None)


@breaks("test_a_budget_is_kept")
class GoesOneFurther(BestFirst):
    def __init__(self, max_expansions: float = math.inf) -> None:
        super().__init__(max_expansions + 1)


@breaks("test_what_a_budget_leaves_open_is_within_the_gap")
class ForgetsWhatIsOpen(BestFirst):
    def cut(self, space: SearchSpace, bound: float, best: list[Node]) -> Result:
        return super().cut(space, -math.inf, best)


@breaks("test_a_budget_that_is_enough_changes_nothing")
class StopsWhenItsBudgetIsSpent(BestFirst):
    """Though nothing may be left to do."""

    def decode(self, space: SearchSpace) -> Result:
        found = super().decode(space)
        return replace(found, proven=found.proven and space.expansions < self.max_expansions)


@breaks("test_a_hypothesis_may_be_longer_than_the_stack_is_deep")
class Recursive(BestFirst):
    def decode(self, space: SearchSpace) -> Result:
        found = sorted(self.below(space, [space.root]), key=lambda node: -node.total)
        return Result([space.finish(node) for node in found[: space.nbest]], proven=True)

    def below(self, space: SearchSpace, nodes: list[Node]) -> Iterator[Node]:
        """What nodes of one length lead to."""
        children = [child for found in space.expand(nodes) for child in found]
        yield from (child for child in children if child.finished)
        if growing := [child for child in children if not child.finished]:
            yield from self.below(space, growing)


class Beam(BatchDecoder):
    """Beam search that goes on until all of its hypotheses are finished."""

    def __init__(self, size: int = 4) -> None:
        self.size = size

    def decode_batch(self, spaces: Sequence[SearchSpace]) -> list[Result]:
        return [self.search(space) for space in spaces]

    def search(self, space: SearchSpace) -> Result:
        beam = [space.root]
        while any(not node.finished for node in beam):
            growing = [node for node in beam if not node.finished]
            children = [child for found in space.expand(growing, limit=self.size) for child in found]
            beam = self.cut(children + [node for node in beam if node.finished])
        return Result([space.finish(node) for node in beam[: space.nbest]])

    def cut(self, nodes: list[Node]) -> list[Node]:
        return sorted(nodes, key=lambda node: -node.total)[: self.size]


@breaks("test_a_beam_wide_enough_finds_the_true_nbest")
class NeverWiderThanTwelve(Beam):
    def __init__(self, size: int = 4) -> None:
        super().__init__(min(size, 12))


@breaks("test_a_beam_of_one_takes_the_best_token_each_time")
class TakesTheHigherTokenOfEqualOnes(Beam):
    def search(self, space: SearchSpace) -> Result:
        expand = space.expand

        def turned(nodes: Sequence[Node], limit: int) -> list[list[Node]]:
            found = [sorted(children, key=lambda node: (-node.total, -node.tokens[-1])) for children in expand(nodes)]
            return [children[:limit] for children in found]

        space.expand = turned  # type: ignore[method-assign, assignment]
        return super().search(space)


@breaks("test_a_beam_expands_no_more_prefixes_of_one_length_than_it_is_wide")
class IsOneWider(Beam):
    """Unless it is greedy."""

    def __init__(self, size: int = 4) -> None:
        super().__init__(size + (size > 1))


@breaks("test_sentences_in_flight_together_are_found_as_alone")
class HasOneLimitForTheBatch(Beam):
    """That of the shortest sentence, in batches of three."""

    def decode_batch(self, spaces: Sequence[SearchSpace]) -> list[Result]:
        limits = [space.source.max_length for space in spaces if space.source.max_length is not None]
        for space in spaces if len(spaces) == 3 else []:
            (space.root,) = space.constellation.roots([replace(space.source, max_length=min(limits, default=None))])
        return super().decode_batch(spaces)


class Bigram(Predictor):
    """A bigram with the whole prefix as its state. Below, something is wrong after 6 7, which random ways miss."""

    def __init__(self, table: npt.NDArray[np.float64]) -> None:
        self.table = table
        self._bounds = Table(table)

    def initialize(self, source: Source) -> None:
        self._left = math.inf if source.max_length is None else source.max_length
        self._prefix: tuple[int, ...] = ()

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        return Scores.dense(self.row(self._prefix))

    def row(self, prefix: tuple[int, ...]) -> npt.NDArray[np.float64]:
        return self.table[(BOS, *prefix)[-1]]

    def consume(self, token: int) -> None:
        self._left -= 1
        self._prefix = (*self._prefix, token)

    def get_state(self) -> State:
        return self._prefix, self._left

    def set_state(self, state: State) -> None:
        self._prefix, self._left = state

    def best_remaining(self, states: Sequence[State]) -> list[float]:
        return self._bounds.best_remaining([Prefix((BOS, *prefix)[-1], left) for prefix, left in states])

    def state_key(self, states: Sequence[State]) -> list[Hashable]:
        return [prefix[-1:] for prefix, _ in states]


def is_rare(prefix: tuple[int, ...]) -> bool:
    return prefix[-2:] == (6, 7)


@breaks("test_no_completion_of_any_prefix_beats_its_bound")
class BoundsTooLow(Bigram):
    def best_remaining(self, states: Sequence[State]) -> list[float]:
        bounds = zip(states, super().best_remaining(states), strict=True)
        return [bound - is_rare(prefix) for (prefix, _), bound in bounds]


class Trigram(Bigram):
    """One trigram: after 6 7 ``</s>`` scores `MORE`."""

    def row(self, prefix: tuple[int, ...]) -> npt.NDArray[np.float64]:
        return super().row(prefix) + MORE * is_rare(prefix) * (np.arange(len(self.table)) == EOS)

    def best_remaining(self, states: Sequence[State]) -> list[float]:
        return [bound + MORE for bound in super().best_remaining(states)]

    def state_key(self, states: Sequence[State]) -> list[Hashable]:
        return [prefix[-2:] for prefix, _ in states]


@breaks("test_all_prefixes_with_one_key_have_one_future")
class HasTheKeysOfABigram(Trigram):
    def state_key(self, states: Sequence[State]) -> list[Hashable]:
        return [prefix[-1:] for prefix, _ in states]


@breaks("test_exact_searches_find_the_true_nbest")
class SaysThatNoTokenScoresMuch(Trigram):
    """So exact searches look at no more of the children of a prefix than can matter by that."""

    max_score = 0.0


def contract(cls: type[Any]) -> Contract:
    """The one that has to find the bug."""
    if issubclass(cls, BestFirst):

        class Exact(ExactDecoderContract):
            random_spaces = examples(40)

            def make(self) -> Decoder:
                return cls()

            def make_limited(self, max_expansions: int) -> Decoder:
                return cls(max_expansions)

        return Exact()
    if issubclass(cls, Beam):

        class Wide(BeamContract):
            def make_beam(self, size: int) -> Decoder:
                return cls(size)

        return Wide()

    class InSearch(PredictorSearchContract):
        vocab_size = V
        spaces = 8
        limits = (2,)
        weights = (1.0, 0.5)

        def draw(self, rng: np.random.Generator) -> Predictor:
            return cls(table(rng))

    return InSearch()


def plain_contract(cls: type[Any]) -> Contract:
    """The one that lets it pass."""
    if issubclass(cls, Decoder):

        class Plain(DecoderContract):
            random_spaces = 12

            def make(self) -> Decoder:
                return cls()

        return Plain()

    class Alone(PredictorContract):
        vocab_size = V

        def make(self) -> Predictor:
            return cls(table(np.random.default_rng(1)))

    return Alone()


def table(rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """``[V, V]``: 6 is everybody's last choice."""
    scores = rng.uniform(-2.0, 0.0, (V, V))
    scores[:, 6] = -2.5
    return scores


def names(subject: Contract) -> set[str]:
    return {name for name in dir(subject) if name.startswith("test_")}


RIGHT = [BestFirst, Beam, Trigram]


@pytest.mark.slow
@pytest.mark.parametrize("right", RIGHT)
def test_a_right_one_passes(right: type[Any]) -> None:
    for promise in promises(contract(right)):
        assert breach(promise.check) is None, promise.text


@pytest.mark.slow
@pytest.mark.parametrize("name", BUGS)
def test_the_kit_catches(name: str) -> None:
    cls, test = BUGS[name]
    with pytest.raises(AssertionError, match=" must "):
        getattr(contract(cls), test)()


@pytest.mark.slow
@pytest.mark.parametrize("name", some([*BUGS]))
def test_the_plainer_contract_lets_it_pass(name: str) -> None:
    """Or the bug shows nothing of what the other adds."""
    for promise in promises(plain_contract(BUGS[name][0])):
        assert breach(promise.check) is None, promise.text


def test_every_promise_that_a_contract_adds_has_a_planted_bug() -> None:
    added = [names(contract(right)) - names(plain_contract(right)) for right in RIGHT]
    assert {test for _, test in BUGS.values()} == set().union(*added)
