"""GNMT's constraints are annealed by updates, never undone, and a model at their end is what a run hands over.

Wu et al. 2016, section 6: delta falls from 8 to 1 "towards the end of training", and is 1 at inference.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgdec.checkpoints.loading import load_model
from sgdec.cli.main import main
from sgdec.errors import UsageError
from sgdec.models.base import ModelContext
from sgdec.models.gnmt import FINAL_DELTA, GNMT
from sgdec.training.preparing import prepare
from tests.helpers.training_case import make_config

pytestmark = pytest.mark.slow

CONTEXT = ModelContext(source_vocab_size=23, target_vocab_size=29)
OPTIONS: dict[str, Any] = {"width": 8, "constrained": True}


def make(**options: Any) -> GNMT:
    return GNMT(CONTEXT, **{**OPTIONS, **options})


def delta_of(folder: Path) -> float:
    """Of the model in a checkpoint."""
    model, _ = load_model(folder)
    assert isinstance(model, GNMT) and model.delta is not None
    return model.delta


def test_delta_falls_from_8_to_1_by_equal_factors() -> None:
    model = make()
    deltas: list[float] = []
    for update in range(11):
        model.anneal(update, 10)
        assert model.delta is not None
        deltas.append(model.delta)
    assert deltas[:9] == pytest.approx([8 ** (1 - update / 8) for update in range(9)])
    assert deltas[8:] == [FINAL_DELTA] * 3


def test_delta_falls_over_as_many_updates_as_the_option_says_whatever_is_planned() -> None:
    for last in (3, 1000):
        model = make(anneal_updates=4)
        for update, expected in enumerate([8.0, 8**0.75, 8**0.5, 8**0.25, 1.0]):
            model.anneal(update, last)
            assert model.delta == pytest.approx(expected)


def test_a_model_without_constraints_has_no_delta_and_is_settled() -> None:
    free = make(constrained=False)
    free.anneal(1, 2)
    assert free.delta is None and free.unsettled is None
    with pytest.raises(UsageError, match="anneal_updates does nothing without constrained"):
        make(constrained=False, anneal_updates=3)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=20), st.none() | st.integers(1, 40))
def test_delta_never_widens_whatever_a_resumed_run_plans(calls: list[tuple[int, int]], updates: int | None) -> None:
    model, before = make(anneal_updates=updates), 8.0
    for update, last in calls:
        model.anneal(update, last)
        assert model.delta is not None and FINAL_DELTA <= model.delta <= before
        assert (model.unsettled is None) == (model.delta == FINAL_DELTA)
        before = model.delta


def test_refining_takes_the_end_of_the_annealing() -> None:
    model = make(anneal_updates=1000)
    model.anneal(math.inf, 10)
    assert model.delta == FINAL_DELTA and model.unsettled is None


def test_checkpoints_keep_delta_and_a_resumed_run_of_more_steps_does_not_widen_it(tmp_path: Path) -> None:
    def config(steps: int) -> Any:
        return make_config(tmp_path, options=OPTIONS, bleu=0, save_every=2, max_steps=steps)

    trainer = prepare(config(4), quiet=True)
    assert isinstance(trainer.model, GNMT)
    deltas = []
    for _ in trainer.steps():
        deltas.append(trainer.model.delta)
        if len(deltas) >= 3:
            assert delta_of(tmp_path / "run" / "last") == pytest.approx(deltas[1 if len(deltas) == 3 else 3])
    assert deltas == pytest.approx([8.0, 8.0 ** (1 - 1 / 3 / 0.8), 8.0 ** (1 - 2 / 3 / 0.8), 1.0])

    resumed = prepare(config(40), resume=True, quiet=True)
    assert isinstance(resumed.model, GNMT)
    assert [resumed.model.delta for _, _ in zip(range(4), resumed.steps(), strict=False)] == [1.0] * 4


def test_the_best_checkpoint_is_one_of_the_final_delta(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if every validation before it was better, and patience begins to count there."""
    options = {**OPTIONS, "anneal_updates": 6}
    config = make_config(tmp_path, options=options, bleu=0, validate_every=2, max_steps=40, patience=2)
    trainer = prepare(config, quiet=True)
    perplexities = iter([5.0, 6.0, 7.0, 9.0, 9.5, 9.8, 9.9])
    monkeypatch.setattr(trainer, "_score", lambda: {"perplexity": next(perplexities)})
    assert trainer.run().steps == 12, "validated after 2, 4, 6 (still wide), 8 (delta 1: the best), 10 and 12"
    assert (tmp_path / "run" / "best").resolve().name == "step-8"
    assert delta_of(tmp_path / "run" / "best") == FINAL_DELTA
    assert json.loads((tmp_path / "run" / "last" / "progress.json").read_text())["best"] == -9.0


def test_a_run_without_a_final_checkpoint_and_a_model_quantised_from_it_say_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level("INFO", "sgdec")
    config = make_config(tmp_path, options={**OPTIONS, "layers": 3, "anneal_updates": 100}, bleu=0, max_steps=3)
    prepare(config).run()
    said = "cells are clipped to 7.67, not yet to the 1 of 8-bit inference"
    assert any(message.startswith(f"no checkpoint is final: {said}") for message in caplog.messages)
    assert main(["quantize", str(tmp_path / "run"), "--output", str(tmp_path / "int8")]) == 0
    assert said in capsys.readouterr().err
