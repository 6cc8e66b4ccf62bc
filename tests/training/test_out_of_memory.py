"""Memory that runs out never harms a run: what does not fit is split without changing what is learnt, or left out,
counted and remembered; and where nothing helps, the run ends in one line and its last checkpoint stands.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from sgdec.checkpoints import files, layout
from sgdec.errors import SgdecError
from sgdec.training import train, trainer, validation
from sgdec.training.data.workspace import Workspace, peak_bytes
from sgdec.training.objectives import expected_reward, likelihood
from sgdec.training.out_of_memory import IN_A_ROW, Splitter
from sgdec.training.preparing import prepare
from sgdec.training.run.report import METRICS, read_metrics
from tests.helpers.random_text import random_text
from tests.helpers.training_case import PAIRS, losses, make_config

pytestmark = pytest.mark.slow

STILL: dict[str, Any] = {"width": 16, "dropout": 0.0, "init": 0.5}
NO = "[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"


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
    nll, tried = likelihood.batch_nll, []

    def failing(model: Any, batch: Any, smoothing: float) -> Tensor:
        tried.append(batch)
        if too_large(batch) and not late:
            raise RuntimeError(NO)
        loss: Tensor = nll(model, batch, smoothing)
        if too_large(batch):
            outputs = model(*batch.inputs)
            return loss + 0 * Fails.apply(outputs).sum()  # type: ignore[no-untyped-call]
        return loss

    monkeypatch.setattr(likelihood, "batch_nll", failing)
    return tried


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(("accumulate", "size"), [(1, {}), (2, {}), (2, {"batch_pairs": 9})], ids=str)
def test_batches_that_do_not_fit_are_split_and_the_run_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, accumulate: int, late: bool,
    size: dict[str, int],
) -> None:  # fmt: skip
    caplog.set_level("INFO", "sgdec")
    settings: dict[str, Any] = {
        "precision": "fp64", "options": STILL, "accumulate": accumulate, "max_steps": 10, "bleu": 0, **size
    }  # fmt: skip
    expected = losses(make_config(tmp_path, "whole", **settings))
    tried = say_no(monkeypatch, lambda batch: batch.mask.numel() > 20, late=late)
    config = make_config(tmp_path, "split", **settings)
    trainer = prepare(config)
    assert list(trainer.steps()) == pytest.approx(expected, rel=1e-9)
    said = [line for line in caplog.messages if "out of memory" in line]
    assert 1 <= len(said) <= 5, "once it is known, no batch of this size is tried again"
    assert said[0].startswith("step 1: out of memory with ") and "are split from now on" in said[0]
    kept = [batch for batch in tried if batch.mask.numel() <= 20]
    assert {line for batch in kept for line in batch.lines} <= set(range(1, len(PAIRS) + 1))
    weights = [files.load_tensors(tmp_path / run / "last" / "model.safetensors") for run in ("whole", "split")]
    assert all(torch.allclose(weights[0][name], weights[1][name], rtol=0, atol=1e-9) for name in weights[0])
    ceiling = json.loads((tmp_path / "split" / "last" / "progress.json").read_text())["ceiling"]
    assert 20 * 0.9 < ceiling < 48 * 0.9
    longer = make_config(tmp_path, "split", **{**settings, "max_steps": 12})
    assert prepare(longer, resume=True, quiet=True).updater.splitter.ceiling == ceiling


def test_an_example_that_does_not_fit_at_all_is_left_out_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "sgdec")
    bad = [1, 40]
    tried = say_no(monkeypatch, lambda batch: any(line in batch.lines for line in bad))
    config = make_config(tmp_path, max_steps=0, epochs=2.0, save_every=1, bleu=0)
    train(config)
    said = "\n".join(caplog.messages)
    assert all(f"out of memory with line {line} alone; it is left out" in said for line in bad) and "2 so far" in said
    used = [line for batch in tried for line in batch.lines]
    assert set(used) == set(range(1, len(PAIRS) + 1))
    progress = files.read_json(tmp_path / "run" / "last" / "progress.json")
    assert sorted(progress["unfit"]) == bad


def test_other_errors_are_not_taken_for_want_of_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any) -> Tensor:
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    monkeypatch.setattr(likelihood, "batch_nll", broken)
    with pytest.raises(RuntimeError, match="mat1"):
        losses(make_config(tmp_path))


def lines_of_batch(folder: Path, number: int, **settings: Any) -> list[int]:
    """What an update of the first epoch is made of."""
    data = prepare(make_config(folder, "unused", **settings), quiet=True).data
    return data.batch(data.batches(48, order=(1, 0))[number]).lines


def progress_of(run: Path) -> dict[str, Any]:
    """In the last checkpoint."""
    return dict(files.read_json(run / "last" / "progress.json"))


@pytest.mark.parametrize("ema", [0.0, 0.1])
def test_an_update_of_which_nothing_fits_is_skipped_counted_and_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, ema: float
) -> None:
    caplog.set_level("INFO", "sgdec")
    bad = lines_of_batch(tmp_path, 4)
    say_no(monkeypatch, lambda batch: bool({*batch.lines} & {*bad}))
    monkeypatch.setattr(trainer, "LOG_EVERY", 1)
    settings: dict[str, Any] = {"max_steps": 16, "save_every": 1, "keep": 16, "validate_every": 16, "ema": ema}
    config = make_config(tmp_path, **settings)
    made = list(prepare(config).steps())
    assert [step for step, loss in enumerate(made, start=1) if math.isnan(loss)] == [5]
    assert "step 5: no example of this update fits in memory; it is skipped (1 so far)" in "\n".join(caplog.messages)
    progress = progress_of(tmp_path / "run")
    assert progress["skipped"] == [5] and sorted(progress["unfit"]) == sorted(bad)
    before, after, later = (
        {
            name: tensor
            for file in (tmp_path / "run" / f"step-{step}").glob("*.safetensors")
            for name, tensor in files.load_tensors(file).items()
        }
        for step in (4, 5, 6)
    )
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)
    assert not all(torch.equal(after[name], later[name]) for name in after)
    log = {row["step"]: row for row in read_metrics(tmp_path / "run" / METRICS)}
    assert "loss" not in log[5] and "grad_norm" not in log[5] and log[5]["tokens_per_second"] == 0
    assert all(math.isfinite(value) for row in log.values() for value in row.values())
    assert log[6]["loss"] == pytest.approx(made[5])


def test_a_run_that_skips_is_killed_and_goes_on_bit_for_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = lines_of_batch(tmp_path, 2)
    tried = say_no(monkeypatch, lambda batch: bool({*batch.lines} & {*bad}))
    settings: dict[str, Any] = {"max_steps": 30, "save_every": 4, "bleu": 0}
    whole = losses(make_config(tmp_path, "whole", **settings))
    config = make_config(tmp_path, "killed", **settings)
    assert losses(config, steps=6) == pytest.approx(whole[:6], nan_ok=True)
    tried.clear()
    assert losses(config, resume=True) == whole[4:]
    assert not any({*batch.lines} & {*bad} for batch in tried), "known from the checkpoint"
    assert progress_of(tmp_path / "killed")["skipped"] == [3] == progress_of(tmp_path / "whole")["skipped"]


def test_what_is_left_of_an_update_of_several_batches_is_an_update(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = lines_of_batch(tmp_path, 0), lines_of_batch(tmp_path, 1)
    say_no(monkeypatch, lambda batch: bool({*batch.lines} & {*bad}))
    settings: dict[str, Any] = {"precision": "fp64", "options": STILL, "max_steps": 3, "bleu": 0}
    run = prepare(make_config(tmp_path, accumulate=2, **settings), quiet=True)
    loss = next(run.steps())
    other = prepare(make_config(tmp_path, "other", **settings), quiet=True)
    batch = other.data.batch([line - 1 for line in good])
    assert loss == pytest.approx(other.updater.update([batch], 1, 0.01)[0], rel=1e-9)
    assert run.progress.tokens == int(batch.mask.sum()) and run.progress.loss_sum / run.progress.tokens == loss
    assert not run.progress.skipped


def test_the_log_counts_the_tokens_that_were_learnt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    say_no(monkeypatch, lambda batch: 1 in batch.lines)
    run = prepare(make_config(tmp_path, max_steps=0, epochs=1.0, bleu=0), quiet=True)
    assert all(map(math.isfinite, run.steps()))
    assert run.progress.unfit == [1] and not run.progress.skipped
    tokens = sum(len(target) + 1 for target in run.data.targets)  # type: ignore[attr-defined]
    assert run.progress.tokens == tokens - len(run.data.targets[0]) - 1  # type: ignore[attr-defined]


def test_rewards_are_those_of_the_examples_that_fit_each_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(make_config(tmp_path, "ml", max_steps=2, bleu=0), quiet=True)
    bad, loss = lines_of_batch(tmp_path, 1), expected_reward.sampled_loss

    def failing(model: Any, batch: Any, *args: Any, **settings: Any) -> Tensor:
        if {*batch.lines} & {*bad} or len(batch.lines) > 4:
            raise RuntimeError(NO)
        return loss(model, batch, *args, **settings)

    monkeypatch.setattr(expected_reward, "sampled_loss", failing)
    config = make_config(
        tmp_path, objective="expected-reward", start=str(tmp_path / "ml" / "best"), samples=2, max_steps=3, bleu=0
    )
    run = prepare(config, quiet=True)
    assert [math.isnan(loss) for loss in run.steps()] == [False, True, False]
    learnt = [line for number in (0, 2) for line in lines_of_batch(tmp_path, number)]
    assert run.progress.sources == len(learnt)


@pytest.mark.parametrize("steps", [3, 99])
def test_a_run_of_which_nothing_fits_ends_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    say_no(monkeypatch, lambda batch: True)
    last = min(steps, IN_A_ROW)
    expected = rf"^step {last}: no example of the last {last} updates fit in memory.*there is no checkpoint yet"
    with pytest.raises(SgdecError, match=expected):
        losses(make_config(tmp_path, max_steps=steps, validate_every=50))


def test_a_failure_of_a_batch_of_small_cost_does_not_split_all_batches_for_ever() -> None:
    """The gradients' memory, a floor below every cost, says nothing about sizes."""
    budget = Workspace(room=1e6, floor=1e5, terms=(100.0, 100.0, 0.0, 0.0, 0.0))
    text = random_text(2)
    splitter = Splitter(budget)
    large, small = text.batch(list(range(8))), text.batch(list(range(4)))
    splitter.shrink(small, 1)
    parts = splitter.split([large])
    assert min(len(part.lines) for part in parts) > 1 and len(parts) <= 4
    assert sorted(line for part in parts for line in part.lines) == sorted(large.lines)
    assert len(splitter.split([small])) == 2


def test_the_optimiser_has_its_memory_before_the_first_update(tmp_path: Path) -> None:
    run = prepare(make_config(tmp_path), quiet=True)
    optimizer, size = run.updater.optimizer, sum(p.nbytes for p in run.model.parameters())
    run.updater.strategy.backward([run.data.batch([0])], torch.tensor(1))
    assert peak_bytes(optimizer.step, "cpu") < 0.1 * size
    state = optimizer.state_dict()["state"].values()
    assert sum(values["exp_avg"].nbytes for values in state) == size


def no_memory(*args: Any, **settings: Any) -> None:
    """An allocator's answer."""
    raise RuntimeError(NO)


def test_without_memory_for_the_optimiser_a_run_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "zeros_like", no_memory)
    with pytest.raises(SgdecError, match=r"^at the start: out of memory.*there is no checkpoint yet\. Train with"):
        train(make_config(tmp_path), quiet=True)


@pytest.mark.parametrize("where", ["optimiser", "search"])
def test_memory_that_runs_out_elsewhere_is_one_line_and_the_last_checkpoint_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    settings: dict[str, Any] = {"max_steps": 12, "save_every": 4, "validate_every": 6, "bleu": 5}
    expected = losses(make_config(tmp_path, "whole", **settings))
    config = make_config(tmp_path, **settings)
    step, made = torch.optim.Adam.step, []

    def failing(self: Any) -> Any:
        made.append(None)
        return no_memory() if len(made) == 6 else step(self)

    with monkeypatch.context() as patch:
        if where == "optimiser":
            patch.setattr(torch.optim.Adam, "step", failing)
        else:
            patch.setattr(validation, "unroll", no_memory)
        line = r"^step 6: out of memory.*last good checkpoint is .*step-4.*--resume.*--batch-tokens.* or --workspace"
        with pytest.raises(SgdecError, match=line):
            train(config, quiet=True)
    assert layout.read_config(tmp_path / "run" / "last")["step"] == 4
    assert losses(config, resume=True) == expected[4:]


def test_a_validation_of_too_large_batches_is_made_in_halves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = prepare(make_config(tmp_path, precision="fp64"), quiet=True)
    expected = validation.perplexity(run.model, run.inputs.valid)
    outputs = validation.greedy(run.model, run.inputs.valid.sources)  # type: ignore[arg-type,attr-defined]
    nll, unroll, sizes = validation.batch_nll, validation.unroll, []

    def small_nll(model: Any, batch: Any) -> Tensor:
        sizes.append(len(batch.lines))
        if len(batch.lines) > 3:
            no_memory()
        return nll(model, batch)

    def small_unroll(model: Any, memory: Any, limits: Tensor, choose: Any) -> list[list[int]]:
        if len(limits) > 3:
            no_memory()
        return unroll(model, memory, limits, choose)

    monkeypatch.setattr(validation, "batch_nll", small_nll)
    monkeypatch.setattr(validation, "unroll", small_unroll)
    assert validation.perplexity(run.model, run.inputs.valid) == pytest.approx(expected, rel=1e-12)
    assert max(sizes) == len(run.inputs.valid) and min(sizes) > 1
    assert validation.greedy(run.model, run.inputs.valid.sources) == outputs  # type: ignore[arg-type,attr-defined]
