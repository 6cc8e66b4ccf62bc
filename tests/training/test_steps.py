"""What one step of training does: several batches are one large batch, the average of the weights follows its formula
and survives a kill, learning rates are those of the papers, and a step that fails says all that is known.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from sgdec.checkpoints import files, layout
from sgdec.checkpoints.files import load_tensors
from sgdec.checkpoints.loading import load_model, model_tensors
from sgdec.errors import SgdecError
from sgdec.training import train, validation
from sgdec.training.optimisation import learning_rate, make_optimizer
from sgdec.training.preparing import prepare
from sgdec.training.trainer import Trainer
from tests.helpers.training_case import PAIRS, losses, make_config

pytestmark = pytest.mark.slow

STILL: dict[str, Any] = {"width": 16, "dropout": 0.0, "init": 0.5}
"""A model without dropout: batches together and apart see the same."""


def gradients(trainer: Trainer, batches: list[list[int]]) -> tuple[float, float, list[torch.Tensor]]:
    """Loss, norm, and the gradients of one step."""
    loss, norm = trainer.updater.update([trainer.data.batch(examples) for examples in batches], 1, 0.0)
    return loss, norm, [p.grad.clone() for p in trainer.model.parameters() if p.grad is not None]


@pytest.mark.parametrize(("precision", "tolerance"), [("fp64", 1e-12), ("fp32", 1e-6)])
def test_accumulated_batches_are_one_large_batch(tmp_path: Path, precision: str, tolerance: float) -> None:
    """Batches of unequal sizes and lengths; a mean of their means is something else."""
    trainer = prepare(make_config(tmp_path, precision=precision, options=STILL, clip=1e9), quiet=True)
    parts = [[0], [1, 30, 50, 70, 90], [60, 3, len(PAIRS) - 1]]
    loss, norm, apart = gradients(trainer, parts)
    whole_loss, whole_norm, whole = gradients(trainer, [[n for part in parts for n in part]])
    assert (loss, norm) == pytest.approx((whole_loss, whole_norm), rel=tolerance)
    assert len(apart) == len(whole) > 20
    for one, other in zip(apart, whole, strict=True):
        assert torch.allclose(one, other, rtol=0, atol=tolerance)
    means = [gradients(trainer, [part])[0] for part in parts]
    assert abs(sum(means) / len(means) - whole_loss) > 1e-4


def test_a_run_of_accumulated_batches_is_the_run_of_large_ones(tmp_path: Path) -> None:
    """As many pairs of one length as fill both: the same examples meet, whatever the order."""
    pairs = [pair for pair in PAIRS if len(pair[0].split()) == 2][:16]
    settings: dict[str, Any] = {"options": STILL, "precision": "fp64", "max_steps": 6, "bleu": 0}
    large = make_config(tmp_path, "large", batch_tokens=1000, **settings)
    small = make_config(tmp_path, "small", batch_tokens=12, accumulate=4, **settings)
    for path, lines in zip(large.train, zip(*pairs, strict=True), strict=True):
        Path(path).write_text("".join(f"{line}\n" for line in lines))
    trainer = prepare(small, quiet=True)
    assert len(trainer.data.batches(12)) == 4 and trainer.steps_per_epoch == 1
    assert list(trainer.steps()) == pytest.approx(losses(large), rel=1e-9)


def test_the_last_step_of_an_epoch_takes_the_batches_that_are_left(tmp_path: Path) -> None:
    config = make_config(tmp_path, accumulate=5, epochs=2.0, max_steps=0)
    trainer = prepare(config, quiet=True)
    batches = len(trainer.data.batches(config.batch_tokens))
    assert batches % 5
    assert len(list(trainer.steps())) == 2 * math.ceil(batches / 5)


def test_the_moving_average_is_that_of_its_formula(tmp_path: Path) -> None:
    trainer = prepare(make_config(tmp_path, ema=0.2, precision="fp64", max_steps=60, bleu=0), quiet=True)
    expected = {name: tensor.clone() for name, tensor in model_tensors(trainer.model).items()}
    for step, _ in enumerate(trainer.steps(), 1):
        share = max(0.2, 1 - (step + 1) / (step + 10))
        for name, tensor in model_tensors(trainer.model).items():
            expected[name] = (1 - share) * expected[name] + share * tensor
    stored = load_tensors(tmp_path / "run" / "last" / "model.safetensors")
    assert stored.keys() == expected.keys()
    for name, tensor in stored.items():
        assert torch.allclose(tensor, expected[name], rtol=1e-12, atol=1e-14), name
    assert not torch.equal(stored["key.weight"], model_tensors(trainer.model)["key.weight"])


def test_the_average_is_validated_and_saved_and_the_weights_go_on_without_it(tmp_path: Path) -> None:
    averaged = make_config(tmp_path, "averaged", ema=0.01, max_steps=30, precision="fp32")
    plain = make_config(tmp_path, "plain", max_steps=30, precision="fp32")
    assert losses(averaged) == losses(plain), "averaging disturbs no training"
    raw = load_tensors(tmp_path / "averaged" / "last" / "raw.safetensors")
    weights = load_tensors(tmp_path / "plain" / "last" / "model.safetensors")
    assert all(torch.equal(raw[name], weights[name]) for name in weights)
    assert not (tmp_path / "plain" / "last" / "raw.safetensors").exists()
    model, _ = load_model(tmp_path / "averaged" / "last")
    config = layout.read_config(tmp_path / "averaged" / "last")
    valid = prepare(make_config(tmp_path, "other"), quiet=True).inputs.valid
    assert validation.perplexity(model, valid) == pytest.approx(config["perplexity"], rel=1e-5)
    assert config["perplexity"] != layout.read_config(tmp_path / "plain" / "last")["perplexity"]


@pytest.mark.parametrize(
    ("options", "killed_after"),
    [(STILL, 5), (STILL, 9), ({"width": 16, "tied": "target", "constrained": True}, 6)],
    ids=["early", "later", "tied"],
)
def test_a_killed_run_with_all_of_it_goes_on_bit_for_bit(tmp_path: Path, killed_after: int, options: Any) -> None:
    settings: dict[str, Any] = {
        "bleu": 0, "max_steps": 11, "save_every": 4, "accumulate": 3, "ema": 0.01, "inverse_sqrt": 4, "warmup": 4,
        "plateau": 1, "plateau_factor": 0.7, "options": options,
    }  # fmt: skip
    whole = losses(make_config(tmp_path, "whole", **settings))
    config = make_config(tmp_path, "killed", **settings)
    assert losses(config, steps=killed_after) == whole[:killed_after]
    resumed_from = files.read_json(tmp_path / "killed" / "last" / "progress.json")["step"]
    assert 0 < resumed_from < killed_after
    assert losses(config, resume=True) == whole[resumed_from:]
    for file in ("model.safetensors", "raw.safetensors", "optimizer.safetensors"):
        one, other = (load_tensors(tmp_path / run / "last" / file) for run in ("whole", "killed"))
        assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one), file


def test_the_rate_falls_with_the_root_of_the_step(tmp_path: Path) -> None:
    """Marian, section 3.1.3: base rate 0.0003, grown over 16,000 updates, then decayed as the inverse square root."""
    marian = make_config(tmp_path, lr=0.0003, warmup=16_000, inverse_sqrt=16_000)
    table = {1: 0.0003 / 16_000, 8_000: 0.00015, 16_000: 0.0003, 64_000: 0.00015, 1_600_000: 0.00003}
    for step, rate in table.items():
        assert learning_rate(marian, step, 2_000_000) == pytest.approx(rate, rel=1e-12)


def test_a_plateau_lowers_the_rate_by_the_factor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values: Iterator[float] = iter([5.0, 5.0, 4.0, 4.5, 4.5])
    monkeypatch.setattr(validation, "perplexity", lambda *args, **options: next(values))
    config = make_config(tmp_path, lr=1e-3, validate_every=2, max_steps=10, plateau=1, plateau_factor=0.7, bleu=0)
    trainer = prepare(config, quiet=True)
    rates = [trainer.updater.optimizer.param_groups[0]["lr"] for _ in trainer.steps()]
    assert rates == pytest.approx([1e-3] * 4 + [7e-4] * 4 + [4.9e-4] * 2)


@pytest.mark.parametrize(("rule", "decays"), [("best", 4), ("previous", 2)])
@pytest.mark.parametrize("killed", [False, True])
def test_the_rate_decays_against_the_best_or_against_the_previous_validation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: Any, decays: int, killed: bool
) -> None:
    """Ono et al. 2019, section 4.2: times 0.7 when the perplexity increased since the validation before."""
    perplexities = {2: 10.0, 4: 12.0, 6: 11.0, 8: 10.5, 10: 13.0}
    settings: dict[str, Any] = {"lr": 1e-3, "validate_every": 2, "max_steps": 11, "bleu": 0}
    config = make_config(tmp_path, plateau=1, plateau_factor=0.7, decay_rule=rule, **settings)
    rates: dict[int, float] = {}
    for resume in (False, True) if killed else (False,):
        trainer = prepare(config, resume=resume, quiet=True)
        monkeypatch.setattr(
            validation, "perplexity", lambda *args, p=trainer.progress, **_: perplexities.get(p.step, 9.0)
        )
        for _ in trainer.steps():
            rates[trainer.progress.step] = trainer.updater.optimizer.param_groups[0]["lr"]
            if killed and not resume and trainer.progress.step == 9:
                break
    factors = {"best": [0, 1, 2, 3, 4], "previous": [0, 1, 1, 1, 2]}[rule]
    expected = {step: 1e-3 * 0.7 ** ([0, *factors][(step - 1) // 2]) for step in range(1, 12)}
    assert rates == pytest.approx(expected)
    assert (10 in rates) and rates[11] == pytest.approx(1e-3 * 0.7**decays)


def test_against_the_previous_validation_as_many_must_be_worse_in_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values: Iterator[float] = iter([5.0, 6.0, 5.5, 6.0, 6.0, 6.5, 7.0, 7.5])
    monkeypatch.setattr(validation, "perplexity", lambda *args, **options: next(values))
    config = make_config(tmp_path, validate_every=1, max_steps=8, plateau=2, decay_rule="previous", bleu=0)
    trainer = prepare(config, quiet=True)
    plateaus = [trainer.progress.plateaus for _ in trainer.steps()]
    assert plateaus == [0] * 6 + [1, 1], "an equal one is not worse, and begins the count again"


def test_adam_has_the_moments_and_the_epsilon_that_are_given(tmp_path: Path) -> None:
    """Kingma and Ba 2015, Algorithm 1, in float64; the defaults are the paper's."""
    parameter = torch.nn.Parameter(torch.tensor([1.0, -2.0, 0.5]))
    for given in ({}, {"beta1": 0.5, "beta2": 0.75, "adam_epsilon": 0.1}, {"beta1": 0.0}):
        config = make_config(tmp_path, lr=0.25, **given)
        b1, b2, epsilon = (given.get("beta1", 0.9), given.get("beta2", 0.999), given.get("adam_epsilon", 1e-8))
        optimizer = make_optimizer(config, [parameter], 1)
        x, m, v = parameter.detach().double().clone(), 0.0, 0.0
        for step in range(1, 4):
            gradient = torch.tensor([0.3, -0.01, 0.2]) * step
            parameter.grad = gradient
            optimizer.step()
            g = gradient.double()
            m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
            x -= 0.25 * (m / (1 - b1**step)) / ((v / (1 - b2**step)).sqrt() + epsilon)
            assert torch.allclose(parameter.detach().double(), x, atol=1e-6)


def test_of_several_batches_the_bad_one_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = prepare(make_config(tmp_path, accumulate=3), quiet=True)
    weights = {name: tensor.clone() for name, tensor in model_tensors(trainer.model).items()}
    nll, calls = validation.batch_nll, iter(range(3))

    def second_overflows(*args: Any) -> torch.Tensor:
        return nll(*args) * (math.inf if next(calls) == 1 else 1.0)

    monkeypatch.setattr("sgdec.training.objectives.likelihood.batch_nll", second_overflows)
    with pytest.raises(SgdecError, match=r"step 1: the loss is inf, on lines \d+") as caught:
        next(trainer.steps())
    order = trainer.data.batches(48, order=(1, 0))
    second = ", ".join(map(str, sorted(trainer.data.batch(order[1]).lines)))
    assert f"on lines {second} of {tmp_path}" in str(caught.value)
    assert "there is no checkpoint yet" in str(caught.value) and "\n" not in str(caught.value)
    assert all(torch.equal(weights[name], tensor) for name, tensor in model_tensors(trainer.model).items())


def test_a_gradient_that_is_no_number_names_the_last_good_checkpoint(tmp_path: Path) -> None:
    trainer = prepare(make_config(tmp_path, save_every=2), quiet=True)
    steps = trainer.steps()
    for _ in range(3):
        next(steps)
    trainer.model.get_parameter("key.weight").register_hook(lambda gradient: gradient * math.nan)
    with pytest.raises(SgdecError, match=r"step 4: the gradient's norm is nan, on lines .*step-2\."):
        next(steps)
    assert layout.read_config(tmp_path / "run" / "last")["step"] == 2
    load_model(tmp_path / "run" / "last")


def test_a_run_keeps_as_many_checkpoints_as_asked_for(tmp_path: Path) -> None:
    train(make_config(tmp_path, validate_every=2, max_steps=12, keep=3, bleu=0), quiet=True)
    steps = {folder.name for folder in (tmp_path / "run").glob("step-*")}
    best = (tmp_path / "run" / "best").resolve().name
    assert steps == {"step-8", "step-10", "step-12", best}
