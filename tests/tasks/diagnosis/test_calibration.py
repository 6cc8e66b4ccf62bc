"""Reliability diagrams and the expected calibration error are those of the definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sgdec
from sgdec.protocol import Candidates, Predictor, Scores, Source
from sgdec.tasks.diagnosis.calibration import reliability
from sgdec.tasks.diagnosis.cases import Case
from sgdec.tasks.diagnosis.proving import ProofBudget
from sgdec.tasks.diagnosis.run import ALL, diagnose

pairs = st.lists(st.tuples(st.floats(1e-9, 1.0), st.booleans()), max_size=40)


@given(pairs, st.integers(1, 15))
def test_the_error_is_that_of_equations_2_to_5(steps: list[tuple[float, bool]], bins: int) -> None:
    found = reliability([p for p, _ in steps], [right for _, right in steps], bins)
    assert found.steps == len(steps) and sum(each.steps for each in found.bins) == len(steps)
    if not steps:
        assert found.error is None and found.accuracy is None
        return
    error = 0.0
    for number in range(bins):
        inside = [(p, right) for p, right in steps if number < p * bins <= number + 1]
        each = found.bins[number]
        assert each.low == pytest.approx(number / bins) and each.steps == len(inside)
        if inside:
            accuracy = np.mean([right for _, right in inside])
            confidence = np.mean([p for p, _ in inside])
            assert (each.accuracy, each.confidence) == pytest.approx((accuracy, confidence))
            error += len(inside) / len(steps) * abs(accuracy - confidence)
    assert found.error == pytest.approx(error)


class Draws(Predictor):
    """A distribution for each last token, drawn once; at 12 tokens only the end can follow."""

    V = 8

    def __init__(self, sharpness: float) -> None:
        logits = np.random.default_rng(5).normal(size=(self.V, self.V)) * sharpness
        logits[:, [0, 1]] = -30.0
        self.rows = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        self.last = 0

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        return Scores.dense(self.rows[self.last])

    def consume(self, token: int) -> None:
        self.last = token

    def get_state(self) -> int:
        return self.last

    def set_state(self, state: int) -> None:
        self.last = state

    def initialize(self, source: Source) -> None:
        self.last = 0


@pytest.mark.slow
def test_a_model_is_calibrated_for_its_own_samples_and_not_when_it_is_sharpened() -> None:
    """References are drawn from the model itself, so its probabilities are right; with weight 3 it is too sure."""
    model, longest = Draws(2.0), 40
    sampler = sgdec.load({"m": model}, "sample", vocab_size=model.V, max_length=longest)
    drawn = [found.best.tokens for found in sampler.decode([[3]] * 500)]
    run = sgdec.load({"m": model}, "greedy", vocab_size=model.V, m={"weight": 3.0})
    cases = [Case(Source(number, (3,), max_length=longest), tokens, "") for number, tokens in enumerate(drawn, 1)]
    found = diagnose(run, cases, ProofBudget("none")).calibration
    sharp, alone = found[ALL], found["m"]
    assert sharp.steps == alone.steps == sum(len(tokens) + 1 for tokens in drawn)
    assert None not in (sharp.error, alone.error, sharp.confidence, sharp.accuracy)
    print(sharp[:4], alone[:4])
    assert alone.error < 0.03
    assert sharp.error > 0.1 and sharp.confidence > sharp.accuracy + 0.1
