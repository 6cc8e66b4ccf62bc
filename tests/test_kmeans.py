"""The promise: k-means is Lloyd's algorithm, by Faiss and by torch alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from sgdec.errors import UsageError
from sgdec.estimation.kmeans import inertia, kmeans


def lloyd_by_hand(points: np.ndarray, centroids: np.ndarray, iterations: int) -> np.ndarray:
    for _ in range(iterations):
        nearest = np.linalg.norm(points[:, None] - centroids[None], axis=2).argmin(1)
        centroids = np.stack([points[nearest == j].mean(0) for j in range(len(centroids))])
    return centroids


def blobs(n: int = 600, r: int = 12, dimension: int = 5) -> torch.Tensor:
    draw = torch.Generator().manual_seed(5)
    centres = 4 * torch.randn(r, dimension, generator=draw)
    return centres[torch.arange(n) % r] + torch.randn(n, dimension, generator=draw)


def test_our_kmeans_is_lloyds_algorithm() -> None:
    points = blobs()
    start = torch.randperm(len(points), generator=torch.Generator().manual_seed(7))[:4]
    expected = lloyd_by_hand(points.double().numpy(), points[start].double().numpy(), 6)
    found = kmeans(points, 4, iterations=6, seed=7, backend="torch")
    assert np.allclose(found, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("backend", ["torch", "faiss"])
def test_both_kmeans_come_close_to_the_blobs_that_are_there(backend: Any) -> None:
    """The best inertia is about n d for unit variance; starts that are only drawn at random may double up."""
    if backend == "faiss":
        pytest.importorskip("faiss")
    points = blobs()
    found = [kmeans(points, 12, seed=seed, backend=backend) for seed in range(5)]
    assert all(centroids.shape == (12, 5) for centroids in found)
    assert min(inertia(points, centroids) for centroids in found) < 1.5 * points.numel()
    again = kmeans(points, 12, seed=0, backend=backend)
    assert again.equal(found[0]), "the same seed must give the same centroids"


def test_faiss_and_ours_reach_the_same_inertia() -> None:
    pytest.importorskip("faiss")
    points = torch.randn(2000, 8, generator=torch.Generator().manual_seed(6))
    ours, theirs = (inertia(points, kmeans(points, 20, backend=backend)) for backend in ("torch", "faiss"))
    assert ours == pytest.approx(theirs, rel=0.02)
    assert max(ours, theirs) < 0.85 * inertia(points, points.mean(0, keepdim=True))


def test_a_cluster_that_loses_its_points_takes_some_of_the_largest() -> None:
    points = torch.tensor([[1.0]] * 50 + [[2.0]])
    centroids = kmeans(points, 3, iterations=4, backend="torch")
    assert centroids.isfinite().all() and len(torch.unique(centroids)) == 3


def test_more_centroids_than_points_are_refused() -> None:
    with pytest.raises(UsageError, match="9 clusters of 8 context vectors"):
        kmeans(torch.zeros(8, 2), 9)


def test_faiss_is_asked_for_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sgdec.estimation.kmeans.find_spec", lambda name: None)
    with pytest.raises(UsageError, match="faiss is not installed"):
        kmeans(torch.zeros(8, 2), 2, backend="faiss")
    points = blobs()
    assert kmeans(points, 3).equal(kmeans(points, 3, backend="torch"))
