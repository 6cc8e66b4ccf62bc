"""Memory decides how large batches are: costs are measured and never underestimated where they were, and batches stay
within the room, those of a validation as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor

from sgdec.checkpoints import layout
from sgdec.errors import SgdecError, UsageError
from sgdec.training import validation
from sgdec.training.data.budget import TokenCounts
from sgdec.training.data.workspace import Workspace, features, measure_workspace, peak_bytes
from sgdec.training.log import QUIET
from sgdec.training.preparing import prepare
from tests.helpers.random_text import random_text
from tests.helpers.training_case import PAIRS, losses, make_config, write_text

pytestmark = pytest.mark.slow

MIB = 1 << 20


def peak(workspace: Workspace, examples: int, longest: Sequence[int]) -> float:
    """What an update takes, as the model has it."""
    return max(workspace.floor, workspace.cost(examples, longest))


@pytest.mark.parametrize("sides", [1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_costs_are_found_from_measurements_and_batches_fill_the_room(sides: int, seed: int) -> None:
    """Costs of the model's own form: those of all batches are known to 2 %, though few were measured."""
    draw = np.random.default_rng(seed)
    text = random_text(sides)
    true = draw.uniform(0.2, 1, 5 if sides == 2 else 2) * ([3e4, 3e4, 100, 300, 100] if sides == 2 else [3e4, 300])
    true[draw.integers(len(true))] = 0

    def taken(examples: int, longest: list[int]) -> float:
        return max(2e6, examples * float(true @ features(longest)))

    asked = []

    def measure(numbers: list[int]) -> float:
        asked.append(len(numbers))
        return taken(len(numbers), text.lengths()[numbers[0]].tolist())

    workspace = measure_workspace(100, text, measure, QUIET)
    assert len(asked) < 50
    fullest = 0.0
    for numbers in text.batches(workspace, order=(1, 0)):
        longest = text.lengths()[numbers].max(0).tolist()
        cost = taken(len(numbers), longest)
        assert peak(workspace, len(numbers), longest) == pytest.approx(cost, rel=0.02)
        assert cost <= 100 * MIB * 1.02
        fullest = max(fullest, cost)
    assert fullest > 95 * MIB


def test_costs_are_above_every_measurement_whatever_was_measured() -> None:
    draw = np.random.default_rng(1)
    text, measured = random_text(2), []

    def measure(numbers: list[int]) -> float:
        measured.append((len(numbers), text.lengths()[numbers[0]].tolist(), float(draw.uniform(5, 9)) * len(numbers)))
        return measured[-1][-1]

    workspace = measure_workspace(1, text, measure, QUIET)
    assert all(peak(workspace, examples, longest) >= taken * (1 - 1e-9) for examples, longest, taken in measured)
    assert min(workspace.terms) >= 0


def test_the_memory_is_that_of_one_rank_where_several_share_a_batch() -> None:
    alone = Workspace(1000, 10, (1.0, 2.0, 0.0, 0.0, 0.5))
    for examples in range(1, 9):
        share = (examples + 2) // 3
        assert alone._replace(ranks=3).cost(examples, (4, 3)) == alone.cost(share, (4, 3))


def test_growth_ends_where_memory_does() -> None:
    def measure(numbers: list[int]) -> float:
        if len(numbers) > 100:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 7 bytes.")
        return 100.0 + len(numbers)

    assert peak(measure_workspace(1, random_text(2), measure, QUIET), 5, (5, 5)) > 100


def test_the_peak_counts_what_is_there_at_the_same_time() -> None:
    kilo = 256 * 1000  # floats: 1000 KiB

    def one_after_the_other() -> None:
        for _ in range(3):
            torch.ones(kilo)

    def at_once() -> list[Tensor]:
        return [torch.ones(kilo) for _ in range(3)]

    assert peak_bytes(one_after_the_other, "cpu") == pytest.approx(4 * kilo, rel=0.01)
    assert peak_bytes(at_once, "cpu") == pytest.approx(3 * 4 * kilo, rel=0.01)


@pytest.mark.parametrize(
    ("model", "options"),
    [("gnmt", {"width": 32}), ("transformer", {"width": 32, "layers": 2, "heads": 2, "feed_forward": 64})],
)
def test_batches_take_the_memory_that_was_promised(tmp_path: Path, model: str, options: dict[str, Any]) -> None:
    trainer = prepare(make_config(tmp_path, model=model, options=options, workspace=4), quiet=True)
    assert isinstance(trainer.budget, Workspace)
    trainer.model.train()
    peaks = []
    for numbers in trainer.data.batches(trainer.budget, order=(1, 0)):
        batch = trainer.data.batch(numbers)
        trainer.model.zero_grad()
        peaks.append(peak_bytes(lambda b=batch: trainer.updater.strategy.backward([b], b.weight), "cpu"))  # type: ignore[misc]
    assert max(peaks) < 4 * MIB * 1.05
    assert max(peaks) > 4 * MIB * 0.8


def test_validation_takes_no_more_memory_than_updates(tmp_path: Path) -> None:
    config = make_config(tmp_path, workspace=2, bleu=0)
    trainer = prepare(replace(config, valid=write_text(tmp_path, "long", PAIRS * 30)), quiet=True)
    trainer.model.eval()
    all_at_once = peak_bytes(lambda: validation.perplexity(trainer.model, trainer.inputs.valid), "cpu")
    assert peak_bytes(trainer._score, "cpu") < 2 * MIB < all_at_once


def test_a_killed_run_has_the_batches_that_were_measured_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"workspace": 3, "save_every": 2, "max_steps": 8, "bleu": 0}
    whole = losses(make_config(tmp_path, "whole", **settings))
    config = make_config(tmp_path, "killed", **settings)
    assert losses(config, steps=5) == whole[:5], "equal measurements"
    stored = layout.read_config(tmp_path / "killed" / "last")["workspace"]
    assert stored["room"] == 3 * MIB and len(stored["terms"]) == 5
    monkeypatch.setattr("sgdec.training.data.workspace.peak_bytes", lambda *args: pytest.fail("measured again"))
    assert losses(config, resume=True) == whole[4:]
    with pytest.raises(UsageError, match=r"workspace was 3 in .*, now it is 4"):
        prepare(make_config(tmp_path, "killed", **{**settings, "workspace": 4}), resume=True, quiet=True)


def test_memory_without_room_for_the_first_measurement_is_one_line() -> None:
    def measure(numbers: list[int]) -> float:
        raise MemoryError

    with pytest.raises(SgdecError, match=r"--workspace 1: memory does not hold \d+ examples of \d+ and \d+ tokens\."):
        measure_workspace(1, random_text(2), measure, QUIET)


def test_too_little_memory_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sgdec.training.data.workspace.peak_bytes", lambda *args: 5.5 * MIB)
    with pytest.raises(UsageError, match=r"--workspace 5: a small batch alone takes 6 MiB, gradients included\."):
        prepare(make_config(tmp_path, workspace=5), quiet=True)


def test_tokens_count_the_longer_side_with_padding() -> None:
    lengths: npt.NDArray[np.int64] = random_text(2).lengths()
    budget = TokenCounts(512)
    assert budget.cost(7, lengths[3].tolist()) == 7 * (lengths[3].max() + 1)
