"""A trainer is made of finished parts: no files, no model plugin; and making it does nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from sgdec.context import Vocabularies
from sgdec.models.base import ModelContext
from sgdec.models.rnnlm import RNNLM
from sgdec.training.config import TrainConfig
from sgdec.training.data.budget import TokenCounts
from sgdec.training.data.noise import SourceNoise
from sgdec.training.data.text import MonolingualText
from sgdec.training.data.weights import Weighting
from sgdec.training.parallel.volume import Volume
from sgdec.training.run.inputs import Inputs
from sgdec.training.run.progress import TrainingProgress
from sgdec.training.run.report import Silence
from sgdec.training.trainer import Trainer
from sgdec.training.updating import Updater
from tests.helpers.tiny_models import characters


def test_a_trainer_of_parts_in_memory_touches_no_file_and_learns(tmp_path: Path) -> None:
    torch.manual_seed(1)
    vocabulary = characters("abc")
    text = MonolingualText([[4, 5, 3], [5, 3], [3]], [1, 2, 3])
    absent = str(tmp_path / "absent")
    files = {"train": (absent,), "valid": (absent,), "tokenizer": (absent,), "output": str(tmp_path / "run")}
    config = TrainConfig(**files, label_smoothing=0.0, validate_every=10)
    inputs = Inputs(None, vocabulary, text, text, Weighting(config, Vocabularies(None, vocabulary), text), {})
    model = RNNLM(ModelContext(0, vocabulary.size), width=8, dropout=0.0).double()
    expected = -sum(
        log_probability(model, [1, *tokens], next_token)
        for sentence in text.targets
        for tokens, next_token in prefixes([*sentence, 2])
    ) / sum(len(sentence) + 1 for sentence in text.targets)

    updater = Updater(config, model, "fp64", total_steps=10)
    trainer = Trainer(
        config, inputs, updater, TokenCounts(100), 1, TrainingProgress(), Silence(),
        noise=SourceNoise(0.0, "unknown", 1), volume=Volume(updater.strategy),
    )  # fmt: skip
    steps = trainer.steps()
    first, *others = [next(steps) for _ in range(9)]
    assert first == pytest.approx(expected, rel=1e-12)
    assert others[-1] < first
    assert not list(tmp_path.iterdir())


def prefixes(sentence: list[int]) -> list[tuple[list[int], int]]:
    return [(sentence[:n], token) for n, token in enumerate(sentence)]


@torch.no_grad()
def log_probability(model: RNNLM, prefix: list[int], token: int) -> float:
    """Of a token after a prefix, which begins with <s>."""
    logits = model.project(model(torch.tensor([prefix])))[0, -1]
    return float(logits[token] - logits.exp().sum().log())
