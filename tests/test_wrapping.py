"""Abilities of a wrapper: those that it lists and that the inner predictor has, even if it defines them itself."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from sgdec_decoders.astar import AStarDecoder

from sgdec.lifting import lift
from sgdec.protocol import BatchPredictor, Candidates, Predictor, Scores, Source, State, ability
from sgdec.search.constellation import Constellation
from sgdec.search.scheduler import Scheduler
from sgdec.testing import BatchTable, PassThrough, PredictorContract, PredictorSearchContract, promises
from sgdec.wrapping import Wrapper

LOGS = np.log(np.random.default_rng(3).dirichlet(np.ones(5), size=5))


class Halved(Wrapper):
    """Half of each score and half of each bound."""

    def __init__(self, inner: BatchPredictor) -> None:
        super().__init__(inner)
        self.max_score = inner.max_score / 2

    def predict_batch(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        scores = self.inner.predict_batch(states, candidates)
        assert scores.values is not None
        return Scores.dense(scores.values / 2)

    def best_remaining(self, states: Sequence[State]) -> list[float]:
        method = ability(self.inner, "best_remaining")
        assert method is not None
        return [bound / 2 for bound in method(states)]

    def worst_remaining(self, states: Sequence[State]) -> list[float]:
        method = ability(self.inner, "worst_remaining")
        assert method is not None
        return [bound / 2 for bound in method(states)]


class Unbounded(Predictor):
    """The same row after every prefix; only ``max_score`` says how high its scores are."""

    max_score = 0.0

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        return Scores.dense(LOGS[0])


@pytest.mark.parametrize(
    "wrap", [Halved, lambda inner: Halved(Halved(inner)), lambda inner: PassThrough(Halved(inner))]
)
def test_its_own_ability_is_there_only_if_the_inner_predictor_has_it(wrap: type[Halved]) -> None:
    names = ("best_remaining", "worst_remaining", "state_key", "attention")
    assert [ability(wrap(lift(Unbounded())), name) is None for name in names] == [True] * 4
    assert [ability(wrap(BatchTable(LOGS)), name) is None for name in names] == [False] * 4


def test_without_inner_bounds_its_max_score_bounds_the_search() -> None:
    found = {}
    for name, predictor in {"plain": lift(Unbounded()), "wrapped": Halved(lift(Unbounded()))}.items():
        constellation = Constellation.of({name: predictor}, vocab_size=5)
        (outcome,) = Scheduler(constellation, AStarDecoder()).run([Source(1, (3,), max_length=6)])
        found[name] = outcome.result
    assert found["wrapped"].proven and found["wrapped"].expansions == found["plain"].expansions < 5**3
    assert math.isclose(found["wrapped"].hypotheses[0].score, found["plain"].hypotheses[0].score / 2)


class TestHalved(PredictorContract):
    vocab_size = 5

    def make(self) -> Halved:
        return Halved(BatchTable(LOGS))


@pytest.mark.slow
class TestHalvedInSearch(PredictorSearchContract):
    vocab_size = 5

    def draw(self, rng: np.random.Generator) -> Halved:
        return Halved(BatchTable(rng.normal(size=(5, 5))))


class WithoutBounds(PredictorContract):
    vocab_size = 5

    def make(self) -> Halved:
        return Halved(lift(Unbounded()))


def test_without_inner_bounds_it_keeps_the_contract() -> None:
    for promise in promises(WithoutBounds()):
        promise.check()
