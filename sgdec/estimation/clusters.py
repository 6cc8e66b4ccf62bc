"""Building vocabulary clusters offline, and measuring their miss rate (`sgdec.models.clusters` defines clusters).

Section 2.2 of "Fast Vocabulary Projection Method via Clustering": record the context vectors of a model on unlabelled
text, each with its K most probable next tokens; cluster the vectors with k-means; the active set of a cluster is the
union of its members' tokens. The targets of the text are the model's own translations of source sentences, so the
contexts are those of a search. The model is then run over all target positions at once, with forced targets.

Memory is bounded: k-means uses a sample of at most `POINTS_PER_CENTROID` vectors per centroid (Faiss's own limit),
and the active sets are collected in a second pass that stores no vectors. With enough memory a caller can record all
contexts once, as a list, and reuse it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor

from sgdec.context import EOS
from sgdec.estimation.kmeans import kmeans
from sgdec.models.base import Seq2Seq
from sgdec.models.clusters import NEVER, Clusters, Nearest
from sgdec.training.data.text import ParallelText

Recorded = tuple[Tensor, Tensor]
"""Context vectors [n, d], and the most probable next tokens [n, k] of each, the best first."""

POINTS_PER_CENTROID = 256
BATCH_TOKENS = 1024


@torch.inference_mode()
def contexts(
    model: Seq2Seq, data: ParallelText, k: int, *, order: tuple[int, int] | None = None, device: str = "cpu"
) -> Iterator[Recorded]:
    """Yield, batch by batch, the context vectors [n, d] of all target tokens, and the k most probable tokens [n, k].

    The target tokens include ``</s>``. With ``order`` = (seed, epoch) the batches are shuffled; k may be 0.
    """
    model.eval()
    for pairs in data.batches(BATCH_TOKENS, order=order):
        batch = data.batch(pairs).to(device)
        outputs = model(*batch.inputs)[batch.mask]  # [n, d]
        yield outputs, model.project(outputs).topk(k, dim=-1).indices if k else outputs.new_zeros(len(outputs), 0)


def build_clusters(
    model: Seq2Seq,
    data: ParallelText,
    *,
    centroids: int,
    k: int,
    vocab_size: int,
    iterations: int = 20,
    seed: int = 0,
    device: str = "cpu",
    report: Callable[[str], None] = lambda message: None,
) -> Clusters:
    """Clusters of the contexts in ``data``, whose targets are outputs of the model (one or several per source).

    A centroid that is nearest to no context is left out. ``report`` receives a message at each stage. Raises
    UsageError as `kmeans` does.
    """
    report("recording a sample of contexts")
    sample = _sample(model, data, centroids * POINTS_PER_CENTROID, seed, device)
    report(f"k-means of {len(sample):,} contexts")
    found = kmeans(sample, centroids, iterations=iterations, seed=seed)
    report("collecting the most probable tokens of all contexts")
    return collect(contexts(model, data, k, device=device), found, vocab_size)


def collect(recorded: Iterable[Recorded], centroids: Tensor, vocab_size: int) -> Clusters:
    """The clusters around given centroids [r, d], with active sets and numbers of members from recorded contexts."""
    r, nearest = len(centroids), Nearest(centroids)
    best = torch.full((r, vocab_size), NEVER, dtype=torch.uint8, device=centroids.device)
    members = torch.zeros(r, dtype=torch.long, device=centroids.device)
    for outputs, top in recorded:
        cluster = nearest(outputs)
        members += cluster.bincount(minlength=r)
        for rank, tokens in enumerate(top.unbind(1), start=1):
            so_far = best[cluster, tokens]
            best[cluster, tokens] = torch.where(so_far == NEVER, rank, so_far.clamp(max=rank)).to(torch.uint8)
    best[:, EOS] = 1
    used = (members > 0).cpu()
    best, members, centroids = best.cpu()[used], members.cpu()[used], centroids.cpu()[used]
    entries = best != NEVER  # [r, V]
    starts = torch.cat([torch.zeros(1, dtype=torch.long), entries.sum(1).cumsum(0)])
    tokens = entries.nonzero()[:, 1].contiguous()
    return Clusters(centroids.float(), starts, tokens, best[entries], members, vocab_size)


def miss_rates(clusters: Clusters, recorded: Iterable[Recorded]) -> tuple[list[float], list[float]]:
    """For k = 1, ..., K on contexts of held-out text: the miss rate, and the mean active share of the vocabulary.

    The miss rate is the share of contexts whose most probable token is not in the active set of their cluster. The
    active share is the mean, over the contexts, of the size of their active set divided by that of the vocabulary.
    """
    nearest = Nearest(clusters.centroids)
    sizes = [clusters.active(k).starts.diff() for k in range(1, clusters.k + 1)]  # K x [r]
    missed = torch.zeros(len(sizes), dtype=torch.long)
    active, total = [0] * len(sizes), 0
    for outputs, top in recorded:
        cluster = nearest(outputs.cpu())
        rank = clusters.rank(cluster, top[:, 0].cpu())  # [n]
        total += len(rank)
        for k, size in enumerate(sizes, start=1):
            missed[k - 1] += ((rank == NEVER) | (rank > k)).sum()
            active[k - 1] += int(size[cluster].sum())
    return (missed / total).tolist(), [count / (total * clusters.vocab_size) for count in active]


def _sample(model: Seq2Seq, data: ParallelText, wanted: int, seed: int, device: str) -> Tensor:
    """At most ``wanted`` context vectors [n, d], from batches in random order."""
    parts, points = [], 0
    for outputs, _ in contexts(model, data, 0, order=(seed, 0), device=device):
        parts.append(outputs[: wanted - points].float())
        points += len(parts[-1])
        if points == wanted:
            break
    return torch.cat(parts)
