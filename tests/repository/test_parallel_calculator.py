"""The calculator of scaling factors: its formulas, against what they stand for, simulated."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.places import ROOT

sys.path.append(str(ROOT / "benchmarks"))

from parallel_model import PAPER, Link, Prediction, fit_dispatch, fit_replicas, wave
from parallel_times import Device, Shape, Table

SHAPE = Shape()
PLAIN = Prediction(SHAPE, Device(SHAPE), Link())


@given(st.integers(1, 12), st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_a_wave_takes_as_long_as_its_last_step_on_the_last_stage(steps: int, stages: list[int]) -> None:
    """A stage starts a step when it has ended the step before, and the stage below has ended this one."""
    ended = [0] * len(stages)
    for _ in range(steps):
        before = 0
        for stage, seconds in enumerate(stages):
            before = ended[stage] = max(before, ended[stage]) + seconds
    assert wave(steps, stages) == ended[-1]


def test_parameters_are_those_of_the_model() -> None:
    from sgdec.models.base import ModelContext
    from sgdec.models.luong import Luong

    shape = Shape(layers=3, width=8, embedding=6, vocabulary=29)
    model = Luong(ModelContext(29, 29), layers=3, width=8, embedding=6, input_feeding=True)
    assert shape.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert SHAPE.parameters == pytest.approx(142e6, rel=0.05)  # section 4.3


def free(**seconds: float) -> Prediction:
    """Times without fixed parts, no update, links that cost nothing."""
    table = {"update": {"1": 0.0}}
    for what in ("layer", "attend", "attend_all", "softmax"):
        table[what] = {str(size): seconds.get(what, 0.0) * size for size in (32, 64, 256)}
    return Prediction(SHAPE, Table(table), Link(bandwidth=float("inf"), latency=0.0))


def test_without_costs_of_communication_data_parallelism_is_ideal() -> None:
    assert free(layer=1.0, attend=0.5, softmax=2.0).factors()["data"] == pytest.approx(4.0)


def test_if_the_softmax_is_all_hybrid_parallelism_is_ideal_and_model_parallelism_of_no_use() -> None:
    factors = free(softmax=1.0).factors()
    assert factors["model"] == pytest.approx(1.0)
    assert factors["HybridNMT"] == factors["HybridNMTIF"] == pytest.approx(4.0)


def test_if_layers_are_all_a_fed_decoder_gains_nothing() -> None:
    """4 layers on 3 devices, two of them on one: a wave of n steps takes n + 1 times two layers' time."""
    wave_of_one = (28 + 1) * 2
    factors = free(layer=1.0).factors()
    assert factors["model"] == pytest.approx(8 * 28 / (wave_of_one + 4 * 28))
    assert factors["HybridNMT"] == pytest.approx(8 * 28 / (2 * wave_of_one))


def test_measured_times_are_interpolated() -> None:
    table = Table({"layer": {"10": 1.0, "20": 3.0, "40": 4.0}})
    assert [table.layer(size) for size in (10, 15, 20, 30, 60)] == [1.0, 2.0, 3.0, 3.5, 5.0]


def test_messages_cost_latency_and_volume() -> None:
    link = Link(bandwidth=4e9, latency=1e-3)
    assert link.message(1e9) == pytest.approx(1.001)
    assert link.ring(4e9) == pytest.approx(6 * 1.001)  # 2 (W-1) messages of a quarter
    assert Link(replicas=2e9).synchronise(1e9) == pytest.approx(2.0)


def test_table_3_two_rows_fitted_two_predicted() -> None:
    """Within 20 % of the paper's WMT14; the numbers that are fitted are two."""
    fitted = fit_replicas(fit_dispatch(PLAIN, Device(SHAPE), PAPER["model"][0]), PAPER["data"][0])
    factors = fitted.factors()
    assert factors["data"] == pytest.approx(1.60) and factors["model"] == pytest.approx(2.32)
    for mode, figures in PAPER.items():
        assert factors[mode] == pytest.approx(figures[0], rel=0.2)
