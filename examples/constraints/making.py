"""Parts of the programs that make the data of a task."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeAlias

Pair: TypeAlias = tuple[str, str]
"""A source and a target."""


def made_up(draw: random.Random, syllables: int) -> str:
    """A word."""
    return "".join(draw.choice("bdfgklmnprstvz") + draw.choice("aeiou") for _ in range(syllables))


def misspelled(text: str, draw: random.Random, chance: float) -> str:
    """With this chance, a letter after the first one is left out or doubled."""
    if draw.random() >= chance:
        return text
    place = draw.randrange(1, len(text))
    return text[:place] + draw.choice(("", text[place] * 2)) + text[place + 1 :]


def write_lines(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def write_pairs(folder: Path, name: str, pairs: Iterable[Pair]) -> None:
    """Write ``NAME.source`` and ``NAME.target``."""
    sources, targets = zip(*pairs, strict=True)
    write_lines(folder / f"{name}.source", sources)
    write_lines(folder / f"{name}.target", targets)


def write_parts(folder: Path, pairs: int, tests: int, known: Callable[[], Pair], new: Callable[[], Pair]) -> None:
    """Write the texts to train, validate and test. ``known`` draws a pair for the first two, ``new`` for the last."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, count, pair in (("train", pairs, known), ("valid", tests, known), ("test", tests, new)):
        write_pairs(folder, name, (pair() for _ in range(count)))
