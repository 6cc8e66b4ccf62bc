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

import warnings
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from sgdec.models.base import Seq2Seq
from sgdec.models.kernels import packed_linear

NEVER = 0
"""The rank of a token that was not among the K most probable for any member of a cluster."""
COMMON = 1 / 16
"""The logits of a token that is active for at least this share of the contexts are computed for all rows. As part of
a packed product this costs no more than computing the logits one by one for this share of the rows."""


class ActiveSets(NamedTuple):
    """The active tokens of each cluster: ``tokens[starts[j]:starts[j + 1]]``, ascending."""

    starts: Tensor
    """[r + 1]"""
    tokens: Tensor
    """[n]"""

    def where(self, kept: Tensor) -> ActiveSets:
        """The active sets reduced to the tokens for which ``kept`` [n] is true."""
        before = torch.cat([kept.new_zeros(1, dtype=torch.long), kept.cumsum(0)])
        return ActiveSets(before[self.starts], self.tokens[kept])

    def of(self, clusters: Tensor) -> tuple[Tensor, Tensor]:
        """The active tokens of these clusters [rows], one set after the other: each one's row [m] and token [m].

        >>> sets = ActiveSets(torch.tensor([0, 2, 5]), torch.tensor([2, 4, 2, 8, 9]))
        >>> [part.tolist() for part in sets.of(torch.tensor([1, 0, 0]))]
        [[0, 0, 0, 1, 1, 2, 2], [2, 8, 9, 2, 4, 2, 4]]
        """
        first, sizes = self.starts[clusters], self.starts.diff()[clusters]  # [rows]
        row = torch.repeat_interleave(torch.arange(len(clusters), device=clusters.device), sizes)  # [m]
        before = sizes.cumsum(0) - sizes  # [rows] the start of each set in the result
        return row, self.tokens[(first - before)[row] + torch.arange(len(row), device=row.device)]


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


class OutputLayer(NamedTuple):
    """The computation of `Seq2Seq.project`: x W^T + b, optionally clipped."""

    weight: Tensor
    """[V, d]"""
    bias: Tensor
    """[V]"""
    bound: float | None = None
    """Logits are clipped to [-bound, bound] (GNMT, Wu et al. 2016, equation 13)."""

    def sampled(self, output: Tensor, row: Tensor, tokens: Tensor) -> Tensor:
        """Some logits [m] of outputs [rows, d], without clipping: logit i is of token tokens[i] in row row[i].

        ``row`` [m] ascends. Each logit is one dot product with a row of the weight in its place: no weights are
        copied, and no row depends on another. Only if `samples` is true.
        """
        sizes = row.bincount(minlength=len(output))
        starts = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
        shape = (len(output), len(self.weight))
        wanted = torch.sparse_csr_tensor(starts, tokens, self.bias[tokens], shape, check_invariants=False)
        logits: Tensor = torch.sparse.sampled_addmm(wanted, output, self.weight.t()).values()
        return logits

    def gathered(self, output: Tensor, row: Tensor, tokens: Tensor) -> Tensor:
        """The same logits by equation 1: copies the weights of all these tokens and multiplies them with all rows."""
        columns, place = torch.unique(tokens, return_inverse=True)  # [u], [m]
        return F.linear(output, self.weight[columns], self.bias[columns])[row, place]

    @property
    def samples(self) -> bool:
        """Whether `sampled` works for this layer: on a CPU, in fp32 or fp64."""
        exact = self.weight.dtype in (torch.float32, torch.float64)
        return exact and self.weight.device.type == "cpu" and _samples()

    def finish(self, logits: Tensor) -> Tensor:
        """The logits, clipped if there is a bound, in fp32 or higher precision."""
        logits = logits if self.bound is None else logits.clamp(-self.bound, self.bound)
        return logits.to(torch.promote_types(logits.dtype, torch.float32))


class ClusterProjection:
    """Maps outputs to log-probabilities by the steps of section 2.3.

    The paper gathers the weights of the union of all rows' active sets and multiplies them with every row. But only
    few tokens are active for many contexts, and most of a union is active for one or two rows. So the weights of the
    few common tokens are packed once and multiplied with all rows, and the results are masked. For other tokens, only
    the logits that a row needs are computed. With one cluster all active tokens are common: the model without the
    tokens that are never active.
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
        self._common_logits = packed_linear(layer.weight[self.common], layer.bias[self.common])
        self._other_logits = layer.gathered if shared or not layer.samples else layer.sampled
        self._layer, self._shared = layer, shared

    def __call__(self, output: Tensor) -> tuple[Tensor, int]:
        """Log-probabilities [rows, V] of outputs [rows, d], and the number of tokens that are active for any row."""
        rows = len(output)
        nearest = self._nearest(output)  # step 1
        mask = self._has[nearest]  # [rows, c]
        row, tokens = self._others.of(nearest)  # [m] each
        active = torch.zeros(self.vocab_size, dtype=torch.bool, device=output.device)
        active[tokens] = True
        union = active.nonzero().squeeze(1)  # step 2, without the common tokens
        size = len(union) + int(mask.any(0).sum())
        if self._shared:
            mask = mask.any(0)
            row = torch.arange(rows, device=output.device).repeat_interleave(len(union))
            tokens = union.repeat(rows)
        common = self._layer.finish(self._common_logits(output))  # [rows, c] step 3
        common = torch.where(mask, common, float("-inf"))
        others = self._layer.finish(self._other_logits(output, row, tokens))  # [m]
        normaliser = _logsumexp(common, others, row)
        scores = common.new_full((rows, self.vocab_size), float("-inf"))
        scores.scatter_(1, self.common.expand(rows, -1), common - normaliser[:, None])  # steps 4 and 5
        scores[row, tokens] = others - normaliser[row]
        return scores, size


def _logsumexp(common: Tensor, others: Tensor, row: Tensor) -> Tensor:
    """log sum exp [rows] of common logits [rows, c] and other logits [m].

    ``row`` [m]: the row of each other logit, ascending; a row may have no other logits.

    >>> _logsumexp(torch.zeros(2, 1), torch.zeros(1), torch.tensor([1])).exp().tolist()
    [1.0, 2.0]
    """
    sizes = row.bincount(minlength=len(common))
    highest = common.amax(1).maximum(torch.segment_reduce(others, "max", lengths=sizes))  # [rows]
    total = (common - highest[:, None]).exp().sum(1)
    total += torch.segment_reduce((others - highest[row]).exp(), "sum", lengths=sizes)
    return highest + total.log()


def output_layer(model: Seq2Seq) -> OutputLayer:
    """A model's projection onto the vocabulary. Raises UsageError as `Seq2Seq.output_layer` does."""
    layer, bound = model.output_layer()
    return OutputLayer(layer.weight.detach(), layer.bias.detach(), bound)


@cache
def _samples() -> bool:
    """Whether `torch.sparse.sampled_addmm` works here. It is tried once, because sparse tensors are in beta.

    PyTorch warns of that when the first sparse tensor is made, which happens here.
    """
    layer = OutputLayer(torch.linspace(-1, 1, 336).view(7, 48), torch.arange(7.0))
    output, row, tokens = torch.linspace(-1, 1, 96).view(2, 48), torch.tensor([0, 0, 1]), torch.tensor([2, 5, 0])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = layer.sampled(output, row, tokens)
    except (AttributeError, NotImplementedError, RuntimeError):
        return False
    return torch.allclose(found, layer.gathered(output, row, tokens), atol=1e-4)
