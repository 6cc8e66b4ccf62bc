"""Some clusters of a tiny model, and what they must hold, worked out by hand; for the tests of clusters."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch

from sgdec.checkpoints.loading import load_model
from sgdec.context import BOS, EOS
from sgdec.models.clusters import NEVER, Clusters
from sgdec.protocol import Source
from sgdec.training.data.text import ParallelText

V = 16
LETTERS = "abcdefghijkl"
SOURCES = [
    Source(n, tokens, max_length=6) for n, tokens in enumerate([(5,), (3, 4, 15, 3, 6, 4), (12, 6), (13, 4)], 1)
]


@cache
def module_of(model: str) -> Any:
    return load_model(model, precision="fp64")[0]


def some_text(pairs: int, seed: int = 1) -> ParallelText:
    """Random sources with random targets."""
    draw = np.random.default_rng(seed)
    sources, targets = (
        [draw.integers(3, V, size=draw.integers(1, 6)).tolist() for _ in range(pairs)] for _ in range(2)
    )
    return ParallelText(sources, targets, list(range(1, pairs + 1)), [], [])


def some_clusters(centroids: torch.Tensor) -> Clusters:
    """Random active sets of ranks 1 to 3 around these centroids [r, d]."""
    r, draw = len(centroids), np.random.default_rng(2)
    best = draw.choice([NEVER, 1, 2, 3], p=[0.7, 0.1, 0.1, 0.1], size=(r, V)).astype(np.uint8)
    best[:, EOS] = 1
    best[0, 7] = 3
    starts = np.concatenate([[0], (best != NEVER).sum(1).cumsum()])
    return Clusters(
        centroids.float(),
        torch.from_numpy(starts),
        torch.from_numpy(best.nonzero()[1].copy()),
        torch.from_numpy(best[best != NEVER]),
        torch.ones(r, dtype=torch.long),
        V,
    )


def context_vector(model: str, source: Sequence[int], prefix: Sequence[int]) -> torch.Tensor:
    """[d] after ``prefix``, one step at a time."""
    module = module_of(model)
    with torch.inference_mode():
        memory = module.encode(torch.tensor([list(source)]), torch.tensor([len(source)]))
        state = module.start(memory)
        for token in (BOS, *prefix):
            state, output, _ = module.step(memory, state, torch.tensor([token]))
    return output[0].clone()  # type: ignore[no-any-return]  # a normal tensor


def some_contexts(model: str, r: int) -> torch.Tensor:
    """[r, d]: context vectors that the model has on `some_text` (20), to serve as centroids."""
    data = some_text(20)
    pairs = zip(data.sources[:r], data.targets[:r], strict=True)
    return torch.stack([context_vector(model, source, target) for source, target in pairs])


def logits_of(model: str, vector: torch.Tensor) -> np.ndarray:
    with torch.no_grad():
        return module_of(model).project(vector).numpy()  # type: ignore[no-any-return]


def nearest_by_hand(vector: torch.Tensor, centroids: torch.Tensor) -> int:
    return int(np.argmin([float((vector.double() - centroid.double()).norm()) for centroid in centroids]))


def active_by_hand(clusters: Clusters, cluster: int, k: int = 255) -> set[int]:
    here = range(int(clusters.starts[cluster]), int(clusters.starts[cluster + 1]))
    return {int(clusters.tokens[i]) for i in here if clusters.ranks[i] <= k}


def expected_row(model: str, source: Source, prefix: Sequence[int], active: set[int]) -> np.ndarray:
    """The softmax over the active tokens, -inf elsewhere."""
    logits = logits_of(model, context_vector(model, source.tokens, prefix))
    row = np.full(V, -np.inf)
    chosen = sorted(active)
    row[chosen] = logits[chosen] - np.log(np.exp(logits[chosen]).sum())
    return row
