"""Random lists for optimisers of weights, and references that hidden weights choose."""

from __future__ import annotations

import numpy as np

from sgdec.arrays import Floats, Ints
from sgdec.tuning.lists import FeatureLists
from sgdec.tuning.metrics import METRICS

WORDS = 30


def random_lists(
    rng: np.random.Generator, metric: str = "bleu", *, features: int = 4, sentences: int = 6, coarse: bool = False
) -> FeatureLists:
    """A few hypotheses of each sentence with random statistics; ``coarse``: small numbers, so many lines meet."""
    sizes = rng.integers(1, 8, sentences)
    values = rng.normal(size=(sizes.sum(), features))
    if coarse:
        values = np.round(2 * values)
    return FeatureLists(
        tuple(f"f{k}" for k in range(features)), values, random_statistics(rng, metric, int(sizes.sum())),
        np.concatenate([[0], np.cumsum(sizes)]), METRICS[metric],
    )  # fmt: skip


def random_statistics(rng: np.random.Generator, metric: str, number: int) -> Floats:
    """``[N, D]``: counts as a metric has them."""
    if metric == "ter":
        return np.stack([rng.integers(0, 12, number), rng.integers(1, 12, number)], axis=1).astype(float)
    if metric == "chrf":
        ours, theirs = rng.integers(0, 30, (2, number, 6))
        matches = rng.integers(0, np.minimum(ours, theirs) + 1)
        return np.stack([ours, theirs, matches], axis=2).reshape(number, 18).astype(float)
    length, reference = rng.integers(0, 15, (2, number))
    total = np.maximum(length[:, None] - np.arange(4), 0)
    matches = rng.integers(0, np.minimum(total, reference[:, None]) + 1)
    return np.concatenate([length[:, None], reference[:, None], matches, total], axis=1).astype(float)


def planted(
    rng: np.random.Generator, *, sentences: int = 50, size: int = 20, features: int = 5
) -> tuple[FeatureLists, Floats]:
    """Lists whose references are the best hypotheses under hidden weights, and these weights: BLEU can be 100."""
    hidden = np.concatenate([[1.0], rng.uniform(0.1, 2.0, features - 1)])
    values = rng.normal(size=(sentences, size, features))
    texts = [[" ".join(map(str, rng.integers(0, WORDS, rng.integers(4, 15)))) for _ in range(size)] for _ in values]
    best: Ints = np.argmax(values @ hidden, axis=1)
    references = [own[at] for own, at in zip(texts, best.tolist(), strict=True)]
    metric = METRICS["bleu"]
    outputs = [text for own in texts for text in own]
    statistics = metric.statistics(outputs, [each for each in references for _ in range(size)])
    names, starts = tuple(f"f{k}" for k in range(features)), np.arange(sentences + 1) * size
    return FeatureLists(names, values.reshape(-1, features), statistics, starts, metric), hidden
