"""The output projection reduced to some tokens: each row has its own set of active tokens.

    log P(token | h) = z_token - log sum_{t in A} exp z_t    for the tokens of a row's set A, -inf for all others

Few tokens are active for many rows, and most tokens of a union of sets are active for one or two rows. So the weights
of the few *common* tokens are packed once and multiplied with all rows, and the results are masked. For other tokens,
only the logits that a row needs are computed.
"""

from __future__ import annotations

import warnings
from functools import cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from sgdec.models.base import Seq2Seq
from sgdec.models.kernels import packed_linear


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


class ActiveProjection:
    """Maps outputs [rows, d] to log-probabilities [rows, V] over the active tokens of each row."""

    def __init__(self, common: Tensor, layer: OutputLayer, *, shared: bool = False) -> None:
        """``common`` [c]: the tokens whose logits are computed for all rows. ``shared``: rows often have the same
        other tokens, so that their weights are copied once."""
        self.vocab_size = len(layer.weight)
        self.common = common
        self._common_logits = packed_linear(layer.weight[common], layer.bias[common])
        self._other_logits = layer.gathered if shared or not layer.samples else layer.sampled
        self._layer = layer

    def __call__(self, output: Tensor, mask: Tensor | None, row: Tensor, tokens: Tensor) -> Tensor:
        """``mask`` [rows, c]: which common tokens are active; None = all. ``row`` [m], ascending, and ``tokens`` [m]:
        the other active tokens."""
        rows = len(output)
        common = self._layer.finish(self._common_logits(output))  # [rows, c]
        if mask is not None:
            common = torch.where(mask, common, float("-inf"))
        others = self._layer.finish(self._other_logits(output, row, tokens))  # [m]
        normaliser = _logsumexp(common, others, row)
        scores = common.new_full((rows, self.vocab_size), float("-inf"))
        scores.scatter_(1, self.common.expand(rows, -1), common - normaliser[:, None])
        scores[row, tokens] = others - normaliser[row]
        return scores


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
