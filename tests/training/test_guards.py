"""A run keeps what it has: a folder for itself, the best model, precision, held-out text, finite weights."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from sgdec.checkpoints import layout
from sgdec.checkpoints.loading import load_model
from sgdec.errors import SgdecError, UsageError
from sgdec.models.lstm import tanh
from sgdec.training import train
from sgdec.training.run import resuming
from tests.helpers.training_case import PAIRS, losses, make_config, write_text

pytestmark = pytest.mark.slow


def test_a_run_that_is_refused_before_it_began_leaves_no_folder(tmp_path: Path) -> None:
    config = make_config(tmp_path, model="rnnlm", options={})
    with pytest.raises(UsageError, match="rnnlm is a language model"):
        train(config, quiet=True)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("count", range(1, 9))
def test_a_death_between_the_links_never_loses_the_best_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Every validation here is better than the one before."""
    config = make_config(tmp_path, max_steps=8, validate_every=2, bleu=0)
    calls = 0
    replace = Path.replace

    def dying(path: Path, target: Path) -> Path:
        nonlocal calls
        if target.name in ("best", "last"):
            calls += 1
            if calls == count:
                raise KeyboardInterrupt
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", dying)
    with pytest.raises(KeyboardInterrupt):
        train(config, quiet=True)
    monkeypatch.undo()
    done = train(config, resume=(tmp_path / "run" / "last").exists(), quiet=True)
    scores = {
        int(folder.name.removeprefix("step-")): layout.read_config(folder)["perplexity"]
        for folder in (tmp_path / "run").glob("step-*")
    }
    assert done.best.name == f"step-{min(scores, key=scores.__getitem__)}"


def test_a_run_goes_on_in_its_precision_whatever_this_machine_would_choose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def choose(device: str, precision: str) -> str:
        return machine if precision == "auto" else precision

    monkeypatch.setattr("sgdec.training.preparing.choose_precision", choose)
    machine = "fp64"
    train(make_config(tmp_path, max_steps=2, bleu=0, precision="auto"), quiet=True)
    machine = "fp32"
    train(make_config(tmp_path, max_steps=4, bleu=0, precision="auto"), resume=True, quiet=True)
    assert layout.read_config(tmp_path / "run" / "last")["precision"] == "fp64"


def test_another_held_out_text_is_refused(tmp_path: Path) -> None:
    train(make_config(tmp_path, max_steps=2, bleu=0), quiet=True)
    other = write_text(tmp_path, "other", PAIRS[:3])
    with pytest.raises(UsageError, match=r"--resume: the held-out text is not the one .*run: it was .*now it is 3 "):
        train(make_config(tmp_path, max_steps=4, bleu=0, valid=other), resume=True, quiet=True)


def test_lines_for_bleu_may_change_unless_the_best_model_is_chosen_by_it(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"max_steps": 2, "bleu": 4}
    train(make_config(tmp_path, "run", **settings), quiet=True)
    train(make_config(tmp_path, "run", **{**settings, "bleu": 0}), resume=True, quiet=True)
    train(make_config(tmp_path, "other", **settings, metric="gleu"), quiet=True)
    with pytest.raises(UsageError, match=r"--resume: bleu was 4 in .*, now it is 5"):
        train(make_config(tmp_path, "other", **{**settings, "bleu": 5}, metric="gleu"), resume=True, quiet=True)


@pytest.mark.parametrize("settings", [{"save_every": 1}, {"validate_every": 1}], ids=str)
def test_weights_that_are_not_finite_never_replace_good_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    monkeypatch.setattr(
        "sgdec.training.trainer.learning_rate", lambda config, step, *args: math.inf if step == 3 else 0.01
    )
    config = make_config(tmp_path, max_steps=6, bleu=0, **settings)
    with pytest.raises(SgdecError, match=r"step 3: some weights are not finite .* inf\. .*checkpoint is .*/step-2\."):
        train(config, quiet=True)
    load_model(tmp_path / "run" / "last")


def test_there_is_a_best_model_however_bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sgdec.training.validation.perplexity", lambda *args, **options: math.inf)
    done = train(make_config(tmp_path, max_steps=4, validate_every=2, bleu=0), quiet=True)
    assert done.best.is_dir() and done.scores == {"perplexity": math.inf}


def test_a_run_that_had_ended_says_its_scores_again(tmp_path: Path) -> None:
    config = make_config(tmp_path, max_steps=4, bleu=4)
    done = train(config, quiet=True)
    assert set(done.scores) == {"perplexity", "bleu", "gleu"}
    assert train(config, resume=True, quiet=True).scores == done.scores


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"samples": 3}, "--samples does nothing without --objective. Leave it out."),
        ({"sgd_lr": 3.0}, "--sgd-lr does nothing without --sgd-after or --objective. Leave it out."),
        ({"plateau_factor": 0.7}, "--plateau-factor does nothing without --plateau. Leave it out."),
        (
            {"objective": "expected-reward", "lr": 0.1},
            "--lr is Adam's rate, and expected-reward uses SGD. Give --sgd-lr.",
        ),
    ],
    ids=str,
)
def test_settings_that_would_do_nothing_are_refused(tmp_path: Path, settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UsageError) as caught:
        make_config(tmp_path, **settings)
    assert str(caught.value) == complaint


def test_the_first_checkpoints_of_a_run_may_be_resumed_from_other_paths(tmp_path: Path) -> None:
    train(make_config(tmp_path, max_steps=2, bleu=0), quiet=True)
    settings: dict[str, Any] = {"bleu": 0, "start": str(tmp_path / "run" / "best"), "output": str(tmp_path / "on")}
    train(make_config(tmp_path, max_steps=2, **settings), quiet=True)
    settings["start"] = f"{tmp_path}/run/../run/best"
    assert train(make_config(tmp_path, max_steps=3, **settings), resume=True, quiet=True).steps == 3


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_the_quick_tanh_is_as_exact_as_its_precision(dtype: torch.dtype) -> None:
    x = torch.cat([sign * torch.logspace(-4, 1, 200) for sign in (1, -1)]).to(dtype)
    exact = torch.tanh(x.double())
    assert float((tanh(x).double() - exact).abs().max()) <= 2 * torch.finfo(dtype).eps
    if dtype == torch.bfloat16:
        assert float(((tanh(x).double() - exact) / exact).abs().max()) <= torch.finfo(dtype).eps


def test_the_precision_of_a_run_so_far(tmp_path: Path) -> None:
    auto, fixed = make_config(tmp_path, precision="auto"), make_config(tmp_path, precision="fp32")
    assert resuming.precision(auto, {}) == "auto" and resuming.precision(auto, {"precision": "bf16"}) == "bf16"
    assert resuming.precision(fixed, {"precision": "bf16"}) == "fp32", "whose difference is refused by its name"


def test_what_was_interrupted_and_what_had_ended_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "sgdec")
    config = make_config(tmp_path, max_steps=6, save_every=2, bleu=0)

    def interrupt(config: Any, step: int, *args: Any) -> float:
        if step == 4:
            raise KeyboardInterrupt
        return 0.01

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("sgdec.training.trainer.learning_rate", interrupt)
        train(config)
    said = "\n".join(caplog.messages)
    assert "interrupted at step 4; the last good checkpoint is" in said and "run/step-2\n" in said
    train(config, resume=True)
    assert "has ended" not in "\n".join(caplog.messages)
    train(config, resume=True)
    assert "this run has ended; continue it with more --epochs or --max-steps" in "\n".join(caplog.messages)


def test_a_run_goes_on_from_an_earlier_checkpoint_that_last_points_at(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"max_steps": 8, "save_every": 2, "keep": 4, "bleu": 0}
    whole = losses(make_config(tmp_path, "whole", **settings))
    config = make_config(tmp_path, **settings)
    losses(config, steps=7)
    last = tmp_path / "run" / "last"
    assert last.resolve().name == "step-6"
    last.unlink()
    last.symlink_to("step-2")
    assert losses(config, resume=True) == whole[2:]
