"""A run says which predictor forbids, at most of the steps looked at, the token that a model scores highest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sgdec
from sgdec import EOS, Predictor, Scores
from sgdec.tasks.refusals import FIRST, LATER, Refusals
from sgdec.testing import BatchTable, Table

V, LENGTH = 7, 6
PREFERS = np.log([[0.01, 0.01, 0.05, 0.03, 0.6, 0.2, 0.1]] * V)
"""Token 4 is the best of all after each prefix, and 5 the next one."""
ALLOWED = [EOS, 3, 5, 6]


class Allows(Predictor):
    """After a prefix of n tokens, forbids token 4 if ``forbids(n)``, in one of the forms of scores that restrict."""

    max_score = 0.0

    def __init__(self, forbids: Any, form: str = "sparse") -> None:
        self.forbids, self.form, self.length = forbids, form, 0

    def predict_next(self, candidates: Any = None) -> Scores:
        allowed = [token for token in (EOS, 3, 4, 5, 6) if token != 4 or not self.forbids(self.length)]
        if self.form == "marks":
            return Scores.allowing(np.isin(np.arange(V), allowed)[None])
        if self.form == "listed":
            return Scores.listed(np.array([0, len(allowed)]), np.array(allowed), np.zeros(len(allowed)))
        if self.form == "open":
            return Scores.sparse([4], [-np.inf] if self.forbids(self.length) else [0.0], default=0.0)
        return Scores.sparse(allowed, [0.0] * len(allowed))

    def consume(self, token: int) -> None:
        self.length += 1

    def get_state(self) -> int:
        return self.length

    def set_state(self, state: int) -> None:
        self.length = state


def counted(predictors: dict[str, Any], decoder: str = "greedy", sentences: int = 1, **settings: Any) -> Refusals:
    run = sgdec.load(predictors, decoder, **{"max_length": LENGTH, **settings})
    refusals = Refusals(run.parts.constellation)
    assert all(found.error is None for found in run.decode([[3]] * sentences))
    return refusals


@pytest.mark.parametrize("form", ["sparse", "marks", "listed", "open"])
def test_each_form_of_a_constraint_counts(form: str) -> None:
    """Greedy search makes a step for each of the prefixes of 0 to 6 tokens, of which three are even and below 6."""
    refusals = counted({"model": Table(PREFERS), "allows": Allows(lambda n: n % 2 == 0 and n < LENGTH, form)})
    assert (refusals.steps, dict(refusals.forbidden)) == (LENGTH + 1, {("allows", "model"): 3})
    assert list(refusals.lines()) == []


@pytest.mark.parametrize(
    ("decoder", "settings"),
    [
        ("greedy", {"batch_size": 1}), ("greedy", {}), ("beam", {}), ("beam", {"beam": {"stop": "length"}}),
        ("vanilla", {}), ("astar", {}), ("dfs", {}), ("sample", {}), ("stochastic", {}), ("particles", {}),
        ("mbr", {}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("always", [True, False])
def test_every_decoder_is_looked_at(decoder: str, settings: dict[str, Any], always: bool) -> None:
    predictors = {"model": BatchTable(PREFERS), "allows": Allows(lambda n: always)}
    refusals = counted(predictors, decoder, 3, **settings)
    assert refusals.steps > 0
    assert refusals.forbidden["allows", "model"] == (refusals.steps if always else 0)
    (said,) = refusals.lines() if always else [""]
    assert (said == "") != always
    if always:
        assert said == (
            f"allows forbade the token that model scored highest at {refusals.steps} of the {refusals.steps} steps "
            "looked at: the constraint and the habits of model differ. Compare outputs without allows"
        )


def test_each_predictor_that_forbids_and_each_model_are_named() -> None:
    other = np.log([[0.01, 0.01, 0.05, 0.6, 0.03, 0.2, 0.1]] * V)
    predictors = {
        "first": Table(PREFERS), "second": Table(other), "half": Allows(lambda n: n < 3),
        "all": Allows(lambda n: True),
    }  # fmt: skip
    refusals = counted(predictors, "greedy")
    assert refusals.forbidden == {
        ("half", "first"): 3, ("all", "first"): 7, ("half", "second"): 0, ("all", "second"): 0,
    }  # fmt: skip
    assert [line.split(" at ")[0] for line in refusals.lines()] == [
        "all forbade the token that first scored highest"
    ]


@pytest.mark.parametrize("half", [3, 4])
def test_more_than_half_of_the_steps_are_needed(half: int) -> None:
    refusals = counted({"model": Table(PREFERS), "allows": Allows(lambda n: n < half)}, max_length=5)
    assert (refusals.steps, len(list(refusals.lines()))) == (6, int(half == 4))


def test_runs_without_a_constraint_or_without_a_model_count_nothing() -> None:
    assert counted({"model": Table(PREFERS)}).steps == 0
    assert counted({"model": Table(PREFERS), "second": Table(PREFERS)}).steps == 0
    assert counted({"allows": Allows(lambda n: True), "wc": "wc"}, vocab_size=V).steps == 0


def test_a_model_with_weight_0_wants_nothing() -> None:
    refusals = counted({"model": Table(PREFERS), "allows": Allows(lambda n: True)}, model={"weight": 0.0})
    assert list(refusals.lines()) == []


def test_of_a_long_run_the_first_steps_and_a_share_of_the_others_are_looked_at() -> None:
    refusals = counted({"model": Table(PREFERS), "allows": Allows(lambda n: True)}, sentences=50, batch_size=1)
    steps = 50 * (LENGTH + 1)
    assert refusals.steps == FIRST + steps // LATER - FIRST // LATER
