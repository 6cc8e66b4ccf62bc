"""The promise: a relaxation or an automaton that is malformed ends the search with one line that names its predictor.

Without the check, a state that does not exist would be taken for another one, and its distance would be wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from sgdec_decoders.astar import AStarDecoder

from sgdec.arcs import Automaton
from sgdec.arrays import Ints
from sgdec.errors import SgdecError
from sgdec.protocol import BatchPredictor, Source, State
from sgdec.relaxations import Relaxation
from sgdec.search.blame import told
from sgdec.search.constellation import Constellation
from sgdec.search.scheduler import Scheduler
from tests.helpers.relaxing import Counter, LastToken, Trigrams, WholeLattice, random_automaton

V = 7
TABLE = np.random.default_rng(2).normal(size=(V, V, V))
AUTOMATON = random_automaton(np.random.default_rng(5), 6, V, cyclic=False)
Answer = Callable[[Any], Any]


def said(lattice: BatchPredictor, model: BatchPredictor, stepwise: bool, weight: float = 1.0) -> str:
    """The error of A*, with all predictors as automata, or prefix by prefix with a further one that is none."""
    predictors: dict[str, BatchPredictor] = {"a": lattice, "lm": model}
    if not stepwise:
        predictors["count"] = Counter([0.0])
    weights = [1.0, weight, 1.0][: len(predictors)]
    constellation = Constellation.of(predictors, weights=weights, vocab_size=V, bounds="product")
    (outcome,) = Scheduler(constellation, AStarDecoder()).run([Source(1, (), max_length=5)])
    assert outcome.error is not None
    return told(outcome.error, "astar")


def changed(method: str, answer: Answer, **traits: Any) -> Trigrams:
    """A model whose relaxation gives other answers to one method, made from the right ones."""

    class Changed(LastToken):
        def __getattribute__(self, name: str) -> Any:
            found = super().__getattribute__(name)
            return (lambda *given: answer(found(*given))) if name == method else found

    relaxation = Changed(TABLE)
    vars(relaxation).update(traits)
    return Trigrams(TABLE, [relaxation])


def raises(_: object) -> Any:
    raise KeyError("there")


@pytest.mark.slow
@pytest.mark.parametrize("stepwise", [True, False])
@pytest.mark.parametrize("markov", [True, False])
@pytest.mark.parametrize(
    ("method", "answer", "expected"),
    [
        ("of", lambda found: [V for _ in found], "of of a relaxation returned state 7, but it has the states 0 to 6"),
        ("of", lambda found: [-1 for _ in found], "of of a relaxation returned state -1"),
        ("of", lambda found: [*found, 0], "of of a relaxation returned 2 items; expected 1"),
        ("of", lambda found: None, "TypeError: object of type 'NoneType' has no len()"),
        ("of", raises, "KeyError: 'there'"),
        ("after", lambda found: found + V, "after of a relaxation returned state 1"),
        ("after", lambda found: found - V, "after of a relaxation returned state -"),
        ("after", lambda found: found[:-1], "after of a relaxation returned a ndarray of shape"),
        ("after", lambda found: found[:, None], "after of a relaxation returned a ndarray of shape"),
        ("after", lambda found: found.astype(float), "of float64; expected an array ["),
        ("after", lambda found: None, "after of a relaxation returned None; expected an array ["),
        ("after", raises, "KeyError: 'there'"),
        ("highest", lambda found: found[0], "expected an array ["),
        ("highest", lambda found: found[1:], "highest of a relaxation returned a ndarray of shape"),
        ("highest", lambda found: found.astype(str), "of numbers"),
        ("highest", lambda found: found.astype(complex), "of complex128; expected an array ["),
        (
            "highest",
            lambda found: [[0.0], [0.0, 0.0]],
            "highest of a relaxation returned a list; expected an array [",
        ),
        ("highest", lambda found: found * math.nan, "its relaxation has NaN for token"),
        ("highest", raises, "KeyError: 'there'"),
    ],
)
def test_a_malformed_relaxation(method: str, answer: Answer, expected: str, markov: bool, stepwise: bool) -> None:
    error = said(WholeLattice([AUTOMATON]), changed(method, answer, markov=markov), stepwise)
    assert error.startswith("predictor 'lm': ") and expected in error and "\n" not in error


@pytest.mark.parametrize("answer", [raises, lambda found: found[1:], lambda found: found * math.nan])
def test_a_malformed_lowest_bound(answer: Answer) -> None:
    error = said(WholeLattice([AUTOMATON]), changed("lowest", answer), stepwise=True, weight=-1.0)
    assert error.startswith("predictor 'lm': ")


@pytest.mark.parametrize("size", [0, -3, 2.5, None, "7"])
def test_a_relaxation_without_a_size(size: Any) -> None:
    error = said(WholeLattice([AUTOMATON]), changed("of", lambda found: found, size=size), stepwise=True)
    assert error == f"predictor 'lm': a relaxation has size {size!r}; expected the number of its states, at least 1."


@pytest.mark.parametrize("stepwise", [True, False])
@pytest.mark.parametrize(
    ("relaxations", "expected"),
    [
        (lambda state: None, "TypeError: 'NoneType' object is not iterable"),
        (lambda state: [], "relaxations returned nothing; expected at least one Relaxation."),
        (lambda state: [3], "relaxations returned a list with an int; expected Relaxation objects."),
        (lambda state: [{}], "relaxations returned a list with a dict; expected Relaxation objects."),
        (raises, "KeyError: 'there'"),
    ],
)
def test_relaxations_that_are_none(
    relaxations: Callable[[State], Sequence[Relaxation]], expected: str, stepwise: bool
) -> None:
    model = Trigrams(TABLE)
    vars(model)["relaxations"] = relaxations
    error = said(WholeLattice([AUTOMATON]), model, stepwise)
    assert error.startswith("predictor 'lm': ") and expected in error


def parts(**others: Any) -> Automaton:
    """A copy of the automaton with some other arrays."""
    same = {name: getattr(AUTOMATON, name).copy() for name in ("offsets", "tokens", "scores", "after")}
    return Automaton(**{**same, **others})


def with_nan() -> Automaton:
    made = parts()
    made.scores[3] = math.nan
    return made


@pytest.mark.parametrize("stepwise", [True, False])
@pytest.mark.parametrize(
    ("whole", "expected"),
    [
        (raises, "KeyError: 'there'"),
        (lambda state: (None, 0), "its whole automaton is None; expected an Automaton."),
        (lambda state: ([1], 0), "its whole automaton is a list; expected an Automaton."),
        (
            lambda state: (parts(), state - 6),
            "a prefix is in state 6 of its whole automaton, which has the states 0 to 5",
        ),
        (lambda state: (parts(), 9), "a prefix is in state -9 of its whole automaton"),
        (lambda state: (parts(after=AUTOMATON.after + 6), 0), "leads to state 11, but its states are 0 to 5"),
        (lambda state: (parts(after=AUTOMATON.after * 1.0), 0), "after of its whole automaton returned a ndarray"),
        (lambda state: (parts(scores=AUTOMATON.scores[:-1]), 0), "scores of its whole automaton returned a ndarray"),
        (lambda state: (parts(offsets=AUTOMATON.offsets[:-1]), 0), "offsets of its whole automaton must ascend"),
        (lambda state: (with_nan(), 0), "its whole automaton has the score nan for token"),
    ],
)
def test_a_malformed_automaton(whole: Callable[[State], Any], expected: str, stepwise: bool) -> None:
    lattice = WholeLattice([AUTOMATON])
    vars(lattice)["whole"] = whole
    error = said(lattice, Trigrams(TABLE), stepwise)
    assert error.startswith("predictor 'a': ") and expected in error and "\n" not in error


NAN: Callable[[State], Any] = lambda state: (AUTOMATON, [(0, math.nan)])  # noqa: E731


class Subset(WholeLattice):
    """The same lattice as one that is not deterministic; ``answer`` replaces its subsets."""

    whole = None  # type: ignore[assignment]

    def __init__(self, answer: Callable[[State], Any]) -> None:
        super().__init__([AUTOMATON])
        self.answer = answer

    def subset(self, state: State) -> Any:
        return self.answer(state)


@pytest.mark.parametrize("answer", [raises, lambda state: 3, lambda state: (None, [(0, 0.0)]), NAN])
def test_a_malformed_subset(answer: Callable[[State], Any]) -> None:
    constellation = Constellation.of({"a": Subset(answer), "lm": Trigrams(TABLE)}, vocab_size=V)
    with pytest.raises((SgdecError, RuntimeError), match="predictor 'a': "):
        constellation.bounds(constellation.roots([Source(1, ())]))


@pytest.mark.parametrize("method", ["best_remaining", "worst_remaining"])
def test_an_exception_in_a_bound_of_an_automaton(method: str) -> None:
    lattice = WholeLattice([AUTOMATON])
    setattr(lattice, method, raises)
    weights = [1.0 if method == "best_remaining" else -1.0, 1.0]
    predictors: dict[str, BatchPredictor] = {"a": lattice, "lm": Trigrams(TABLE)}
    predictors["lm"].max_score = 5.0
    constellation = Constellation.of(predictors, weights=weights, vocab_size=V, bounds="sum")
    (outcome,) = Scheduler(constellation, AStarDecoder()).run([Source(1, (), max_length=5)])
    assert outcome.error is not None
    assert told(outcome.error, "astar").startswith("predictor 'a': KeyError: 'there' (")


class Odd(LastToken):
    """Its states after ``</s>`` and after token 3, which the model never allows, do not exist."""

    def after(self, states: Ints, tokens: Ints) -> Ints:
        return np.where((tokens == 3) | (tokens == 2), V + 5, tokens)


@pytest.mark.parametrize("markov", [True, False])
@pytest.mark.parametrize("weight", [1.0, -1.0])
def test_no_state_after_a_token_that_cannot_follow_is_right(weight: float, markov: bool) -> None:
    """And the result is that of the plain sums."""
    table = TABLE.copy()
    table[:, :, 3] = -math.inf
    for seed in range(20):
        automaton = random_automaton(np.random.default_rng(seed), 6, V, cyclic=seed % 2 == 1)
        found = []
        for relaxation, bounds in ((Odd(table), "product"), (LastToken(table), "sum")):
            relaxation.memory = 1 if markov else None
            model = Trigrams(table, [relaxation])
            model.max_score = 9.0
            predictors: dict[str, BatchPredictor] = {"a": WholeLattice([automaton]), "lm": model}
            if weight < 0:
                model.worst_remaining = lambda states: [-1e6] * len(states)  # type: ignore[attr-defined]
            kind: Any = bounds
            constellation = Constellation.of(predictors, weights=[1.0, weight], vocab_size=V, bounds=kind)
            (outcome,) = Scheduler(constellation, AStarDecoder()).run([Source(1, (), max_length=4)])
            found.append([hypothesis.tokens for hypothesis in outcome.result.hypotheses])
        assert found[0] == found[1]


class Strict(LastToken):
    """Refuses states after ``</s>``."""

    def of(self, states: Sequence[State]) -> list[int]:
        assert all(last != 2 for _, last in states)
        return super().of(states)


@pytest.mark.parametrize("stepwise", [True, False])
def test_no_relaxation_is_asked_about_a_state_after_the_end(stepwise: bool) -> None:
    for seed in range(10):
        automaton = random_automaton(np.random.default_rng(seed), 6, V, cyclic=False)
        predictors: dict[str, BatchPredictor] = {
            "a": WholeLattice([automaton]), "lm": Trigrams(TABLE, [Strict(TABLE)])
        }  # fmt: skip
        if not stepwise:
            predictors["count"] = Counter([0.0])
        constellation = Constellation.of(predictors, vocab_size=V, bounds="product")
        (outcome,) = Scheduler(constellation, AStarDecoder()).run([Source(1, (), max_length=5)])
        assert outcome.error is None and outcome.result.proven
