"""A toy corpus and settings small enough to train in a test: number words, English to German."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from sgdec.text.sentencepiece import train_vocabulary
from sgdec.training.config import TrainConfig
from sgdec.training.preparing import prepare

WORDS = {"one": "eins", "two": "zwei", "three": "drei", "four": "vier", "five": "fünf"}
SENTENCES = [
    *itertools.product(WORDS, repeat=1),
    *itertools.product(WORDS, repeat=2),
    *[words for n, words in enumerate(itertools.product(WORDS, repeat=5)) if n % 40 == 0],
]
PAIRS = [(" ".join(words), " ".join(WORDS[word] for word in words)) for words in SENTENCES]


def write_text(folder: Path, name: str, pairs: list[tuple[str, str]]) -> tuple[str, str]:
    """Two files, line by line."""
    paths = str(folder / f"{name}.en"), str(folder / f"{name}.de")
    for path, lines in zip(paths, zip(*pairs, strict=True), strict=True):
        Path(path).write_text("".join(f"{line}\n" for line in lines))
    return paths


def make_config(folder: Path, output: str = "run", **settings: Any) -> TrainConfig:
    """109 pairs in about 14 batches, a GNMT of 2+2 x 16; whatever is given wins."""
    tokenizer = folder / "tok.spm"
    if not tokenizer.exists():
        vocabulary = train_vocabulary([line for pair in PAIRS for line in pair], 20, kind="word")
        tokenizer.write_bytes(vocabulary.serialized)
    defaults: dict[str, Any] = {
        "train": write_text(folder, "train", PAIRS),
        "valid": write_text(folder, "valid", PAIRS[::7]),
        "tokenizer": (str(tokenizer),),
        "output": str(folder / output),
        "options": {"width": 16, "dropout": 0.1},
        **({} if "batch_pairs" in settings else {"batch_tokens": 48}),
        "max_steps": 12,
        "bleu": 5,
        "threads": 1,
        "precision": "fp32",
    }
    return TrainConfig(**{**defaults, **settings})


def losses(config: TrainConfig, *, resume: bool = False, steps: int | None = None) -> list[float]:
    """Train without a word; after ``steps`` the run stops dead, as if it was killed."""
    made = []
    for loss in prepare(config, resume=resume, quiet=True).steps():
        made.append(loss)
        if len(made) == steps:
            break
    return made
