"""What does not go together is refused: by settings when they are made, by a model before text is read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sgdec.errors import SgdecError, UsageError
from sgdec.models.base import Refusal, Seq2Seq
from sgdec.plugins.host import Host
from sgdec.plugins.options import describe
from sgdec.training import preparing
from sgdec.training.config import TrainConfig
from tests.helpers.training_case import make_config

FILES: dict[str, Any] = {"train": ("a", "b"), "valid": ("a", "b"), "tokenizer": ("t",), "output": "run"}
REWARD = {"objective": "expected-reward", "start": "ml"}


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"compile": True, "parallel": "data"}, "--compile: does not work with --parallel data. Leave it out."),
        (
            {"workspace": 9, "parallel": "model"},
            "--workspace: does not work with --parallel model. Give --batch-tokens.",
        ),
        (
            {"start": "run", "unigram_bias": True},
            "--start-from and --unigram-bias set the same weights. Give only one of them.",
        ),
        (
            {"start_decoder": "lm", "embeddings_target": "vectors"},
            "--start-decoder and --embeddings-target set the same weights. Give only one of them.",
        ),
        (
            {**REWARD, "token_weights": "w"},
            "--objective expected-reward has no token weights. Leave --token-weights and --edit-weight out.",
        ),
        (
            {"batch_pairs": 64, "batch_tokens": 500},
            "--batch-pairs and --batch-tokens both define the size of a batch. Give only one of them.",
        ),
        (
            {"batch_pairs": 64, "workspace": 9},
            "--batch-pairs and --workspace both define the size of a batch. Give only one of them.",
        ),
        (
            {**REWARD, "adam_epsilon": 1e-9},
            "--adam-epsilon is a setting of Adam, and expected-reward uses SGD. Leave it out.",
        ),
        ({"adam_epsilon": 0.0}, "--adam-epsilon: 0.0 should be at least 1e-30."),
        ({"decay_rule": "previous"}, "--decay-rule does nothing without --plateau. Leave it out."),
        ({"epochs": "many"}, "--epochs: 'many' should be a number."),
        ({"lr": float("nan")}, "--lr: nan should be a finite number."),
        ({"train": "a"}, "--train: 'a' should be a list."),
        ({"start": 3}, "--start-from: 3 should be text."),
        ({"tokenizer": ()}, "--tokenizer: give one (all sides), two (sources, target) or three (one per side)."),
    ],
    ids=str,
)
def test_settings_that_do_not_go_together_are_refused_when_they_are_made(
    settings: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(UsageError) as caught:
        TrainConfig(**{**FILES, **settings})
    assert str(caught.value) == complaint


def test_settings_have_the_types_that_they_are_declared_with() -> None:
    config = TrainConfig(**{**FILES, "train": ["a", "b"]}, epochs=3, max_steps="7", unigram_bias="yes")  # type: ignore[arg-type]
    assert config.train == ("a", "b") and config.max_steps == 7 and config.unigram_bias is True
    assert isinstance(config.epochs, float)


class Monochrome(Seq2Seq):
    """Of a third party."""

    @classmethod
    def refusals(cls) -> Iterator[Refusal]:
        yield from super().refusals()
        yield Refusal("ema", "has weights that cannot be averaged")
        yield Refusal("precision", "has kernels in fp32 alone", "bf16", instead="fp32")


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"ema": 0.1}, "--ema: monochrome has weights that cannot be averaged. Leave it out."),
        ({"precision": "bf16"}, "--precision bf16: monochrome has kernels in fp32 alone. Use fp32."),
        ({"precision": "fp64"}, None),
    ],
    ids=str,
)
def test_a_family_of_models_says_what_it_cannot_be_trained_with(
    settings: dict[str, Any], complaint: str | None
) -> None:
    config = TrainConfig(**FILES, model="monochrome", **settings)
    if complaint is None:
        return config.require_fit(Monochrome)
    with pytest.raises(UsageError) as caught:
        config.require_fit(Monochrome)
    assert str(caught.value) == complaint


@pytest.mark.parametrize("family", [entry.name for entry in Host(autoload=False).names("model")])
def test_what_a_bundled_family_refuses_are_settings_that_there_are(family: str) -> None:
    options = {option.name: option for option in describe(TrainConfig)}
    for setting, why, value, instead in Host(autoload=False).load("model", family).refusals():
        choices = options[setting].type.split(" | ")
        assert why and {value, instead or None} <= {None, *choices}


def test_options_of_a_model_are_refused_before_text_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for reader in ("read_text", "open_text"):
        monkeypatch.setattr(f"sgdec.training.run.inputs.{reader}", lambda *args, **rest: pytest.fail("takes hours"))
    config = make_config(tmp_path, model="transformer", options={"width": 16, "heads": 3})
    with pytest.raises(SgdecError, match="heads"):
        preparing.train(config, quiet=True)
    assert not (tmp_path / "run").exists()
