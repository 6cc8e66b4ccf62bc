"""The trainer: it learns, it can be killed and resumed without a trace, and it says what it does."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from sgdec.checkpoints import files, layout
from sgdec.checkpoints.files import load_tensors
from sgdec.checkpoints.loading import load_model
from sgdec.errors import SgdecError, UsageError
from sgdec.models.base import Seq2Seq
from sgdec.training import train, validation
from sgdec.training.device import trains_in_bf16
from sgdec.training.optimisation import learning_rate
from sgdec.training.preparing import prepare
from sgdec.training.run import report
from tests.helpers.training_case import PAIRS, losses, make_config

pytestmark = pytest.mark.slow


def test_a_tiny_model_learns_to_translate(tmp_path: Path) -> None:
    options = {"width": 32, "dropout": 0.0, "init": 0.3}
    config = make_config(
        tmp_path, options=options, lr=0.01, max_steps=200, cooldown=0.5, bleu=30, label_smoothing=0.0
    )
    done = train(config, quiet=True)
    assert done.scores["perplexity"] < 1.3
    assert done.scores["bleu"] > 90
    model, vocabularies = load_model(done.best)
    translations = validation.translate(model, vocabularies, [*[pair[0] for pair in PAIRS], ""])
    correct = sum(translation == pair[1] for translation, pair in zip(translations, PAIRS, strict=False))
    assert correct > 0.9 * len(PAIRS)
    assert translations[-1] == "", "an empty line stays empty"


@pytest.mark.parametrize("killed_after", [5, 8, 20])
def test_a_killed_run_goes_on_as_if_nothing_had_happened(tmp_path: Path, killed_after: int) -> None:
    """Losses and weights, bit for bit; checkpoints at steps 4, 8, ..., and at the end of the epoch."""
    settings: dict[str, Any] = {"max_steps": 24, "save_every": 4, "sgd_after": 18, "plateau": 1}
    whole = losses(make_config(tmp_path, "whole", **settings))
    config = make_config(tmp_path, "killed", **settings)
    before = losses(config, steps=killed_after)
    resumed_from = files.read_json(tmp_path / "killed" / "last" / "progress.json")["step"]
    after = losses(config, resume=True)
    assert before == whole[:killed_after]
    assert after == whole[resumed_from:]
    weights = [load_tensors(tmp_path / run / "last" / "model.safetensors") for run in ("whole", "killed")]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    rows = [(tmp_path / run / "metrics.jsonl").read_text().splitlines() for run in ("whole", "killed")]
    timeless = [[{k: v for k, v in json.loads(row).items() if "second" not in k} for row in log] for log in rows]
    assert timeless[0] == timeless[1], "the log has each row once"


@pytest.mark.parametrize("what", ["write", "rename", "link"])
def test_a_checkpoint_whose_writing_fails_leaves_the_previous_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    config = make_config(tmp_path, save_every=4)
    trainer = prepare(config, quiet=True)
    steps = trainer.steps()
    for _ in range(6):
        next(steps)

    def full(*args: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device")

    if what == "write":
        monkeypatch.setattr(files, "write_json", full)
    else:
        monkeypatch.setattr(Path, {"rename": "rename", "link": "replace"}[what], full)
    with pytest.raises(SgdecError, match=r"step-8: cannot be written \(No space left.*before it is intact"):
        for _ in range(6):
            next(steps)
    monkeypatch.undo()
    load_model(tmp_path / "run")
    assert layout.read_config(tmp_path / "run")["step"] == 4
    assert losses(config, resume=True) == losses(make_config(tmp_path, "whole", save_every=4))[4:]


def test_the_seed_decides_everything(tmp_path: Path) -> None:
    runs = [losses(make_config(tmp_path, f"run{n}", seed=seed, max_steps=6)) for n, seed in enumerate((1, 1, 2))]
    assert runs[0] == runs[1]
    assert runs[0][0] != runs[2][0]


def test_the_loss_is_smoothed_cross_entropy_over_real_tokens(tmp_path: Path) -> None:
    trainer = prepare(make_config(tmp_path, precision="fp64", label_smoothing=0.2), quiet=True)
    model = trainer.model.eval()
    batch = trainer.data.batch([0, 40, 100])
    expected = 0.0
    for pair in (0, 40, 100):
        one = trainer.data.batch([pair])
        logs = F.log_softmax(model.project(Seq2Seq.forward(model, one.source, one.lengths, one.target_in)[0]), -1)
        logs = logs.detach()
        for position, token in enumerate(one.target_out[0].tolist()):
            expected -= (0.8 * logs[position, token] + 0.2 * logs[position].mean()).item()
    assert validation.batch_nll(model, batch, 0.2).item() == pytest.approx(expected, abs=1e-9)


def test_perplexity_counts_each_token_and_the_end_once(tmp_path: Path) -> None:
    trainer = prepare(make_config(tmp_path, precision="fp64"), quiet=True)
    model, data = trainer.model.eval(), trainer.inputs.valid
    total = tokens = 0.0
    for n in range(len(data)):
        one = data.batch([n])
        with torch.no_grad():
            logs = F.log_softmax(model.project(model(one.source, one.lengths, one.target_in)[0]), -1)
        total -= float(logs.gather(-1, one.target_out.T).sum())
        tokens += len(data.targets[n]) + 1
    assert validation.perplexity(model, data) == pytest.approx(math.exp(total / tokens), rel=1e-9)


def test_greedy_translation_does_not_depend_on_the_batch(tmp_path: Path) -> None:
    trainer = prepare(make_config(tmp_path, precision="fp64", options={"width": 16, "init": 0.6}), quiet=True)
    lines = [pair[0] for pair in PAIRS[::5]]
    alone = [validation.translate(trainer.model, trainer.inputs.vocabularies, [line])[0] for line in lines]
    assert len(set(alone)) > 5
    assert validation.translate(trainer.model, trainer.inputs.vocabularies, lines, batch_size=7) == alone


def test_gradients_are_clipped_to_the_norm(tmp_path: Path) -> None:
    trainer = prepare(make_config(tmp_path, clip=0.01, sgd_after=0), quiet=True)
    next(trainer.steps())
    norm = torch.stack([parameter.grad.norm() for parameter in trainer.model.parameters()]).norm()  # type: ignore[union-attr]
    assert float(norm) == pytest.approx(0.01, rel=1e-3)


def test_a_loss_that_is_no_number_stops_the_run_naming_step_and_lines(tmp_path: Path) -> None:
    config = make_config(tmp_path, save_every=2)
    trainer = prepare(config, quiet=True)
    steps = trainer.steps()
    for _ in range(3):
        next(steps)
    with torch.no_grad():
        trainer.model.get_parameter("key.bias").fill_(math.nan)
    with pytest.raises(
        SgdecError,
        match=r"step 4: the loss is nan, on lines \d+, .* of .*train\.en and .*de\. Nothing was.*run/step-2\.",
    ):
        next(steps)
    load_model(tmp_path / "run" / "last")  # of step 2


def test_learning_rates_are_those_of_the_paper(tmp_path: Path) -> None:
    """8.3: Adam at 0.0002 to step 60k, SGD at 0.5, halved every 200k steps after 1.2M for another 800k."""
    paper = make_config(
        tmp_path, lr=0.0002, sgd_after=60_000, sgd_lr=0.5, anneal_after=1_200_000, halve_every=200_000
    )
    table = {
        1: 0.0002, 60_000: 0.0002, 60_001: 0.5, 1_200_000: 0.5,
        1_200_001: 0.25, 1_400_000: 0.25, 1_400_001: 0.125, 1_600_001: 0.0625, 2_000_000: 0.03125,
    }  # fmt: skip
    assert {step: learning_rate(paper, step, 2_000_000) for step in table} == table


def test_learning_rates_rise_fall_and_halve(tmp_path: Path) -> None:
    config = make_config(tmp_path, lr=1.0, warmup=4, cooldown=0.5)
    rates = [learning_rate(config, step, 12) for step in range(1, 13)]
    assert rates == pytest.approx([0.25, 0.5, 0.75, 1, 1, 1, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6])
    assert learning_rate(config, 5, 12, plateaus=2) == 0.25


def test_plateaus_halve_the_rate_and_patience_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values: Iterator[float] = iter([5.0, 4.0, 4.5, 4.5, 4.5, 4.5, 4.5])
    monkeypatch.setattr(validation, "perplexity", lambda *args, **options: next(values))
    config = make_config(tmp_path, validate_every=2, max_steps=100, plateau=2, patience=4, bleu=0)
    trainer = prepare(config, quiet=True)
    done = trainer.run()
    assert (done.steps, done.scores) == (12, {"perplexity": 4.5})
    assert trainer.progress.plateaus == 2
    assert layout.read_config(done.best)["step"] == 4, "best is the best, not the last"
    assert sorted(path.name for path in (tmp_path / "run").glob("step-*")) == ["step-12", "step-4"]
    assert losses(config, resume=True) == [], "a run that has ended stays so"


def test_a_run_leaves_logs_and_a_learning_curve(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    curves: Callable[..., None],
) -> None:
    caplog.set_level("INFO", "sgdec")
    monkeypatch.setattr(report, "draw_curve", curves)
    done = train(make_config(tmp_path, max_steps=100, validate_every=50))
    run = tmp_path / "run"
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [50, 50, 100, 100]
    assert rows[0].keys() >= {"loss", "lr", "grad_norm", "tokens_per_second", "epoch", "seconds"}
    assert rows[1].keys() >= {"perplexity", "bleu"}
    assert rows[2]["loss"] < rows[0]["loss"]
    assert (run / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert (done.best / "metrics.jsonl").exists(), "the log is part of a checkpoint"

    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run)).Reload()
    assert [event.step for event in events.Scalars("perplexity")] == [50, 100]
    assert events.Scalars("loss")[0].value == pytest.approx(rows[0]["loss"])

    lines = caplog.messages
    assert len(lines) == 3, "not a terminal: what is trained, then a line a validation"
    assert f"{len(PAIRS)} pairs" in lines[0] and "step 50/100: perplexity" in lines[1]


def test_resuming_with_other_settings_or_without_a_run_is_refused(tmp_path: Path) -> None:
    config = make_config(tmp_path, max_steps=4, save_every=2)
    with pytest.raises(UsageError, match=r"--resume: .*run holds no checkpoint"):
        train(config, resume=True, quiet=True)
    train(config, quiet=True)
    with pytest.raises(UsageError, match=r"run holds a run already.*--resume"):
        train(config, quiet=True)
    with pytest.raises(UsageError, match=r"--resume: lr was 0\.001 in .*run, now it is 0\.5\. Give the same"):
        train(make_config(tmp_path, lr=0.5), resume=True, quiet=True)
    assert train(make_config(tmp_path, max_steps=6, save_every=2), resume=True, quiet=True).steps == 6


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"label_smoothing": 1.0}, r"--label-smoothing: 1\.0 should be below 1"),
        ({"epochs": -1.0}, r"--epochs: -1\.0 should be above 0"),
        ({"batch_tokens": 0}, r"--batch-tokens: 0 should be at least 1"),
        ({"tokenizer": ("a", "b", "c")}, "--tokenizer: give it once for both sides"),
        ({"device": "gpu"}, "--device gpu: expected cpu, cuda"),
        ({"model": "gmnt"}, "no model named 'gmnt'. Did you mean 'gnmt'"),
    ],
    ids=str,
)
def test_settings_that_cannot_work_are_one_line(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        prepare(make_config(tmp_path, **settings), quiet=True)
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(trains_in_bf16(), reason="this processor can")
def test_a_processor_that_cannot_train_in_bf16_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--precision bf16: this processor cannot .* Use fp32, or auto\."):
        prepare(make_config(tmp_path, precision="bf16"), quiet=True)


@pytest.mark.skipif(not trains_in_bf16(), reason="this processor has no AVX-512")
def test_bf16_autocast_learns_the_same(tmp_path: Path) -> None:
    """Slow without bf16 instructions, but the same path."""
    half = losses(make_config(tmp_path, "half", precision="bf16", max_steps=4))
    full = losses(make_config(tmp_path, "full", precision="fp32", max_steps=4))
    assert half != full
    assert half == pytest.approx(full, rel=0.02)


def test_two_tokenizers_make_two_vocabularies(tmp_path: Path) -> None:
    config = make_config(tmp_path)
    other = tmp_path / "other.spm"
    shutil.copy(config.tokenizer[0], other)
    from sgdec.text.sentencepiece import train_vocabulary

    other.write_bytes(train_vocabulary([pair[1] for pair in PAIRS], 15, kind="word").serialized)
    done = train(make_config(tmp_path, tokenizer=(config.tokenizer[0], str(other)), max_steps=2), quiet=True)
    assert (done.best / "source.spm").exists() and (done.best / "target.spm").exists()
    model, vocabularies = load_model(done.best)
    assert vocabularies.source is not None and vocabularies.target is not None
    assert vocabularies.source.size != vocabularies.target.size == model.get_parameter("softmax.bias").numel()


@pytest.mark.gpu
def test_training_runs_on_cuda_with_bf16(tmp_path: Path) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    done = train(make_config(tmp_path, device="cuda", precision="auto", max_steps=4), quiet=True)
    assert layout.read_config(done.best)["precision"] == "bf16"
    load_model(done.best, device="cuda", precision="bf16")
