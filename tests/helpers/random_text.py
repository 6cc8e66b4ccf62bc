"""Training text whose lengths alone matter."""

from __future__ import annotations

import numpy as np

from sgdec.training.data.text import MonolingualText, ParallelText, TextInMemory


def random_text(sides: int, examples: int = 500) -> TextInMemory:
    draw = np.random.default_rng(1)
    targets = draw.integers(1, 60, examples)
    sources = np.maximum(1, targets + draw.integers(-8, 9, examples))
    rows: list[list[list[int]]] = [[[5] * n for n in lengths.tolist()] for lengths in (targets, sources)]
    numbers = list(range(1, examples + 1))
    return MonolingualText(rows[0], numbers) if sides == 1 else ParallelText(rows[1], rows[0], numbers, [], [])
