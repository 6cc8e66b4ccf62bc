"""Vocabulary clusters: the output projection of a context vector computes only the tokens of its cluster.

"Fast Vocabulary Projection Method via Clustering for Multilingual Machine Translation on GPU", section 2. The context
vectors h of a model (the inputs of `Seq2Seq.project`) are divided into r clusters. The active set of a cluster holds
the tokens that were among the K most probable ones for one of its members. To score h, find its centroid (equation 2)

    G = arg min_j |C_j|^2 - 2 h C_j

and project onto the active set of G only; all other tokens have probability 0. This file defines the clusters and the
arithmetic of the projection. `sgdec.estimation.clusters` builds clusters, and `sgdec.checkpoints.clusters` stores
them.

For each cluster and token the best rank is stored (1: the token was some member's arg-max). So the same clusters can
be used with every k up to the K they were built with.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sgdec.models.active import ActiveProjection, ActiveSets, OutputLayer

NEVER = 0
"""The rank of a token that was not among the K most probable for any member of a cluster."""
COMMON = 1 / 16
"""The logits of a token that is active for at least this share of the contexts are computed for all rows. As part of
a packed product this costs no more than computing the logits one by one for this share of the rows."""


@dataclass(frozen=True)
class Clusters:
    """r clusters of context vectors, each with the tokens that were among the K most probable for a member."""

    centroids: Tensor
    """[r, d]"""
    starts: Tensor
    """[r + 1] cluster j has the entries from starts[j] to starts[j + 1] - 1"""
    tokens: Tensor
    """[n] ascending within a cluster"""
    ranks: Tensor
    """[n] the token's best rank for a member of the cluster, from 1; ``</s>`` has rank 1 in every cluster"""
    members: Tensor
    """[r] the number of context vectors that a cluster was built from"""
    vocab_size: int

    @property
    def k(self) -> int:
        """K, the largest k that these clusters can be used with."""
        return int(self.ranks.max())

    def active(self, k: int) -> ActiveSets:
        """The active sets for the k most probable tokens, 1 <= k <= K."""
        return ActiveSets(self.starts, self.tokens).where(self.ranks <= k)

    def rank(self, clusters: Tensor, tokens: Tensor) -> Tensor:
        """The best rank [m] of each token [m] in its given cluster [m]; `NEVER` if it is never active there."""
        cluster = torch.repeat_interleave(torch.arange(len(self.centroids)), self.starts.diff())
        keys = cluster * self.vocab_size + self.tokens  # [n] ascending
        wanted = clusters * self.vocab_size + tokens
        place = torch.searchsorted(keys, wanted).clamp(max=len(keys) - 1)
        return torch.where(keys[place] == wanted, self.ranks[place].long(), NEVER)


class Nearest:
    """Finds the nearest centroid by equation 2, with the centroids' squared norms computed once.

    >>> nearest = Nearest(torch.tensor([[0.0, 0.0], [4.0, 0.0]]))
    >>> nearest(torch.tensor([[1.0, 1.0], [3.0, -9.0]])).tolist()
    [0, 1]
    """

    def __init__(self, centroids: Tensor) -> None:
        """``centroids`` [r, d]."""
        self._norms = centroids.square().sum(1)  # [r]
        self._doubled = (-2 * centroids).t().contiguous()  # [d, r]

    def __call__(self, vectors: Tensor) -> Tensor:
        """The number of the nearest centroid [rows] for each vector [rows, d]."""
        return torch.addmm(self._norms, vectors.to(self._doubled.dtype), self._doubled).argmin(1)


class ClusterProjection:
    """Maps outputs to log-probabilities by the steps of section 2.3.

    The paper gathers the weights of the union of all rows' active sets and multiplies them with every row;
    `ActiveProjection` computes what each row needs. With one cluster all active tokens are common: the model without
    the tokens that are never active.
    """

    def __init__(self, clusters: Clusters, k: int, layer: OutputLayer, *, shared: bool = False) -> None:
        """``shared``: each row uses the union of the active sets of all rows instead of its own active set."""
        device, self.vocab_size = layer.weight.device, clusters.vocab_size
        sets = clusters.active(k)
        cluster = torch.repeat_interleave(torch.arange(len(clusters.members)), sets.starts.diff())  # [n]
        weights = (clusters.members / clusters.members.sum())[cluster]
        share = torch.zeros(self.vocab_size).index_add_(0, sets.tokens, weights)  # [V] share of the contexts
        self.common = (share >= COMMON).nonzero().squeeze(1).to(device)  # [c], includes </s>
        has = torch.zeros(len(clusters.members), self.vocab_size, dtype=torch.bool)
        has[cluster, sets.tokens] = True
        self._has = has[:, share >= COMMON].to(device)  # [r, c] whether a common token is active for a cluster
        others = sets.where(share[sets.tokens] < COMMON)
        self._others = ActiveSets(others.starts.to(device), others.tokens.to(device))
        self._nearest = Nearest(clusters.centroids.to(device))
        self._project = ActiveProjection(self.common, layer, shared=shared)
        self._shared = shared

    def __call__(self, output: Tensor) -> tuple[Tensor, int]:
        """Log-probabilities [rows, V] of outputs [rows, d], and the number of tokens that are active for any row."""
        nearest = self._nearest(output)  # step 1
        mask = self._has[nearest]  # [rows, c]
        row, tokens = self._others.of(nearest)  # [m] each
        active = torch.zeros(self.vocab_size, dtype=torch.bool, device=output.device)
        active[tokens] = True
        union = active.nonzero().squeeze(1)  # step 2, without the common tokens
        size = len(union) + int(mask.any(0).sum())
        if self._shared:
            mask = mask.any(0)
            row = torch.arange(len(output), device=output.device).repeat_interleave(len(union))
            tokens = union.repeat(len(output))
        return self._project(output, mask, row, tokens), size  # steps 3 to 5
