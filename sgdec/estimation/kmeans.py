"""k-means clustering: Lloyd's algorithm by Faiss, from points drawn without repetition.

A centroid without points takes half of the largest cluster's. The result is a function of points and seed, whatever
the number of threads. Faiss computes on the CPU: points on a GPU are copied.
"""

from __future__ import annotations

from importlib.util import find_spec

import torch
from torch import Tensor

from sgdec.errors import UsageError


def require_faiss() -> None:
    """Raises UsageError if Faiss is not installed; to call before long work that ends in `kmeans`."""
    if find_spec("faiss") is None:
        raise UsageError('k-means needs Faiss, which is not installed (pip install "sgdec[clusters]").')


def kmeans(points: Tensor, r: int, *, iterations: int = 20, seed: int = 0) -> Tensor:
    """Centroids [r, d] of points [n, d] after ``iterations`` of Lloyd's algorithm.

    Raises UsageError for fewer points than centroids, and as `require_faiss`.
    """
    if len(points) < r:
        raise UsageError(f"{r} clusters of {len(points)} context vectors; give more text, or fewer --centroids.")
    require_faiss()
    import faiss

    clustering = faiss.Kmeans(
        points.shape[1],
        r,
        niter=iterations,
        seed=seed,
        min_points_per_centroid=1,  # it would warn,
        max_points_per_centroid=len(points),  # and it would draw a sample: the caller has done so
    )
    clustering.train(points.float().cpu().numpy())
    return torch.from_numpy(clustering.centroids).to(points.device)
