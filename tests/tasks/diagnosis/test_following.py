"""What predictors would have chosen along given outputs is what their rows say, one prefix at a time."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sgdec.context import EOS
from sgdec.protocol import Candidates, Predictor, Scores, Source
from sgdec.search.constellation import Constellation
from sgdec.tasks.diagnosis.cases import pair_of
from sgdec.tasks.diagnosis.following import NO_TOKEN, alone, follow
from sgdec.testing import TinySpace
from sgdec.testing.enumeration import followers
from tests.helpers.breadth import examples
from tests.helpers.random_spaces import V, random_spaces

Tokens = tuple[int, ...]
outputs = st.lists(st.sampled_from([0, 1, 3]), max_size=4).map(tuple)


def steps(constellation: Constellation, source: Source, tokens: Tokens) -> tuple[list[Any], int | None]:
    """Best token, its probability, and that of the given token, at each step up to the first forbidden one."""
    states: Any = [predictor.initialize_batch([source])[0] for predictor in constellation.predictors]
    found: list[Any] = []
    for place, token in enumerate((*tokens, EOS)):
        scores = {
            other: sum(w * s for w, s in zip(constellation.weights, by, strict=True) if w is not None)
            for other, by in followers(constellation, source, states, place)
        }
        if scores:
            whole = math.fsum(math.exp(score) for score in scores.values())
            highest = max(scores.values())
            best = [other for other, score in scores.items() if score == highest]
            given = math.exp(scores[token]) / whole if token in scores else 0.0
            found.append((best[0] if len(best) == 1 else NO_TOKEN, math.exp(highest) / whole, given))
        if token not in scores:
            return found, place
        if token != EOS:
            states = [p.consume_batch([s], [token])[0] for p, s in zip(constellation.predictors, states, strict=True)]
    return found, None


@pytest.mark.slow
@settings(max_examples=examples(100), deadline=None)
@given(random_spaces(weights=(1.0, 2.0, -1.0)), st.lists(outputs, min_size=1, max_size=3), st.sampled_from([1, 2, 8]))
def test_paths_are_those_of_one_prefix_at_a_time(space: TinySpace, given: list[Tokens], batch: int) -> None:
    constellation = space.constellation()
    pairs = [pair_of(replace(space.source, id=number), tokens) for number, tokens in enumerate(given, 1)]
    constellations = {"all": constellation, **alone(constellation)}
    assert list(constellations) == ["all", *constellation.names]
    for name, weight in zip(constellation.names, constellation.weights, strict=True):
        assert weight is not None and constellations[name].weights == (math.copysign(1.0, weight),)
    for each in constellations.values():
        for pair, path in zip(pairs, follow(each, pairs, batch), strict=True):
            expected, forbidden_at = steps(each, replace(space.source, max_length=pair.max_length), pair.target)
            assert path is not None and path.forbidden_at == forbidden_at
            assert np.array(path.steps) == pytest.approx(np.array(expected), abs=1e-9)


class Fails(Predictor):
    """Fails on the sentence 2."""

    def initialize(self, source: Source) -> None:
        self.id = source.id

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        if self.id == 2:
            raise ValueError("broken")
        return Scores.dense(np.log([0.1, 0.1, 0.5, 0.3]))


def test_a_sentence_on_which_a_predictor_fails_has_no_path() -> None:
    constellation = Constellation.of({"fails": Fails()}, vocab_size=V)
    pairs = [pair_of(Source(number, (3,), max_length=3), (3,)) for number in (1, 2, 3)]
    done: list[int] = []
    first, second, third = follow(constellation, pairs, 8, done.append)
    assert second is None and first == third and first is not None
    assert [step.best for step in first.steps] == [EOS, EOS]
    assert [step.probability for step in first.steps] == pytest.approx([0.3, 0.5])
    assert sum(done) == 3


def test_the_limit_rises_only_for_longer_outputs() -> None:
    source = Source(1, (3,), max_length=2)
    assert pair_of(source, (3,)).max_length == 2
    assert pair_of(source, (3, 3, 3)).max_length == 3
    assert pair_of(replace(source, max_length=None), (3, 3)).max_length is None
