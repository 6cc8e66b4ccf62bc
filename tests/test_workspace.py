"""Memory decides how large batches are, and never ends a run: costs are measured and never underestimated where they
were, batches stay within the room, and what does not fit after all is split without changing what is learnt.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor

from sgdec.errors import SgdecError, UsageError
from sgdec.training import checkpoint, files, objective, train
from sgdec.training.budget import Tokens
from sgdec.training.data import MonolingualText, ParallelText, TextInMemory
from sgdec.training.trainer import Trainer
from sgdec.training.workspace import Workspace, features, measure_workspace, peak_bytes
from tests.training_case import PAIRS, losses, make_config

STILL: dict[str, Any] = {"width": 16, "dropout": 0.0, "init": 0.5}
MIB = 1 << 20


def random_text(sides: int, examples: int = 500) -> TextInMemory:
    draw = np.random.default_rng(1)
    targets = draw.integers(1, 60, examples)
    sources = np.maximum(1, targets + draw.integers(-8, 9, examples))
    rows: list[list[list[int]]] = [[[5] * n for n in lengths.tolist()] for lengths in (targets, sources)]
    numbers = list(range(1, examples + 1))
    return MonolingualText(rows[0], numbers) if sides == 1 else ParallelText(rows[1], rows[0], numbers, [], [])


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

    workspace = measure_workspace(100, text, measure, lambda text: None)
    assert len(asked) < 50
    fullest = 0.0
    for numbers in text.batches(workspace, order=(1, 0)):
        longest = text.lengths()[numbers].max(0).tolist()
        cost = taken(len(numbers), longest)
        assert workspace.cost(len(numbers), longest) == pytest.approx(cost, rel=0.02)
        assert cost <= 100 * MIB * 1.02
        fullest = max(fullest, cost)
    assert fullest > 95 * MIB


def test_costs_are_above_every_measurement_whatever_was_measured() -> None:
    draw = np.random.default_rng(1)
    text, measured = random_text(2), []

    def measure(numbers: list[int]) -> float:
        measured.append((len(numbers), text.lengths()[numbers[0]].tolist(), float(draw.uniform(5, 9)) * len(numbers)))
        return measured[-1][-1]

    workspace = measure_workspace(1, text, measure, lambda text: None)
    assert all(workspace.cost(examples, longest) >= taken * (1 - 1e-9) for examples, longest, taken in measured)
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

    assert measure_workspace(1, random_text(2), measure, lambda text: None).cost(5, (5, 5)) > 100


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
    trainer = Trainer(make_config(tmp_path, model=model, options=options, workspace=4), quiet=True)
    assert isinstance(trainer.budget, Workspace)
    trainer.model.train()
    peaks = []
    for numbers in trainer.data.batches(trainer.budget, order=(1, 0)):
        batch = trainer.data.batch(numbers)
        trainer.model.zero_grad()
        peaks.append(peak_bytes(lambda b=batch: trainer.updater.strategy.backward([b], b.weight), "cpu"))  # type: ignore[misc]
    assert max(peaks) < 4 * MIB * 1.05
    assert max(peaks) > 4 * MIB * 0.8


def test_a_killed_run_has_the_batches_that_were_measured_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"workspace": 3, "save_every": 2, "max_steps": 8, "bleu": 0}
    whole = losses(make_config(tmp_path, "whole", **settings))
    config = make_config(tmp_path, "killed", **settings)
    assert losses(config, steps=5) == whole[:5], "equal measurements"
    stored = checkpoint.read_config(tmp_path / "killed" / "last")["workspace"]
    assert stored["room"] == 3 * MIB and len(stored["terms"]) == 5
    monkeypatch.setattr("sgdec.training.workspace.peak_bytes", lambda *args: pytest.fail("measured again"))
    assert losses(config, resume=True) == whole[4:]
    with pytest.raises(UsageError, match=r"workspace was 3 in .*, now it is 4"):
        Trainer(make_config(tmp_path, "killed", **{**settings, "workspace": 4}), resume=True, quiet=True)


def test_too_little_memory_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sgdec.training.workspace.peak_bytes", lambda *args: 5.5 * MIB)
    with pytest.raises(UsageError, match=r"--workspace 5: a small batch alone takes 6 MiB, gradients included\."):
        Trainer(make_config(tmp_path, workspace=5), quiet=True)


class Fails(torch.autograd.Function):
    """Nothing, until the gradient comes back: then memory is out, with some gradients there already."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


def say_no(monkeypatch: pytest.MonkeyPatch, too_large: Callable[[Any], bool], *, late: bool = False) -> list[Any]:
    """Have batches fail that are too large, early or ``late`` in their update. Lists the batches that were tried."""
    nll, tried = objective.batch_nll, []

    def failing(model: Any, batch: Any, smoothing: float) -> Tensor:
        tried.append(batch)
        if too_large(batch) and not late:
            raise RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory")
        loss: Tensor = nll(model, batch, smoothing)
        if too_large(batch):
            outputs = model(*batch.inputs)
            return loss + 0 * Fails.apply(outputs).sum()  # type: ignore[no-untyped-call]
        return loss

    monkeypatch.setattr(objective, "batch_nll", failing)
    return tried


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_batches_that_do_not_fit_are_split_and_the_run_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], accumulate: int, late: bool
) -> None:
    settings: dict[str, Any] = {
        "precision": "fp64", "options": STILL, "accumulate": accumulate, "max_steps": 10, "bleu": 0
    }  # fmt: skip
    expected = losses(make_config(tmp_path, "whole", **settings))
    tried = say_no(monkeypatch, lambda batch: batch.mask.numel() > 20, late=late)
    config = make_config(tmp_path, "split", **settings)
    trainer = Trainer(config)
    assert list(trainer.steps()) == pytest.approx(expected, rel=1e-9)
    said = [line for line in capsys.readouterr().err.splitlines() if "out of memory" in line]
    assert 1 <= len(said) <= 5, "once it is known, no batch of this size is tried again"
    assert said[0].startswith("step 1: out of memory with ") and "are split from now on" in said[0]
    kept = [batch for batch in tried if batch.mask.numel() <= 20]
    assert {line for batch in kept for line in batch.lines} <= set(range(1, len(PAIRS) + 1))
    weights = [files.load_tensors(tmp_path / run / "last" / "model.safetensors") for run in ("whole", "split")]
    assert all(torch.allclose(weights[0][name], weights[1][name], rtol=0, atol=1e-9) for name in weights[0])
    ceiling = json.loads((tmp_path / "split" / "last" / "progress.json").read_text())["ceiling"]
    assert 20 * 0.9 < ceiling < 48 * 0.9
    longer = make_config(tmp_path, "split", **{**settings, "max_steps": 12})
    assert Trainer(longer, resume=True, quiet=True).updater.splitter.ceiling == ceiling


def test_an_example_that_does_not_fit_at_all_is_left_out_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = [1, 40]
    tried = say_no(monkeypatch, lambda batch: any(line in batch.lines for line in bad))
    config = make_config(tmp_path, max_steps=0, epochs=2.0, save_every=1, bleu=0)
    train(config)
    said = capsys.readouterr().err
    assert all(f"out of memory with line {line} alone; it is left out" in said for line in bad) and "2 so far" in said
    used = [line for batch in tried for line in batch.lines]
    assert set(used) == set(range(1, len(PAIRS) + 1))
    progress = files.read_json(tmp_path / "run" / "last" / "progress.json")
    assert sorted(progress["unfit"]) == bad


def test_an_update_of_which_nothing_fits_ends_the_run_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    say_no(monkeypatch, lambda batch: True)
    with pytest.raises(SgdecError, match=r"step 1: memory does not hold one of its examples\. Take a smaller"):
        losses(make_config(tmp_path))


def test_other_errors_are_not_taken_for_want_of_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any) -> Tensor:
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    monkeypatch.setattr(objective, "batch_nll", broken)
    with pytest.raises(RuntimeError, match="mat1"):
        losses(make_config(tmp_path))


def test_tokens_count_the_longer_side_with_padding() -> None:
    lengths: npt.NDArray[np.int64] = random_text(2).lengths()
    budget = Tokens(512)
    assert budget.cost(7, lengths[3].tolist()) == 7 * (lengths[3].max() + 1)
