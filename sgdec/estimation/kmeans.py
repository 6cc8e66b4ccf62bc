"""k-means clustering: Lloyd's algorithm by Faiss where it is installed, else by torch, behind one function.

Both start from r points drawn without repetition, assign every point to its nearest centroid and move each centroid
to the mean of its points, a fixed number of times; a centroid without points takes half of the largest cluster's.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Literal

import torch
from torch import Tensor

from sgdec.errors import UsageError
from sgdec.models.clusters import Nearest

Backend = Literal["auto", "faiss", "torch"]

POINTS_AT_ONCE = 16_384
SPLIT = 1 / 1024
"""A centroid that is split in two: both halves move away from it by this share of its coordinates (as in Faiss)."""


def kmeans(points: Tensor, r: int, *, iterations: int = 20, seed: int = 0, backend: Backend = "auto") -> Tensor:
    """Centroids [r, d] of points [n, d] after so many iterations of Lloyd's algorithm.

    Raises UsageError for fewer points than centroids and for Faiss where it is not installed.

    >>> points = torch.tensor([[0.0], [2.0], [10.0], [12.0]])
    >>> sorted(kmeans(points, 2, backend="torch").flatten().tolist())
    [1.0, 11.0]
    """
    if len(points) < r:
        raise UsageError(f"{r} clusters of {len(points)} context vectors; give more text, or fewer --centroids.")
    installed = find_spec("faiss") is not None
    if backend == "faiss" and not installed:
        raise UsageError('faiss is not installed; pip install "sgdec[clusters]", or use --backend torch.')
    points = points.float()
    if backend == "torch" or not installed:
        return _with_torch(points, r, iterations, seed)
    return _with_faiss(points, r, iterations, seed)


def inertia(points: Tensor, centroids: Tensor) -> float:
    """The sum of squared distances between points [n, d] and their nearest centroids [r, d]: what k-means lowers."""
    nearest = assign(points, centroids)
    return float((points - centroids[nearest]).double().square().sum())


def assign(points: Tensor, centroids: Tensor) -> Tensor:
    """The nearest centroid [n] of each point [n, d]."""
    nearest = Nearest(centroids)
    return torch.cat([nearest(block) for block in torch.split(points, POINTS_AT_ONCE)])


def _with_faiss(points: Tensor, r: int, iterations: int, seed: int) -> Tensor:
    import faiss

    clustering = faiss.Kmeans(
        points.shape[1],
        r,
        niter=iterations,
        seed=seed,
        min_points_per_centroid=1,  # it would warn,
        max_points_per_centroid=len(points),  # and it would draw a sample: the caller has done so
    )
    clustering.train(points.cpu().numpy())
    return torch.from_numpy(clustering.centroids).to(points.device)


def _with_torch(points: Tensor, r: int, iterations: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(len(points), generator=generator)[:r]
    centroids = points[chosen.to(points.device)]
    for _ in range(iterations):
        nearest = assign(points, centroids)
        sizes = nearest.bincount(minlength=r)
        sums = torch.zeros_like(centroids).index_add_(0, nearest, points)
        centroids = sums / sizes.clamp(min=1)[:, None]
        for empty in (sizes == 0).nonzero().flatten().tolist():
            largest = int(sizes.argmax())
            centroids[empty] = centroids[largest] * (1 + SPLIT)
            centroids[largest] *= 1 - SPLIT
            sizes[empty] = sizes[largest] // 2
            sizes[largest] -= sizes[empty]
    return centroids
