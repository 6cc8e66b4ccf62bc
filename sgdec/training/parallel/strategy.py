"""How the ranks of a `ProcessGroup` share the work of one update: what the trainer asks of the parallel modes.

Every rank reads the same text, makes the same batches in the same order, and holds the whole model with the same
initial weights. For an update the trainer calls, on every rank and in this order, `seed`, `backward` and
`gradient_norm`. Then it clips the gradients, and the optimiser changes `owned`. Losses and norm are those of the
whole update and are equal on all ranks, so all ranks make the same decisions (NaN, clipping) independently.

**Ownership.** `owned` maps the names of model parameters to what this rank's optimiser changes: a whole parameter, or
some rows of one, as a `Parameter` that shares its memory with the model's (``nn.Parameter(weight.data[a:b])``).
Parameters that a rank does not own may be out of date in its model. `pieces` and `collect` convert between a rank's
own tensors and the whole ones, for weights, averages and the optimiser's state. So a checkpoint of any mode equals
that of one process, and a run can be resumed with another number of ranks or in another mode.

Only rank 0 validates, reports and writes, after collecting the whole weights; the other ranks wait for its scores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import ClassVar

import torch
from torch import Tensor, nn

from sgdec.models.base import Model
from sgdec.training.data.batch import TrainingBatch
from sgdec.training.parallel.group import ProcessGroup

Loss = Callable[[TrainingBatch], Tensor]
"""Computes the loss of a batch on the model's device: a sum over target tokens, which an update divides by their
number."""

MODES = {
    "data": ("sgdec.training.parallel.data", "DataParallel"),
    "model": ("sgdec.training.parallel.modes", "model_parallel"),
    "hybrid": ("sgdec.training.parallel.modes", "hybrid_parallel"),
}
"""The modes of ``--parallel``: the module of each, and its class or function with the arguments of `Strategy`."""


def make_strategy(mode: str, group: ProcessGroup, model: Model, loss: Loss) -> Strategy:
    """The strategy of ``--parallel MODE``. Raises `UsageError` if it cannot use this model or number of ranks."""
    if mode == "none":
        return Strategy(group, model, loss)
    module, name = MODES[mode]
    strategy: Strategy = getattr(import_module(module), name)(group, model, loss)
    return strategy


class Strategy:
    """Training in one process, and the base class of the parallel modes, whose results must be equal."""

    formula: ClassVar[str] = "nothing is sent"
    """The formula that `expected` computes, for messages: ``2 (W-1)/W x 4 bytes x parameters``."""

    def __init__(self, group: ProcessGroup, model: Model, loss: Loss) -> None:
        """Called on every rank with the same model and weights. Raises `UsageError` as `make_strategy` says."""
        self.group, self.model, self.loss = group, model, loss
        self.current: TrainingBatch | None = None
        """The batch that `backward` computes or failed at, to report a batch that did not fit in memory."""

    @property
    def owned(self) -> dict[str, nn.Parameter]:
        """The parameters that this rank's optimiser changes, by their names in the model and in its order."""
        return dict(self.model.named_parameters())

    def seed(self, seed: int) -> int:
        """This rank's seed for the dropout of an update, if a single process has ``seed``."""
        return seed

    def backward(self, batches: Sequence[TrainingBatch], total: Tensor) -> list[Tensor]:
        """Fill the empty gradients of `owned` with those of the sum of all losses, divided by ``total``.

        Returns each batch's share of that quotient, detached and equal on every rank. ``total``: usually the number
        of target tokens in all batches; the loss is never averaged per batch or per rank.
        """
        losses = []
        for batch in batches:
            self.current = batch
            loss = self.loss(batch) / total
            loss.backward()
            losses.append(loss.detach())
        return losses

    def gradient_norm(self) -> Tensor:
        """The norm of the whole model's gradient after `backward`, the same on every rank."""
        gradients = [parameter.grad for parameter in self.owned.values() if parameter.grad is not None]
        return torch.nn.utils.get_total_norm(gradients)

    def pieces(self, whole: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """This rank's part of tensors that are named after parameters or buffers; a view if it owns some rows.

        A tensor without dimensions, such as Adam's ``step``, is never cut.
        """
        return dict(whole)

    def collect(self, pieces: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The whole tensors on rank 0, from the `pieces` of all ranks; an empty dict on other ranks. Collective.

        On rank 0 a tensor that was whole already may be returned without a copy.
        """
        return dict(pieces) if self.group.first else {}

    def expected(self, batches: Sequence[TrainingBatch]) -> dict[str, float]:
        """The bytes that this rank sends in an update of these batches, by purpose, as predicted by `formula`."""
        return {}
