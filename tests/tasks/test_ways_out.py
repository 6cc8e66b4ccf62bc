"""The promise: what a note or an error advises runs with the predictors and the decoder at hand, and helps."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

import sgdec
from sgdec import EOS, Predictor, Scores, UsageError
from sgdec.library import LoadedRun
from sgdec.protocol import Candidates, Source
from sgdec.tasks.diagnosis.cases import Case
from sgdec.tasks.diagnosis.findings import findings
from sgdec.tasks.diagnosis.proving import ProofBudget
from sgdec.tasks.diagnosis.run import diagnose
from sgdec.tasks.diagnosis.summary import summarise

SENTENCE = (3, 3, 3)


class Rising(Predictor):
    """Prefers to end at once to the first token "3", whose successor scores 2. Declares no bound."""

    _tokens = ({EOS: -0.5, 3: -1.0}, {EOS: -9.0, 3: 2.0}, {EOS: -0.1, 3: -1.0})

    def __init__(self) -> None:
        self._length = 0

    def initialize(self, source: Source) -> None:
        self._length = 0

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        scores = np.full(4, -math.inf)
        for token, score in self._tokens[min(self._length, 2)].items():
            scores[token] = score
        return Scores.dense(scores)

    def consume(self, token: int) -> None:
        self._length += 1

    def get_state(self) -> int:
        return self._length

    def set_state(self, state: int) -> None:
        self._length = state


class Bounded(Rising):
    max_score = 2.0


def load(decoder: str, predictor: Predictor, max_length: int | None = None, **options: Any) -> LoadedRun:
    return sgdec.load({"rising": predictor}, decoder, vocab_size=4, max_length=max_length, **{decoder: options})


def rank(run: LoadedRun) -> float:
    (found,) = run.decode([SENTENCE])
    return found.best.rank_score


@pytest.mark.parametrize("max_length", [None, 0], ids=["limited", "unlimited"])
@pytest.mark.parametrize("predictor", [Rising, Bounded])
@pytest.mark.parametrize(
    ("decoder", "options"),
    [
        ("beam", {}), ("beam", {"stop": "hf-true", "size": 1}), ("beam", {"stop": "hf-false", "size": 1}),
        ("vanilla", {}), ("sepbeam", {}), ("bestfirst", {}),
    ],
)  # fmt: skip
def test_each_stop_that_a_note_names_runs_and_finds_what_was_missed(
    decoder: str, options: dict[str, Any], predictor: type[Predictor], max_length: int | None
) -> None:
    run = load(decoder, predictor(), max_length, **options)
    assert run.caveat is not None
    why, _, way_out = run.caveat.partition("; ")
    assert ("totals can rise" in why or "hf-true" in why) and way_out.endswith(" cannot.")
    stops = re.findall(r"stop (\w+)", way_out)
    assert stops == ["length", "proven"][: 1 + (predictor is Bounded and max_length is None)]
    limit = 3 if "--max-length N" in way_out else max_length
    for stop in stops:
        size = {"size": options["size"]} if "size" in options else {}
        other = load("beam" if way_out.startswith("beam ") else decoder, predictor(), limit, stop=stop, **size)
        assert other.caveat is None and rank(other) == pytest.approx(0.9) and rank(run) == -0.5


def test_a_heuristic_is_named_where_predictors_declare_it() -> None:
    cut = [load("astar", make(), heuristic="none") for make in (Rising, Bounded)]
    why = "with heuristic none the search can miss the best hypothesis, because totals can rise"
    assert [run.caveat for run in cut] == [f"{why}.", f"{why}; with heuristic predictor it cannot."]
    assert rank(cut[1]) == -0.5 and rank(load("astar", Bounded(), heuristic="predictor")) == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("decoder", "options"),
    [
        ("beam", {"stop": "length"}), ("beam", {"stop": "hf-never", "alpha": 1.0, "normalize": "length"}),
        ("beam", {"stop": "proven"}), ("dfs", {}), ("astar", {}),
    ],
)  # fmt: skip
def test_a_search_without_an_end_is_refused_for_a_length_limit_and_nothing_else(
    decoder: str, options: dict[str, Any]
) -> None:
    with pytest.raises(UsageError, match=r": give --max-length N\.$"):
        rank(load(decoder, Bounded(), 0, **options))
    assert rank(load(decoder, Bounded(), 3, **options)) > -0.5


def test_a_search_that_its_budget_ends_has_a_limit_first_and_then_a_larger_budget() -> None:
    parts: dict[str, Any] = {"wc": {"weight": -1.0}, "minlength": {"tokens": 10}}
    said = []
    for max_length, budget in [(0, 5), (20, 5), (20, 500)]:
        given = {**parts, "astar": {"max_expansions": budget}}
        run = sgdec.load("wc,minlength", "astar", vocab_size=5, max_length=max_length, **given)
        (found,) = run.decode([SENTENCE])
        said.append(str(found.error).rpartition("; give it ")[2])
    assert said == ["a length limit (--max-length N) and a larger budget.", "a larger budget.", "None"]


def unknown(predictor: Predictor, budget: ProofBudget, *witness: int, max_length: int | None = 6) -> tuple[int, str]:
    """The number of sentences of which nothing is known, and what the report advises. The reference is worse."""
    run = load("greedy", predictor, 0 if max_length is None else max_length)
    witnesses = (("other run", witness),) if witness else ()
    case = Case(Source(1, SENTENCE, max_length=max_length), (3,), "", witnesses)
    summary = summarise(diagnose(run, [case], budget))
    (advice,) = [line for line in findings(summary) if line.startswith("Search errors are unknown")] or [""]
    return summary.unknown.sentences, advice.rpartition(": ")[2]


def test_the_report_names_what_can_tell_about_unknown_searches() -> None:
    assert unknown(Bounded(), ProofBudget("none")) == (1, "--witness FILE, or --proof astar, can tell.")
    assert unknown(Bounded(), ProofBudget("astar", 1)) == (
        1,
        "--witness FILE, or a larger --max-expansions, can tell.",
    )
    assert unknown(Bounded(), ProofBudget("astar", 300)) == (0, "")
    assert unknown(Rising(), ProofBudget("none")) == (1, "--witness FILE can tell.")
    assert unknown(Rising(), ProofBudget("none"), 3, 3) == (0, "")
    assert unknown(Bounded(), ProofBudget("astar", 1), max_length=None) == (1, "--witness FILE can tell.")


def test_a_proof_that_predictors_do_not_allow_is_left_out_as_the_error_says() -> None:
    with pytest.raises(UsageError, match=r"^--proof dfs: no bound is known .* 'rising', .*; give --proof none\.$"):
        unknown(Rising(), ProofBudget("dfs"))
    assert unknown(Rising(), ProofBudget("none"))[0] == 1
