"""A softmax partitioned over symbols: each rank has the logits of some of the V symbols (GNMT, Wu et al. 2016, 3.3).

With z the logits of a token whose symbol is y, and label smoothing e, its loss is

    ln sum_v exp z_v - (1 - e) z_y - e/V sum_v z_v

Each sum over symbols is a sum of the ranks' sums, so that a token costs four numbers of all ranks, not V: the largest
logit, which keeps exp within range, and then the three sums.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sgdec.training.parallel.transfer import Transfers

SOFTMAX = "softmax"
"""What is counted: per token a largest logit and `SUMS`."""
SUMS = 3


def partitioned_nll(
    logits: Tensor, targets: Tensor, own: slice, symbols: int, transfers: Transfers, smoothing: float = 0.0
) -> Tensor:
    """-ln P [tokens] of the targets, the same on every rank, from logits [tokens, own symbols].

    ``own``: the symbols of this rank; ``symbols``: V. Collective.
    """
    logits = logits.float() if logits.dtype == torch.bfloat16 else logits
    here = (targets >= own.start) & (targets < own.stop)
    largest = transfers.largest(logits.detach().amax(-1), SOFTMAX)
    chosen = logits.gather(-1, (targets - own.start).clamp(0, logits.size(-1) - 1)[:, None])[:, 0]
    sums = torch.stack([torch.exp(logits - largest[:, None]).sum(-1), chosen.where(here, 0.0), logits.sum(-1)])
    normalizer, target, everything = transfers.sum(sums, SOFTMAX)
    losses: Tensor = normalizer.log() + largest - (1 - smoothing) * target - smoothing / symbols * everything
    return losses
