"""How the work of one update is shared among the ranks of a `Group`: the seam between the trainer and the modes.

Every rank reads the same text, makes the same batches in the same order, and holds the whole model, equal weights to
begin with. For an update the trainer asks, on every rank and in this order: `seed`, `backward`, `gradient_norm`; then
it clips and lets the optimiser change `owned`. Losses and norm are those of the whole update, the same numbers on
every rank, so that all ranks come to the same decisions (NaN, clipping) by themselves.

**Ownership.** `owned` maps names of the model's parameters to what this rank's optimiser changes: whole parameters,
or some rows of one, as a `Parameter` that shares its memory with the model's (``nn.Parameter(weight.data[a:b])``).
What a rank does not own may be out of date in its model. `pieces` and `collect` translate between a rank's own and
the whole, for weights, averages and the optimiser's memory alike; they make a checkpoint of any mode that of one
process, and let a run be resumed with other ranks or in another mode.

Rank 0 alone validates, reports and writes, with the whole weights collected before; the others wait for its scores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import ClassVar

import torch
from torch import Tensor, nn

from sgdec.models.base import Model
from sgdec.training.data.batch import Batch
from sgdec.training.parallel.group import Group

Loss = Callable[[Batch], Tensor]
"""The loss of a batch, on the model's device: a sum over its target tokens (an update divides it by their number)."""

MODES = {
    "data": ("sgdec.training.parallel.data", "DataParallel"),
    "model": ("sgdec.training.parallel.modes", "model_parallel"),
    "hybrid": ("sgdec.training.parallel.modes", "hybrid_parallel"),
}
"""The modes of ``--parallel``: each one's module and class, a `Strategy` of the same constructor."""


def make_strategy(mode: str, group: Group, model: Model, loss: Loss) -> Strategy:
    """The strategy of ``--parallel MODE``. Raises `UsageError` if it cannot use this model or number of ranks."""
    if mode == "none":
        return Strategy(group, model, loss)
    module, name = MODES[mode]
    strategy: Strategy = getattr(import_module(module), name)(group, model, loss)
    return strategy


class Strategy:
    """One process does it all: what the modes start from, and must be equal to."""

    formula: ClassVar[str] = "nothing is sent"
    """What `expected` computes, for people: ``2 (W-1)/W x 4 bytes x parameters``."""

    def __init__(self, group: Group, model: Model, loss: Loss) -> None:
        """Called on every rank with the same model and weights. Raises `UsageError` as `make_strategy` says."""
        self.group, self.model, self.loss = group, model, loss
        self.current: Batch | None = None
        """Where `backward` is, or was when it failed: to report the batch that did not fit in memory."""

    @property
    def owned(self) -> dict[str, nn.Parameter]:
        """What this rank's optimiser changes, by the parameter's name in the model, in the model's order."""
        return dict(self.model.named_parameters())

    def seed(self, seed: int) -> int:
        """What this rank seeds an update's dropout with, where a single process takes ``seed``."""
        return seed

    def backward(self, batches: Sequence[Batch], total: Tensor) -> list[Tensor]:
        """Fill the gradients of `owned`, empty before, with those of the sum of all losses divided by ``total``.

        Returns what each batch adds to that quotient, detached, the same on every rank. ``total``: usually the number
        of target tokens in all batches, so that no batch's or rank's mean is ever taken.
        """
        losses = []
        for batch in batches:
            self.current = batch
            loss = self.loss(batch) / total
            loss.backward()  # type: ignore[no-untyped-call]
            losses.append(loss.detach())
        return losses

    def gradient_norm(self) -> Tensor:
        """The norm of the whole model's gradient after `backward`, the same on every rank."""
        gradients = [parameter.grad for parameter in self.owned.values() if parameter.grad is not None]
        return torch.nn.utils.get_total_norm(gradients)

    def pieces(self, whole: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Of tensors by parameters' names (buffers too), what this rank owns: views where it owns a part.

        A tensor without dimensions belongs to a parameter as a whole (Adam's ``step``) and is never cut.
        """
        return dict(whole)

    def collect(self, pieces: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The inverse of `pieces` on rank 0; elsewhere an empty dict. Collective.

        On rank 0 a tensor that was whole already may be returned as it is, without a copy.
        """
        return dict(pieces) if self.group.first else {}

    def expected(self, batches: Sequence[Batch]) -> dict[str, float]:
        """Bytes that this rank sends in an update of these batches, by purpose, as `formula` predicts them."""
        return {}
