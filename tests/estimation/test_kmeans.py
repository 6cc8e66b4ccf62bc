"""The promise: k-means is Lloyd's algorithm, and a function of points and seed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch

from sgdec.errors import UsageError
from sgdec.estimation.kmeans import kmeans

faiss = pytest.importorskip("faiss")

Array = npt.NDArray[np.float64]


def lloyd_step(points: Array, centroids: Array) -> tuple[Array, float]:
    """The means of the clusters, and the sum of squared distances to the centroids before."""
    distances = np.linalg.norm(points[:, None] - centroids[None], axis=2)
    nearest = distances.argmin(1)
    means = np.stack([points[nearest == j].mean(0) for j in range(len(centroids))])
    return means, float((distances.min(1) ** 2).sum())


def blobs(n: int = 600, r: int = 12, dimension: int = 5) -> torch.Tensor:
    draw = torch.Generator().manual_seed(5)
    centres = 4 * torch.randn(r, dimension, generator=draw)
    return centres[torch.arange(n) % r] + torch.randn(n, dimension, generator=draw)


def test_centroids_that_have_converged_are_the_means_of_their_points() -> None:
    points = blobs().double().numpy()
    centroids = kmeans(blobs(), 12, iterations=100).double().numpy()
    assert np.allclose(lloyd_step(points, centroids)[0], centroids, rtol=0, atol=1e-4)


def test_an_iteration_is_one_of_lloyds() -> None:
    before, after = (kmeans(blobs(), 4, iterations=n, seed=7).double().numpy() for n in (3, 4))
    assert np.allclose(lloyd_step(blobs().double().numpy(), before)[0], after, rtol=0, atol=1e-4)


def test_centroids_come_close_to_the_blobs_that_are_there() -> None:
    """The best inertia is about n d for unit variance; starts that are only drawn at random may double up."""
    points = blobs()
    found = [kmeans(points, 12, seed=seed) for seed in range(5)]
    assert all(centroids.shape == (12, 5) for centroids in found)
    assert min(lloyd_step(points.numpy(), centroids.numpy())[1] for centroids in found) < 1.5 * points.numel()


def test_centroids_are_a_function_of_points_and_seed_alone() -> None:
    points, threads = torch.randn(5000, 16, generator=torch.Generator().manual_seed(6)), faiss.omp_get_max_threads()
    found = []
    try:
        for count in (1, 2, 2):
            faiss.omp_set_num_threads(count)
            found.append(kmeans(points, 40, seed=3))
    finally:
        faiss.omp_set_num_threads(threads)
    assert found[1].equal(found[0]) and found[2].equal(found[0])
    assert not kmeans(points, 40, seed=4).equal(found[0])


def test_a_cluster_that_loses_its_points_takes_some_of_the_largest() -> None:
    points = torch.tensor([[1.0]] * 50 + [[2.0]])
    centroids = kmeans(points, 3, iterations=4)
    assert centroids.isfinite().all() and len(torch.unique(centroids)) == 3


def test_more_centroids_than_points_are_refused() -> None:
    with pytest.raises(UsageError, match="9 clusters need at least as many context vectors, not 8"):
        kmeans(torch.zeros(8, 2), 9)
