"""From finite scores and weights comes a finite total, or an error that names the predictor and exit status 1.

Each case is tried in every form in which a predictor can answer, since each has sums of its own: lists short and
long, matrices in either precision, open rows, automata; sentences alone and in batches; searches of every kind.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from sgdec_decoders.astar import AStarDecoder
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.greedy import GreedyDecoder
from sgdec_decoders.sample import SampleDecoder
from sgdec_decoders.vanilla import VanillaDecoder

from sgdec.cli.main import main
from sgdec.context import EOS
from sgdec.decoder import Decoder
from sgdec.errors import SgdecError
from sgdec.protocol import BatchPredictor, Candidates, Scores, Source, SparseRow, State, Steps
from sgdec.search.constellation import Constellation
from sgdec.search.scheduler import Scheduler
from sgdec.testing import Table
from tests.helpers.breadth import EXHAUSTIVE

V = 130
"""More than are ever summed one by one."""
INF = math.inf
HUGE = 1.5e308
Row = dict[int, float]


class Says(BatchPredictor):
    """The same scores after every prefix: those of a few tokens, and 0 for all others (or nothing, in a list)."""

    def __init__(self, row: Row) -> None:
        self.row = row

    def initialize_batch(self, sources: Sequence[Source]) -> list[State]:
        return [0] * len(sources)

    def consume_batch(self, states: Sequence[State], tokens: Sequence[int]) -> list[State]:
        return list(states)

    def matrix(self, rows: int) -> np.ndarray:
        return np.tile([self.row.get(token, 0.0) for token in range(V)], (rows, 1))

    def predict_batch(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        return Scores.dense(self.matrix(len(states)))


class Single(Says):
    def predict_batch(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        with np.errstate(over="ignore"):
            return Scores.dense(self.matrix(len(states)).astype(np.float32))


class Tensor(Says):
    def predict_batch(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        return Scores.dense(torch.from_numpy(self.matrix(len(states))))


class SingleTensor(Says):
    def predict_batch(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        return Scores.dense(torch.from_numpy(self.matrix(len(states))).float())


class Open(Says):
    def predict_batch(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        return Scores(rows=[SparseRow(list(self.row), list(self.row.values()), 0.0) for _ in states])


class OnDemand(Says):
    on_demand = True

    def predict_batch(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        if candidates is None or any(tokens is None for tokens in candidates):
            return super().predict_batch(states)
        flat = [self.row.get(token, 0.0) for tokens in candidates for token in tokens or ()]
        return Scores.of_candidates(candidates, np.array(flat))


class Few(Says):
    """Lists the tokens of its row alone."""

    def predict_batch(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        return Scores(rows=[SparseRow(list(self.row), list(self.row.values())) for _ in states])


class Many(Says):
    """Lists all tokens."""

    def predict_batch(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        return Scores(rows=[SparseRow(range(V), self.matrix(1)[0].tolist()) for _ in states])


class Automaton(Many):
    def steps(self, state: State, candidates: Candidates | None) -> Steps:
        tokens = range(V) if candidates is None else candidates
        return tokens, [self.row.get(token, 0.0) for token in tokens], [state] * len(tokens)


FORMS: list[type[Says]] = [Says, Tensor, Open, OnDemand, Few, Many, Automaton]
DECODERS: list[Decoder] = [
    GreedyDecoder(), BeamDecoder(stop="full"), VanillaDecoder(stop="full"), SampleDecoder(samples=3),
]  # fmt: skip


def decoded(
    decoder: Decoder, weights: Sequence[float | None], predictors: dict[str, BatchPredictor], batch_size: int = 2
) -> list[str | tuple[int, ...]]:
    """For each of two sentences the error, or the tokens of the first hypothesis."""
    constellation = Constellation.of(predictors, weights=weights, vocab_size=V)
    sources = [Source(number, (3,), max_length=2) for number in (1, 2)]
    found: list[str | tuple[int, ...]] = []
    for outcome in Scheduler(constellation, decoder, nbest=3, batch_size=batch_size).run(sources):
        assert outcome.error is None or type(outcome.error) is SgdecError, outcome.error
        for hypothesis in outcome.result.hypotheses:
            assert math.isfinite(hypothesis.score) and math.isfinite(hypothesis.rank_score)
        found.append(str(outcome.error) if outcome.error else outcome.result.hypotheses[0].tokens)
    return found


def errors(decoder: Decoder, weights: Sequence[float], rows: Sequence[Row], forms: Sequence[type[Says]]) -> list[str]:
    """What all sentences fail with, alone and in batches."""
    made: dict[str, BatchPredictor] = {
        name: form(row) for name, form, row in zip("abc", forms, rows, strict=False)
    }
    found = decoded(decoder, weights, made, batch_size=1)
    assert all(isinstance(each, str) for each in found), found
    assert decoded(decoder, weights, made, batch_size=2) == found
    return [str(each) for each in found]


def usable(decoder: Decoder, form: type[Says]) -> bool:
    return not (isinstance(decoder, VanillaDecoder) and form in (Few, Many, Automaton))


OVERFLOWS = "overflows at token 3: predictor 'a' scores -20"
SINGLE: dict[str, tuple[float, Row, str]] = {
    "a weight times a score, upwards": (-1e308, {3: -20.0, EOS: 0.0}, OVERFLOWS),
    "a weight times a score, downwards": (1e308, {3: -20.0, EOS: 0.0}, OVERFLOWS),
    "a score of inf": (1.0, {3: INF, EOS: 0.0}, "predictor 'a' gave inf as the score of token 3"),
    "inf with a negative weight": (-1.0, {3: INF, EOS: 0.0}, "predictor 'a' gave inf as the score of token 3"),
    "inf with weight 0": (0.0, {3: INF, EOS: 0.0}, "predictor 'a' gave inf as the score of token 3"),
    "NaN": (0.5, {3: math.nan, EOS: 0.0}, "predictor 'a' gave NaN as the score of token 3"),
}


@pytest.mark.slow
@pytest.mark.parametrize("decoder", DECODERS, ids=lambda decoder: type(decoder).__name__)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", SINGLE)
def test_one_score_and_its_weight(case: str, form: type[Says], decoder: Decoder) -> None:
    weight, row, message = SINGLE[case]
    if usable(decoder, form):
        assert message in errors(decoder, [weight], [row], [form])[0]


PAIRS = [
    (first, second, decoder)
    for i, (first, second) in enumerate(product(FORMS, FORMS))
    for decoder in (DECODERS if EXHAUSTIVE else [DECODERS[(i + i // 7) % 4], DECODERS[(i + i // 7 + 2) % 4]])
]
"""All pairs of forms; in `make test`, each with every other decoder, which are the others for the next pair."""


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second", "decoder"), PAIRS)
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_two_scores_that_are_finite(sign: float, first: type[Says], second: type[Says], decoder: Decoder) -> None:
    if usable(decoder, first) and usable(decoder, second):
        rows = [{5: sign * 0.8 * HUGE, EOS: 0.0}, {5: sign * HUGE, EOS: 0.0}]
        found = errors(decoder, [1.0, 1.0], rows, [first, second])[0]
        assert f"overflows at token 5: predictor 'b' scores {sign * HUGE:g} with weight 1;" in found


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("decoder", DECODERS, ids=lambda decoder: type(decoder).__name__)
def test_a_total_that_grows_too_large_with_its_tokens(decoder: Decoder, sign: float, form: type[Says]) -> None:
    if usable(decoder, form):
        row = dict.fromkeys(range(V), sign * HUGE)  # of every token, so that no other way is left
        assert "the total overflows at token" in errors(decoder, [1.0], [row], [form])[0]


@pytest.mark.parametrize("form", [Few, Many, Automaton, Says])
def test_exact_searches_find_it_as_well(form: type[Says]) -> None:
    row = {3: HUGE, EOS: 0.0}
    found = decoded(AStarDecoder(heuristic="none"), [1.0], {"a": form(row)})
    assert all(isinstance(each, str) and "predictor 'a' scores 1.5e+308" in each for each in found), found


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("decoder", DECODERS, ids=lambda decoder: type(decoder).__name__)
@pytest.mark.parametrize("weight", [1e308, -1e308, 1.0, 0.0])
def test_a_forbidden_token_stays_forbidden_whatever_the_weight(
    weight: float, decoder: Decoder, form: type[Says]
) -> None:
    if usable(decoder, form):
        listed = {3: -INF, EOS: 0.0, 4: 0.0}
        for found in decoded(decoder, [1.0, weight], {"a": Says({EOS: 0.5}), "b": form(listed)}):
            assert not isinstance(found, str) and 3 not in found


@pytest.mark.parametrize("form", FORMS)
def test_what_another_predictor_forbids_cannot_overflow(form: type[Says]) -> None:
    """Its product has no sum to be in."""
    predictors: dict[str, BatchPredictor] = {"a": form({3: -20.0, EOS: 0.0}), "b": Says({3: -INF, EOS: 1.0})}
    for decoder in (GreedyDecoder(), BeamDecoder()):
        assert decoded(decoder, [1e308, 1.0], predictors) == [(), ()]


@pytest.mark.parametrize("decoder", DECODERS, ids=lambda decoder: type(decoder).__name__)
def test_a_matrix_in_single_precision_may_overflow_earlier_but_not_unseen(decoder: Decoder) -> None:
    """In float32 all of these are -inf, and their order is lost, though each is a number in float64."""
    row = {token: -float(token + 1) for token in range(V)}
    assert "overflows at token" in errors(decoder, [1e39], [row], [Single])[0]


def test_sums_of_matrices_in_single_precision_are_watched_too() -> None:
    rows = [dict.fromkeys(range(V), -2e38), dict.fromkeys(range(V), -2.5e38)]
    for forms in ((Single, Single), (Single, SingleTensor), (SingleTensor, SingleTensor), (Single, Open)):
        for decoder in (GreedyDecoder(), VanillaDecoder()):
            assert "overflows" in errors(decoder, [1.0, 1.0], rows, forms)[0]


def test_large_but_finite_totals_are_what_they_are() -> None:
    """No false alarm where only a check could overflow."""
    for form in FORMS:
        row = {token: -1e304 * (token + 1) for token in range(V)}
        found = decoded(BeamDecoder(stop="full"), [1.0, 1.0], {"a": form(row), "b": Table(np.zeros((V, V)))})
        assert found == [(), ()]


# Through the command line.

ARPA = "\\data\\\nngram 1=4\n\n\\1-grams:\n-99\t<s>\t{}\n-1\t</s>\n-1\t3\t0\n-1\t4\t0\n\n\\end\\\n"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    monkeypatch.chdir(tmp_path)
    Path("in.ids").write_text("3\n4 4\n")
    Path("out.ids").write_text("3 4\n3\n")
    Path("lm.arpa").write_text(ARPA.format("1e308"))

    def command(*args: str) -> str:
        assert main(list(args)) == 1
        return capsys.readouterr().err

    return command


@pytest.mark.parametrize("decoder", ["greedy", "beam", "vanilla", "sample"])
@pytest.mark.parametrize("weight", ["-1e308", "-1.7e308"])
def test_the_weight_of_a_count(run: Callable[..., str], decoder: str, weight: str) -> None:
    options = ["--predictors", "wc", "--wc.weight", weight, "--vocab-size", "5", "--input-format", "ids"]
    error = run("decode", *options, "--max-length", "4", "--decoder", decoder, "in.ids")
    for sentence in (1, 2):
        assert f"Warning: sentence {sentence}: the total overflows at token" in error
    assert "predictor 'wc' scores -1 with weight" in error and "Traceback" not in error


def test_the_weight_of_a_count_in_scoring(run: Callable[..., str]) -> None:
    options = ["--predictors", "wc", "--wc.weight", "-1.7e308", "--vocab-size", "5", "--input-format", "ids"]
    error = run("score", *options, "--target-format", "ids", "in.ids", "out.ids")
    assert "the total overflows at token 4: predictor 'wc' scores -1" in error and "Traceback" not in error


def test_a_backoff_that_no_number_holds_is_refused_when_it_is_read(run: Callable[..., str]) -> None:
    options = ["--predictors", "ngram", "--ngram.path", "lm.arpa", "--vocab-size", "5", "--input-format", "ids"]
    assert run("decode", *options, "in.ids").startswith("Error: lm.arpa: line 5: ")
