"""``--parallel data``: every rank has the whole model and computes the gradient of its share of each batch.

The sentences of each batch, which are in order of length, are dealt to the ranks in turn. So the shares have similar
numbers of sentences and similar lengths, and need similar time and memory. The gradients are summed over the ranks
while they are computed (PyTorch's `DistributedDataParallel`, DDP), and all ranks make the same update. This works
with every model. Batches and results are those of a single process with the same ``--batch-tokens``, so users of W
ranks give W times as many tokens.

Each rank divides its losses by the number of tokens of the whole update, and the gradients are *summed*. DDP's
default is the mean of the ranks' means, which would give the tokens of a small share more weight. A rank without a
sentence computes the loss of the batch's first sentence, times zero.

In each step a rank sends its gradients once, whatever the number of batches, in a ring: 2 (W-1)/W times their bytes.
It also sends one number per batch, its loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

import torch
from torch import Tensor, nn
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from sgdec.errors import SgdecError
from sgdec.models.base import Model
from sgdec.training.data.batch import STAND_IN, TrainingBatch, take
from sgdec.training.data.seeds import hash_seed
from sgdec.training.parallel.group import ProcessGroup, ring
from sgdec.training.parallel.strategy import Loss, Strategy

GRADIENTS, LOSSES = "gradients", "losses"


class DataParallel(Strategy):
    """Data parallelism: each rank has a replica of the model."""

    formula = "each rank 2 (W-1)/W x (bytes of the gradients + bytes of one loss per batch)"

    def __init__(self, group: ProcessGroup, model: Model, loss: Loss) -> None:
        super().__init__(group, model, loss)
        self._objective: nn.Module = _Objective(model, loss)
        self._replica: DistributedDataParallel | None = None
        """Made after the first update, which shows whether some parameters have no gradient."""
        self._summed = 0
        """Number of gradient elements that DDP has sent in this update."""

    def seed(self, seed: int) -> int:
        """A different dropout seed on each rank; on rank 0 that of a single process."""
        return seed if self.group.first else hash_seed(seed, self.group.rank)

    def backward(self, batches: Sequence[TrainingBatch], total: Tensor) -> list[Tensor]:
        """As `Strategy.backward`; gradients are sent once, during the backward pass of the last batch."""
        replica = self._replica
        losses = []
        for number, batch in enumerate(batches, start=1):
            rows = own_rows(batch, self.group)
            share = take(batch, rows) if rows else take(batch, [0])._replace(lines=[STAND_IN])
            with replica.no_sync() if replica and number < len(batches) else nullcontext():
                loss = (replica or self._objective)(share) * bool(rows) / total
                loss.backward()
            losses.append(loss.detach())
        if replica is None and self.group.size > 1:
            self._replicate(self._sum_gradients())
        elif replica is not None:
            self._refuse_partial()
        together = torch.stack(losses)
        self.group.all_reduce(together, LOSSES)
        return list(together.unbind())

    def _sum_gradients(self) -> bool:
        """Sum the gradients as DDP does, but parameter by parameter.

        Returns whether any rank has a parameter without gradient.
        """
        learnt = {name: parameter for name, parameter in self.owned.items() if parameter.requires_grad}
        reached = self.group.agree([name for name, parameter in learnt.items() if parameter.grad is not None])
        for name, parameter in learnt.items():
            if any(name in names for names in reached):
                parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                self.group.all_reduce(parameter.grad, GRADIENTS)
        return any(len(names) < len(learnt) for names in reached)

    def _refuse_partial(self) -> None:
        """Raises `SgdecError` if DDP is still waiting for gradients of parameters that this update did not use."""
        summed, self._summed = self._summed, 0
        if summed != sum(parameter.numel() for parameter in self.owned.values() if parameter.requires_grad):
            raise SgdecError(
                f"--parallel data: {type(self.model).__name__} had gradients for all its parameters in the first "
                "step, but not in this one. Train it in one process."
            )

    def _replicate(self, unused: bool) -> None:
        replica = DistributedDataParallel(
            self._objective, find_unused_parameters=unused, gradient_as_bucket_view=True
        )
        replica.register_comm_hook(None, lambda state, bucket: self._sum(bucket.buffer()))
        self._replica = replica

    def _sum(self, bucket: Tensor) -> Future[Tensor]:
        """DDP's hook for a bucket of finished gradients: sum them over the ranks instead of averaging."""
        work = self.group.all_reduce(bucket, GRADIENTS, wait=False)
        assert work is not None  # DDP is used with more than one rank only
        self._summed += bucket.numel()
        return work.get_future().then(lambda future: future.value()[0])

    def expected(self, batches: Sequence[TrainingBatch]) -> dict[str, float]:
        gradients = sum(parameter.nbytes for parameter in self.owned.values() if parameter.requires_grad)
        numbers = len(batches) * next(iter(self.owned.values())).element_size()
        return {GRADIENTS: ring(self.group.size, gradients), LOSSES: ring(self.group.size, numbers)}


class _Objective(nn.Module):
    """A model and its loss as one module, as DDP needs it."""

    def __init__(self, model: Model, loss: Loss) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, batch: TrainingBatch) -> Tensor:
        return self.loss(batch)


def own_rows(batch: TrainingBatch, group: ProcessGroup) -> list[int]:
    """The rows of a batch that belong to this rank; may be empty."""
    return list(range(group.rank, len(batch.lines), group.size))
