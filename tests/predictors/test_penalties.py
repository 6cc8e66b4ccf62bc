"""`repetition` and `temperature` change the inner scores by their formulas, for every kind of row.

Oracle: the formulas over plain dicts, in float64, token by token.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sgdec_predictors.repetition import Repetition
from sgdec_predictors.temperature import Temperature

from sgdec import BatchPredictor, Context, Source, UsageError
from sgdec.lifting import lift
from sgdec.plugins.options import configure
from sgdec.protocol import ability
from sgdec.search.constellation import Constellation
from sgdec.search.space import SearchSpace
from sgdec.testing import BatchTable, Bonus, enumerate_space
from sgdec.testing.reading import read_row
from tests.helpers.contracts import HOST
from tests.helpers.relaxing import Trigrams, WholeLattice, random_automaton

V = 6
SOURCE = Source(1, (3, 9, 5))
SCORES = st.lists(st.sampled_from([-math.inf, -5.0, -1.25, 0.0, 0.5, 3.0]), min_size=V, max_size=V)


def rows_of(scores: list[float]) -> list[BatchPredictor]:
    """The same scores as a dense row, as a tensor, as a restricting row and as an open row."""
    import torch

    class Tensor(BatchTable):
        def predict_batch(self, states: Any, candidates: Any = None) -> Any:
            found = super().predict_batch(states, candidates)
            return type(found)(values=torch.from_numpy(np.asarray(found.values)))

    table = np.array([scores] * V)
    finite = {token: score for token, score in enumerate(scores) if score > -math.inf}
    common = max(scores, key=scores.count)
    other = {token: score for token, score in enumerate(scores) if score != common}
    return [
        BatchTable(table),
        Tensor(table),
        lift(Bonus(finite, default=-math.inf)),
        lift(Bonus(other, default=common)),
    ]


def row_after(predictor: BatchPredictor, tokens: list[int]) -> list[float]:
    states = predictor.initialize_batch([SOURCE])
    for token in tokens:
        states = predictor.consume_batch(states, [token])
    found: list[float] = read_row(predictor.predict_batch(states), 0, V).tolist()
    return found


def log_softmax(scores: list[float]) -> list[float]:
    if max(scores) == -math.inf:
        return scores
    whole = math.log(math.fsum(math.exp(score) for score in scores))
    return [score - whole for score in scores]


@given(SCORES, st.floats(0.2, 5.0))
def test_temperature_is_the_softmax_of_divided_scores(scores: list[float], value: float) -> None:
    expected = log_softmax([score / value for score in scores])
    for inner in rows_of(scores):
        assert row_after(Temperature(inner, value, Context(vocab_size=V)), [3]) == pytest.approx(expected)


@given(SCORES, st.lists(st.sampled_from([0, 3, 4, 5])), st.floats(0.2, 5.0), st.booleans(), st.booleans())
def test_repetition_penalises_the_tokens_that_occurred(
    scores: list[float], tokens: list[int], penalty: float, prompt: bool, normalize: bool
) -> None:
    occurred = {*tokens, 1, *(SOURCE.tokens if prompt else ())}
    expected = [
        score if token not in occurred else score * penalty if score < 0 else score / penalty
        for token, score in enumerate(scores)
    ]
    for inner in rows_of(scores):
        predictor = Repetition(inner, penalty, prompt, (1,), normalize, Context(vocab_size=V))
        assert row_after(predictor, tokens) == pytest.approx(log_softmax(expected) if normalize else expected)


def test_single_precision_is_not_rounded_again() -> None:
    """An answer for all tokens is that for some candidates, which an n-gram model gives in double precision."""

    class Single(BatchTable):
        def predict_batch(self, states: Any, candidates: Any = None) -> Any:
            found = super().predict_batch(states, candidates)
            return type(found)(values=np.asarray(found.values, np.float32))

    table = np.random.default_rng(1).normal(size=(V, V))
    found = row_after(Repetition(Single(table), 1.1), [3])
    score = float(np.float32(table[3, 3]))
    assert found[3] == (score * 1.1 if score < 0 else score / 1.1)


def test_prefixes_are_merged_only_if_the_same_tokens_occurred() -> None:
    predictor = Repetition(BatchTable(np.zeros((V, V))), 1.1)

    def key(*tokens: int) -> Any:
        states = predictor.initialize_batch([Source(1, ())])
        for token in tokens:
            states = predictor.consume_batch(states, [token])
        return predictor.state_key(states)[0]

    assert key(3, 4, 4, 5) == key(4, 3, 3, 5) != key(4, 4, 4, 5)


@pytest.mark.parametrize("value", [1e-300, 1e300])
def test_extreme_temperatures_give_a_distribution(value: float) -> None:
    for inner in rows_of([-1.0, -2.0, -3.0, -math.inf, -5.0, -1.0]):
        probabilities = np.exp(row_after(Temperature(inner, value, Context(vocab_size=V)), []))
        best = [0.5, 0, 0, 0, 0, 0.5] if value < 1 else [0.2, 0.2, 0.2, 0, 0.2, 0.2]
        np.testing.assert_allclose(probabilities, best, atol=1e-12)


@pytest.mark.parametrize("name", ["temperature", "repetition"])
def test_an_open_row_without_the_size_of_the_vocabulary_is_one_line(name: str) -> None:
    inner = lift(Bonus({3: -1.0}, default=-2.0))
    predictor = Temperature(inner, 2.0) if name == "temperature" else Repetition(inner, 2.0, normalize=True)
    with pytest.raises(UsageError, match=rf"^{name}: .* give --vocab-size\.$"):
        row_after(predictor, [])


@pytest.mark.parametrize(
    ("penalty", "highest", "bound"),
    [(1.5, 0.0, -2.0), (0.5, 0.0, -1.0), (1.5, math.inf, -2.0), (0.5, math.inf, None)],
)
def test_the_inner_bound_is_kept_where_it_still_holds(penalty: float, highest: float, bound: float | None) -> None:
    inner = BatchTable(np.zeros((V, V)))
    inner.max_score = highest
    inner.best_remaining = lambda states: [-2.0] * len(states)  # type: ignore[method-assign, assignment, misc]
    predictor = Repetition(inner, penalty)
    method = ability(predictor, "best_remaining")
    assert (method and method(predictor.initialize_batch([SOURCE]))) == (None if bound is None else [bound])


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"penalty": 1.6}, {"penalty": 0.5}, {"penalty": 1.6, "normalize": True}])
@pytest.mark.parametrize("name", ["astar", "dfs", "beam"])
@pytest.mark.parametrize("bounds", ["sum", "product"])
def test_the_best_path_of_a_lattice_is_found_as_enumeration_says(
    name: str, options: dict[str, Any], bounds: str
) -> None:
    search = {"size": 10_000, "stop": "proven"} if name == "beam" else {"recombine": True}
    tried = 0
    for seed in range(15):
        rng = np.random.default_rng(seed)
        model = Trigrams(-rng.exponential(2.0, (V, V, V)))
        model.max_score = 0.0
        wrapped = Repetition(model, context=Context(vocab_size=V), **options)
        lattice = WholeLattice([random_automaton(rng, 3, V, cyclic=True)])
        mix = Constellation.of({"lattice": lattice, "penalised": wrapped}, vocab_size=V, bounds=bounds)
        source = Source(1, (), max_length=4)
        totals = sorted((path.total for path in enumerate_space(mix, source)), reverse=True)
        result = HOST.load("decoder", name)(**search).decode(SearchSpace(mix, mix.roots([source])[0]))
        assert [found.score for found in result.hypotheses] == pytest.approx(totals[:1])
        tried += len(totals) > 10
    assert tried > 3


@pytest.mark.parametrize("value", ["0", "-1", "x", "inf", "nan"])
@pytest.mark.parametrize(("cls", "option"), [(Temperature, "temperature.value"), (Repetition, "repetition.penalty")])
def test_a_number_that_is_not_positive_is_one_line(cls: Any, option: str, value: str) -> None:
    plugin, name = option.split(".")
    with pytest.raises(UsageError, match=rf"^--{plugin}\.{name}: .*{value}") as error:
        configure(cls, {name: value}, name=plugin)
    assert "\n" not in str(error.value)
