"""k-means clustering: Faiss's implementation of Lloyd's algorithm, which starts from points drawn without repetition.

A centroid without points receives half of the largest cluster's. The result depends only on points and seed, not on
the number of threads. Faiss computes on the CPU; points on a GPU are copied.
"""

from __future__ import annotations

from importlib.util import find_spec

import torch
from torch import Tensor

from sgdec.errors import UsageError


def require_faiss() -> None:
    """Raises UsageError if Faiss is not installed; callers use it before long work that ends in `kmeans`."""
    if find_spec("faiss") is None:
        raise UsageError('k-means needs Faiss, which is not installed (pip install "sgdec[clusters]").')


def kmeans(points: Tensor, r: int, *, iterations: int = 20, seed: int = 0) -> Tensor:
    """Centroids [r, d] of points [n, d] after ``iterations`` of Lloyd's algorithm.

    Raises UsageError if there are fewer points than centroids, or Faiss is not installed.
    """
    if len(points) < r:
        raise UsageError(
            f"{r} clusters need at least as many context vectors, not {len(points)}. Give more text, or fewer "
            "--centroids."
        )
    require_faiss()
    import faiss

    clustering = faiss.Kmeans(
        points.shape[1],
        r,
        niter=iterations,
        seed=seed,
        min_points_per_centroid=1,  # suppresses a warning
        max_points_per_centroid=len(points),  # prevents sampling: the caller gives a sample
    )
    clustering.train(points.float().cpu().numpy())
    return torch.from_numpy(clustering.centroids).to(points.device)
