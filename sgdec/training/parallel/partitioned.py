"""A softmax partitioned over symbols: each rank has the logits of some of the V symbols (GNMT, Wu et al. 2016, 3.3).

With the logits z of a target token y, and label smoothing e, the loss of the token is

    ln sum_v exp z_v - (1 - e) z_y - e/V sum_v z_v

Each sum over symbols is the sum of the ranks' partial sums. So each rank sends four numbers per token instead of its
logits: the largest logit, which keeps exp within range, and then the three partial sums.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sgdec.training.parallel.transfer import Transfers

SOFTMAX = "softmax"
"""The purpose under which bytes are counted: per token, the largest logit and `SUMS` sums."""
SUMS = 3


def partitioned_nll(
    logits: Tensor, targets: Tensor, own: slice, symbols: int, transfers: Transfers, smoothing: float = 0.0
) -> Tensor:
    """-ln P [tokens] of the targets from logits [tokens, own symbols]; the result is the same on every rank.

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
