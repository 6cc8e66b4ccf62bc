"""Answers that fit neither the vocabulary nor each other are told with the plugin's name, and not put right."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sgdec_decoders.astar import AStarDecoder
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.dfs import DfsDecoder
from sgdec_decoders.greedy import GreedyDecoder
from sgdec_decoders.vanilla import VanillaDecoder

from sgdec.cli.main import main
from sgdec.decoder import Decoder
from sgdec.errors import SgdecError
from sgdec.protocol import BatchPredictor, Candidates, Predictor, Result, Scores, Source, State, Steps
from sgdec.search.constellation import Constellation
from sgdec.search.node import Node
from sgdec.search.scheduler import Scheduler
from sgdec.search.space import SearchSpace
from sgdec.testing import Table
from tests.helpers.plugin_files import decode, write_plugin

V = 5


class Answers(Predictor):
    def __init__(self, scores: Scores) -> None:
        self.scores = scores

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        return self.scores


def failure(decoder: Decoder, **predictors: Predictor | BatchPredictor) -> str:
    constellation = Constellation.of(predictors, vocab_size=V)
    (outcome,) = Scheduler(constellation, decoder).run([Source(1, (3,), max_length=2)])
    assert isinstance(outcome.error, SgdecError), outcome.error
    return str(outcome.error)


@pytest.mark.parametrize("token", [-1, 5, 10**9])
@pytest.mark.parametrize("default", [-np.inf, -1.0])
@pytest.mark.parametrize("decoder", [BeamDecoder(), VanillaDecoder()], ids=["beam", "vanilla"])
@pytest.mark.parametrize("mixed", [False, True])
def test_a_token_outside_the_vocabulary(mixed: bool, decoder: Decoder, default: float, token: int) -> None:
    if default == -np.inf and isinstance(decoder, VanillaDecoder):
        return
    mine = Answers(Scores.sparse([2, token], [-3.0, 0.0], default))
    others = {"other": Table(np.zeros((V, V)))} if mixed else {}
    assert f"predictor 'mine' scores token {token}, which is outside" in failure(decoder, mine=mine, **others)


class Chain(BatchPredictor):
    """An automaton whose steps are cut in one place."""

    def __init__(self, tokens: int = 2, scores: int = 2, states: int = 2, last: int = 3) -> None:
        self.cut, self.last = (tokens, scores, states), last

    def initialize_batch(self, sources: Sequence[Source]) -> list[State]:
        return [0] * len(sources)

    def predict_batch(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        raise AssertionError

    def consume_batch(self, states: Sequence[State], tokens: Sequence[int]) -> list[State]:
        raise AssertionError

    def steps(self, state: State, candidates: Candidates | None) -> Steps:
        tokens, scores, states = self.cut
        return [2, self.last][:tokens], [-1.0, -1.0][:scores], [0, 0][:states]


@pytest.mark.parametrize("cut", [{"tokens": 1}, {"scores": 1}, {"states": 1}])
def test_steps_that_do_not_fit_each_other(cut: dict[str, int]) -> None:
    assert "predictor 'mine': steps returned" in failure(GreedyDecoder(), mine=Chain(**cut))


def test_steps_that_do_not_fit_the_candidates() -> None:
    found = failure(GreedyDecoder(), first=Chain(), mine=Chain(1, 1, 1))
    assert "predictor 'mine': steps returned 1 tokens for 2 candidates" in found


@pytest.mark.parametrize("last", [5, -3])
def test_steps_outside_the_vocabulary(last: int) -> None:
    chain = Chain(last=last)
    if last < 0:
        chain.steps = lambda state, candidates: ([last, 2], [-1.0, -1.0], [0, 0])  # type: ignore[method-assign]
    assert f"predictor 'mine' scores token {last}, which is outside" in failure(GreedyDecoder(), mine=chain)


def test_whole_numbers_are_scores_like_others() -> None:
    for values in (np.array([-5, -6, -3, -1, -2]), torch.tensor([-5, -6, -3, -1, -2])):
        constellation = Constellation.of({"a": Answers(Scores.dense(values))}, weights=[0.5])
        (outcome,) = Scheduler(constellation, BeamDecoder(stop="full")).run([Source(1, (3,), max_length=0)])
        assert outcome.result.hypotheses[0].score == -1.5
        (root,) = constellation.roots([Source(1, (3,))])
        found = constellation.combine([root]).best(5)[0]
        assert [token for token, _, _ in found] == [3, 4, 2, 0, 1]
        assert [score for _, score, _ in found] == [-0.5, -1.0, -1.5, -2.5, -3.0]


def test_scores_that_require_gradients() -> None:
    found = failure(GreedyDecoder(), mine=Answers(Scores.dense(torch.zeros(5, requires_grad=True))))
    assert "predictor 'mine': its scores require gradients" in found


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("Scores.dense([0.0] * 5)", "Scores.dense takes an array or a tensor, not a list"),
        ("Scores.dense(__import__('numpy').zeros((1, 1, 5)))", "not an array of shape [1, 1, 5]"),
        ("Scores.sparse([2, 3, 4], [0.0])", "Scores.sparse needs one score per token: 3 tokens, 1 scores"),
    ],
)
def test_scores_that_cannot_be_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], body: str, message: str
) -> None:
    write_plugin(tmp_path, f"    def predict_next(self, candidates=None):\n        return {body}\n")
    assert decode(tmp_path) == 1
    error = capsys.readouterr().err
    assert "predictor 'mine': " in error and message in error and f"{tmp_path / 'mine.py'}, line" in error


def test_a_trait_that_is_a_method_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_plugin(tmp_path, "    def max_score(self): return 0.0\n")
    assert decode(tmp_path) == 1
    assert "max_score has to be a class attribute or a property, not a method." in capsys.readouterr().err


def test_an_exception_in_a_constructor_names_the_plugin(tmp_path: Path) -> None:
    write_plugin(tmp_path, "    def __init__(self): {}['there']\n")
    with pytest.raises(RuntimeError, match=r"'mine': KeyError: 'there' \(.*mine.py, line 8\)"):
        decode(tmp_path)


def test_a_decoder_is_named_where_it_raises_and_where_it_answers_something_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "d.py").write_text(
        "import sgdec\nclass D(sgdec.Decoder):\n    def decode(self, space): return None\n"
        "class E(sgdec.Decoder):\n    def decode(self, space): return 1 / 0\n"
        "@sgdec.hookimpl\ndef sgdec_decoders(): return {'none': D, 'raises': E}\n"
    )
    (tmp_path / "in").write_text("3\n")
    run = ["decode", "--plugin-file", str(tmp_path / "d.py"), "--predictors", "wc", "--vocab-size", "5"]
    run += ["--input-format", "ids", str(tmp_path / "in"), "--decoder"]
    assert main([*run, "none"]) == 1
    assert "sentence 1: D.decode returned None; expected a Result." in capsys.readouterr().err
    assert main([*run, "raises"]) == 1
    error = capsys.readouterr().err
    assert f"sentence 1: decoder 'raises': ZeroDivisionError: division by zero ({tmp_path / 'd.py'}, line 5)" in error


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("None", "returned None; expected a list of 1 Results, one per space"),
        ("[]", "returned 0 Results for 1 spaces; expected one per space"),
        ("[Result([])] * 2 * len(spaces)", "returned 2 Results for 1 spaces"),
        ("[None for _ in spaces]", "returned a list with None; expected a list with a Result"),
    ],
)
def test_a_batch_decoder_that_answers_something_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], answer: str, said: str
) -> None:
    (tmp_path / "d.py").write_text(
        "import sgdec\nfrom sgdec.protocol import BatchDecoder, Result\nclass D(BatchDecoder):\n"
        f"    def decode_batch(self, spaces): return {answer}\n"
        "@sgdec.hookimpl\ndef sgdec_decoders(): return {'d': D}\n"
    )
    (tmp_path / "in").write_text("3\n4\n")
    run = ["decode", "--plugin-file", str(tmp_path / "d.py"), "--predictors", "wc", "--vocab-size", "5"]
    assert main([*run, "--input-format", "ids", "--decoder", "d", str(tmp_path / "in")]) == 1
    assert said in capsys.readouterr().err


class Bounded(Answers):
    """Says what it is told to of every state."""

    def __init__(self, bound: Any = 0.0, key: Any = 0) -> None:
        super().__init__(Scores.dense(np.zeros(V)))
        self.bound, self.key = bound, key

    def best_remaining(self, states: Sequence[State]) -> list[Any]:
        return [self.bound] * len(states)

    def state_key(self, states: Sequence[State]) -> list[Any]:
        return [self.key] * len(states)


class BoundedAutomaton(Chain):
    def best_remaining(self, states: Sequence[State]) -> list[float]:
        return [math.nan] * len(states)


@pytest.mark.parametrize("decoder", [AStarDecoder(), DfsDecoder(), BeamDecoder(stop="proven")], ids=str)
@pytest.mark.parametrize(
    ("bound", "said"),
    [
        (math.nan, "NaN; expected a number, inf or -inf."),
        (np.float32("nan"), "NaN; expected a number, inf or -inf."),
        ("high", "a str for a state; expected a number."),
        (None, "None for a state; expected a number."),
        (torch.zeros(2), "a Tensor of shape [2] for a state; expected a number."),
        (np.zeros(2), "a ndarray of shape [2] for a state; expected a number."),
    ],
    ids=str,
)
def test_a_bound_that_is_no_number(bound: Any, said: str, decoder: Decoder) -> None:
    found = failure(decoder, first=Table(np.zeros((V, V))), mine=Bounded(bound))
    assert found == f"predictor 'mine': best_remaining returned {said}"


@pytest.mark.parametrize("decoder", [AStarDecoder(), DfsDecoder()], ids=str)
def test_a_bound_of_an_automaton_that_is_no_number(decoder: Decoder) -> None:
    assert failure(decoder, mine=BoundedAutomaton()).startswith("predictor 'mine': best_remaining returned NaN")


def test_a_bound_may_be_infinite() -> None:
    constellation = Constellation.of({"mine": Bounded(math.inf)}, vocab_size=V)
    (outcome,) = Scheduler(constellation, AStarDecoder()).run([Source(1, (3,), max_length=2)])
    assert outcome.error is None and outcome.result.proven


@pytest.mark.parametrize("key", [[1], {}, {1}])
def test_a_key_that_is_not_hashable(key: Any) -> None:
    found = failure(BeamDecoder(recombine=True), mine=Bounded(key=key))
    assert found.startswith(f"predictor 'mine': state_key returned a {type(key).__name__} for a state; expected a ha")


class Lists(Decoder):
    """Lists what it is told to make of the best node."""

    def __init__(self, made: Callable[[SearchSpace, Node], Any]) -> None:
        self.made = made

    def decode(self, space: SearchSpace) -> Result:
        node = space.root
        while not node.finished:
            ((node,),) = space.expand([node], limit=1)
        return Result([self.made(space, node)])


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda space, node: node, "Lists: its Result lists a Node; expected hypotheses, such as space.finish(node)"),
        (lambda space, node: node.tokens, "Lists: its Result lists a tuple; expected hypotheses"),
        (lambda space, node: replace(space.finish(node), rank_score=math.nan), "Lists: a hypothesis has the rank_sc"),
    ],
)
def test_a_result_without_hypotheses(made: Callable[[SearchSpace, Node], Any], said: str) -> None:
    assert failure(Lists(made), mine=Table(np.zeros((V, V)))).startswith(said)


@pytest.mark.parametrize("values", [np.zeros(V, complex), np.full(V, "x"), np.zeros(V, object), torch.zeros(V) * 1j])
def test_dense_scores_are_real_numbers(values: Any) -> None:
    with pytest.raises(TypeError, match=r"Scores\.dense takes real numbers, not an? (array|tensor) of type"):
        Scores.dense(values)
