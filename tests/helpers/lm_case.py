"""Tiny language models for tests: checkpoints with random weights, a corpus that can be learnt, NPLM text files."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from sgdec.checkpoints import files, layout, loading
from sgdec.io.nplm import NplmFile, StoredLayer
from sgdec.text.sentencepiece import train_vocabulary
from sgdec.training.config import TrainConfig
from tests.helpers.tiny_models import characters

LINES = [" ".join(f"{'abcd'[n % 4]}{'efgh'[(n // 4) % 4]}" for n in range(k, k + 2 + k % 7)) for k in range(64)]
"""A walk through sixteen words: each word decides the next one."""


def write_lm(folder: Path, model: str, options: dict[str, Any], *, seed: int = 1, letters: str = "abc") -> Path:
    """A checkpoint as `sgdec train` would write it, over ``letters``."""
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = characters(letters)
    layout.save_vocabularies(folder, None, vocabulary)
    config = {
        "format": layout.FORMAT,
        "model": model,
        "options": options,
        "source_vocab_size": 0,
        "target_vocab_size": vocabulary.size,
    }
    files.write_json(folder / layout.CONFIG, config)
    torch.manual_seed(seed)
    module = loading.build_model(config, where="the test's own model")
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.6)  # far from uniform
    files.save_tensors(folder / layout.WEIGHTS, loading.model_tensors(module))
    return folder


def make_lm_config(folder: Path, output: str = "run", *, model: str = "rnnlm", **settings: Any) -> TrainConfig:
    """64 lines of the walk in about 10 batches; whatever is given wins."""
    tokenizer, text, held_out = folder / "tok.spm", folder / "train.txt", folder / "valid.txt"
    if not tokenizer.exists():
        tokenizer.write_bytes(train_vocabulary(LINES, 20, kind="word").serialized)
        text.write_text("".join(f"{line}\n" for line in LINES))
        held_out.write_text("".join(f"{line}\n" for line in LINES[::5]))
    options = {"rnnlm": {"width": 16, "layers": 2, "dropout": 0.1, "init": 0.2}}
    options["nplm"] = {"order": 3, "embedding": 8, "hidden": 12, "output": 8, "dropout": 0.1, "init": 0.2}
    defaults: dict[str, Any] = {
        "train": (str(text),),
        "valid": (str(held_out),),
        "tokenizer": (str(tokenizer),),
        "output": str(folder / output),
        "model": model,
        "options": options.get(model, {}),
        "batch_tokens": 48,
        "max_steps": 12,
        "label_smoothing": 0.0,
        "threads": 1,
        "precision": "fp32",
    }
    return TrainConfig(**{**defaults, **settings})


def random_file(
    words: list[str], *, order: int = 4, hidden: int = 6, activation: Any = "rectifier", seed: int = 1
) -> NplmFile:
    """A model of NPLM's with random weights; its output words are its input words backwards."""
    rng = np.random.default_rng(seed)
    embedding, output = 3, 5
    sizes = [(order - 1) * embedding, *([hidden] if hidden else []), output]
    layers = [
        StoredLayer(rng.normal(size=(above, below)), rng.normal(size=above)) for below, above in pairwise(sizes)
    ]
    return NplmFile(
        order=order,
        activation=activation,
        input_words=[*words, "<null>"],
        output_words=words[::-1],
        input_embeddings=rng.normal(size=(len(words) + 1, embedding)),
        hidden=layers,
        output_weights=rng.normal(size=(len(words), output)),
        output_biases=rng.normal(size=len(words)),
    )
