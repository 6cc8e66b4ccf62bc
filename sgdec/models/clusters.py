"""Vocabulary clusters: which columns of the output projection a context vector can need.

"Fast Vocabulary Projection Method via Clustering for Multilingual Machine Translation on GPU", section 2. The context
vectors h of a model (what `Seq2Seq.project` takes) fall into r clusters; the active set of a cluster holds the tokens
that were among the K likeliest for one of its members. To score h, find its centroid (equation 2)

    G = arg min_j |C_j|^2 - 2 h C_j

and project onto the active set of G alone; no other token can follow. Here are the clusters as a value, and the
arithmetic of that projection. `sgdec.training.clusters` builds them, `sgdec.training.cluster_files` keeps them.

For each cluster and token the best rank is kept (1 = it was some member's arg-max), so that the same clusters serve
every k up to the K they were built with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from sgdec.models.base import Seq2Seq
from sgdec.models.kernels import packed_linear

NEVER = 0
"""The rank of a token that no member of a cluster had among its K likeliest."""
COMMON = 1 / 64
"""A token that is active for this share of the contexts or more is always multiplied: of some tens of rows one or
another needs it anyway."""
COLUMNS_AT_ONCE = 2048
"""How many columns are gathered and multiplied at a time on a CPU: what was gathered is then still in its cache."""


class ActiveSets(NamedTuple):
    """The active tokens of each cluster: ``tokens[starts[j]:starts[j + 1]]``, ascending."""

    starts: Tensor
    """[r + 1]"""
    tokens: Tensor
    """[n]"""
    vocab_size: int

    def of(self, clusters: Tensor) -> tuple[Tensor, Tensor]:
        """The active tokens of these clusters [rows], one set after the other: their rows [m], and the tokens [m].

        >>> sets = ActiveSets(torch.tensor([0, 2, 5]), torch.tensor([2, 4, 2, 8, 9]), 10)
        >>> [part.tolist() for part in sets.of(torch.tensor([1, 0, 0]))]
        [[0, 0, 0, 1, 1, 2, 2], [2, 8, 9, 2, 4, 2, 4]]
        """
        first, sizes = self.starts[clusters], self.starts.diff()[clusters]  # [rows]
        row = torch.repeat_interleave(torch.arange(len(clusters), device=clusters.device), sizes)  # [m]
        before = sizes.cumsum(0) - sizes  # [rows] where each set begins in the result
        return row, self.tokens[(first - before)[row] + torch.arange(len(row), device=row.device)]


@dataclass(frozen=True)
class Clusters:
    """r clusters of context vectors, and for each the tokens that its members had among their K likeliest."""

    centroids: Tensor
    """[r, d]"""
    starts: Tensor
    """[r + 1] cluster j has the entries starts[j] to starts[j + 1]"""
    tokens: Tensor
    """[n] ascending within a cluster"""
    ranks: Tensor
    """[n] the token's best rank with a member of the cluster, from 1; ``</s>`` has 1 in every cluster"""
    members: Tensor
    """[r] how many context vectors a cluster was built from"""
    vocab_size: int

    @property
    def k(self) -> int:
        """K, the largest k that these clusters can serve."""
        return int(self.ranks.max())

    def active(self, k: int) -> ActiveSets:
        """The active sets for the k likeliest tokens, 1 <= k <= K."""
        kept = self.ranks <= k
        before = torch.cat([kept.new_zeros(1, dtype=torch.long), kept.cumsum(0)])
        return ActiveSets(before[self.starts], self.tokens[kept], self.vocab_size)

    def rank(self, clusters: Tensor, tokens: Tensor) -> Tensor:
        """Each token's [m] best rank in each cluster [m]; `NEVER` where it is in no active set of it."""
        cluster = torch.repeat_interleave(torch.arange(len(self.centroids)), self.starts.diff())
        keys = cluster * self.vocab_size + self.tokens  # [n] ascending
        wanted = clusters * self.vocab_size + tokens
        place = torch.searchsorted(keys, wanted).clamp(max=len(keys) - 1)
        return torch.where(keys[place] == wanted, self.ranks[place].long(), NEVER)


class Nearest:
    """Equation 2 with the centroids' squared norms computed once.

    >>> nearest = Nearest(torch.tensor([[0.0, 0.0], [4.0, 0.0]]))
    >>> nearest(torch.tensor([[1.0, 1.0], [3.0, -9.0]])).tolist()
    [0, 1]
    """

    def __init__(self, centroids: Tensor) -> None:
        """Centroids [r, d]."""
        self._norms = centroids.square().sum(1)  # [r]
        self._doubled = (-2 * centroids).t().contiguous()  # [d, r]

    def __call__(self, vectors: Tensor) -> Tensor:
        """The nearest centroid [rows] of each vector [rows, d]."""
        return torch.addmm(self._norms, vectors.to(self._doubled.dtype), self._doubled).argmin(1)


class OutputLayer(NamedTuple):
    """What a model does in `Seq2Seq.project`: x W^T + b, perhaps clipped."""

    weight: Tensor
    """[V, d]"""
    bias: Tensor
    """[V]"""
    bound: float | None = None
    """Logits are clipped to [-bound, bound] (GNMT, Wu et al. 2016, equation 13)."""

    def products(self, output: Tensor, tokens: Tensor) -> Tensor:
        """W x [u, rows] of outputs [rows, d] for some tokens [u] alone: equation 1 with the reduced weights.

        On a CPU in blocks of columns, so that a block is multiplied while the cache still has what was gathered.
        """
        at_once = COLUMNS_AT_ONCE if output.device.type == "cpu" else max(len(tokens), 1)
        across = output.t().contiguous()  # [d, rows]
        return torch.cat([self.weight[block] @ across for block in torch.split(tokens, at_once)])

    def finish(self, products: Tensor, tokens: Tensor) -> Tensor:
        """Logits [m], at least fp32, from products [m] of these tokens [m]."""
        logits = products + self.bias[tokens]
        logits = logits if self.bound is None else logits.clamp(-self.bound, self.bound)
        return logits.to(torch.promote_types(logits.dtype, torch.float32))


class ClusterProjection:
    """From outputs to log-probabilities by the steps of section 2.3.

    Tokens that are active for many contexts are in nearly every union: their columns are packed once and always
    multiplied, and only the others of a union are gathered. With one cluster that is all: the model with its
    never-used columns removed. What is multiplied beyond a row's active set is dropped.
    """

    def __init__(self, clusters: Clusters, k: int, layer: OutputLayer, *, shared: bool = False) -> None:
        """``shared``: a row uses the union of the active sets of all rows, else its own alone."""
        device = layer.weight.device
        starts, tokens, self.vocab_size = clusters.active(k)
        weights = (clusters.members / clusters.members.sum()).repeat_interleave(starts.diff())
        share = torch.zeros(self.vocab_size).index_add_(0, tokens, weights)  # [V] of the contexts, active for these
        core = (share >= COMMON).nonzero().squeeze(1).to(device)
        self._sets = ActiveSets(starts.to(device), tokens.to(device), self.vocab_size)
        self._nearest = Nearest(clusters.centroids.to(device))
        self.core, self._core_products = core, packed_linear(layer.weight[core])
        self._layer, self._shared = layer, shared

    def __call__(self, output: Tensor) -> tuple[Tensor, int]:
        """Outputs [rows, d] to log-probabilities [rows, V], and how many tokens are active for any row."""
        rows = len(output)
        row, tokens = self._sets.of(self._nearest(output))  # step 1
        active = torch.zeros(self.vocab_size, dtype=torch.bool, device=output.device)
        active[tokens] = True
        union = active.nonzero().squeeze(1)  # step 2
        if self._shared:
            row = torch.arange(rows, device=output.device).repeat_interleave(len(union))
            tokens = union.repeat(rows)
        active[self.core] = False
        columns = torch.cat([self.core, active.nonzero().squeeze(1)])  # [u]
        products = torch.cat(  # [u, rows], step 3
            [self._core_products(output).t(), self._layer.products(output, columns[len(self.core) :])]
        )
        place = tokens.new_empty(self.vocab_size)  # [V] of a token among the columns
        place[columns] = torch.arange(len(columns), device=output.device)
        logits = self._layer.finish(products[place[tokens], row], tokens)  # [m] each row's own
        sizes = row.bincount(minlength=rows)
        highest = torch.segment_reduce(logits, "max", lengths=sizes)  # [rows]
        total = torch.segment_reduce((logits - highest[row]).exp(), "sum", lengths=sizes)
        scores = logits.new_full((rows, self.vocab_size), float("-inf"))
        scores[row, tokens] = logits - (highest + total.log())[row]  # steps 4 and 5
        return scores, len(union)


def output_layer(model: Seq2Seq) -> OutputLayer:
    """The projection onto the vocabulary. Raises UsageError as `Seq2Seq.output_layer` does."""
    layer, bound = model.output_layer()
    return OutputLayer(layer.weight.detach(), layer.bias.detach(), bound)
