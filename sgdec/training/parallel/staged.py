"""The base class of the modes model and hybrid, in which each rank computes only a stage of the model.

| file | contents |
|---|---|
| `transfer.py` | sending and receiving, forward and backward |
| `wavefront.py` | layers over chunks of packed sentences; the layers of each rank |
| `placement.py` | the ranks that hold each parameter; joining and dividing the tensors of checkpoints |
| `luong.py`, `luong_modes.py` | luong: model and hybrid |
| `gnmt.py`, `partitioned.py` | gnmt: model, with a softmax partitioned over symbols |

A mode of a model is a subclass that defines the ranks of each parameter (`place`) and a rank's work on a batch
(`forward`). All ranks read the same batches, so they send only vectors and no words. A rank has gradients and the
optimiser's state only for the parameters that it owns. It keeps the other parameters in the host's memory, with
outdated values, for the shapes in a checkpoint. Rank 0, which validates, has all parameters on its device.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from sgdec.errors import UsageError
from sgdec.models.base import Model
from sgdec.training.data.batch import TrainingBatch
from sgdec.training.data.seeds import hash_seed
from sgdec.training.objectives.likelihood import Likelihood
from sgdec.training.parallel import placement
from sgdec.training.parallel.group import ProcessGroup, ring
from sgdec.training.parallel.placement import DevicePlace
from sgdec.training.parallel.strategy import Loss, Strategy
from sgdec.training.parallel.transfer import ACTIVATIONS, GRADIENTS, Transfers

SHARED, LOSS, NORM = "gradients", "loss", "gradient norm"
"""The purposes under which bytes are counted, besides those of `Transfers`."""
NORM_BYTES = 8


class Staged(Strategy, ABC):
    """A strategy in which each rank has some layers."""

    mode: ClassVar[str]
    """The value of ``--parallel``, for messages."""
    steps: int = 8
    """The number of time steps in a chunk of the wavefront."""
    counts_everywhere = True
    """True: the loss of a batch is the sum of `forward` over all ranks. False: every rank's `forward` is the loss."""

    def __init__(self, group: ProcessGroup, model: Model, loss: Loss) -> None:
        super().__init__(group, model, loss)
        if not isinstance(loss, Likelihood):
            raise UsageError(
                f"--parallel {self.mode}: stages of a model can only be trained with maximum likelihood. "
                "Give --parallel data, or none."
            )
        self.objective = loss
        self.transfers = Transfers(group)
        self.places = self.place()
        self._owned = self._make_owned()

    @abstractmethod
    def place(self) -> dict[str, DevicePlace]:
        """The placement of each parameter. Raises `UsageError` if the model has fewer layers than ranks."""

    @abstractmethod
    def forward(self, batch: TrainingBatch) -> Tensor | None:
        """Compute this rank's part of a batch, with `transfers`.

        Returns the loss or this rank's part of it (`counts_everywhere`); None if this rank computes no loss.
        """

    @property
    def owned(self) -> dict[str, nn.Parameter]:
        return self._owned

    def seed(self, seed: int) -> int:
        """A different seed for each rank, because different layers need different dropout."""
        return hash_seed(seed, self.group.rank)

    def backward(self, batches: Sequence[TrainingBatch], total: Tensor) -> list[Tensor]:
        losses = []
        for batch in batches:
            batch = batch.to(str(self.group.device))
            self.transfers.dtype = self.objective.dtype
            with self.objective.autocast():
                loss = self.forward(batch)
            if loss is None:
                self.transfers.backward([])
                losses.append(torch.zeros_like(total, dtype=self._dtype()))
                continue
            loss = loss / total
            self.transfers.backward([loss])
            losses.append(loss.detach().to(self._dtype()))
        self._add_up_gradients()
        together = torch.stack(losses)
        if not self.counts_everywhere and not self.group.first:
            together.zero_()
        self.group.all_reduce(together, LOSS)
        return list(together.unbind())

    def gradient_norm(self) -> Tensor:
        squares = torch.zeros((), dtype=torch.float64, device=self.group.device)
        for name, parameter in self._owned.items():
            if parameter.grad is not None and self.places[name].speaks(self.group.rank, parameter):
                squares += parameter.grad.norm().double() ** 2
        self.group.all_reduce(squares, NORM)
        return squares.sqrt().to(self._dtype())

    def pieces(self, whole: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return placement.pieces(whole, self.places, self.group.rank)

    def collect(self, pieces: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return placement.collect(pieces, self.places, self.group)

    def held_by_several(self) -> dict[str, DevicePlace]:
        """The parameters that several ranks hold whole, and whose gradients are summed over them."""
        learnt = {name for name, parameter in self.model.named_parameters() if parameter.requires_grad}
        return {name: p for name, p in self.places.items() if len(p.ranks) > 1 and not p.split and name in learnt}

    def expected_besides(self, batches: Sequence[TrainingBatch]) -> dict[str, float]:
        """Bytes that this rank sends for sums of gradients, losses and the gradient norm, by purpose."""
        size = self._dtype().itemsize
        volumes = {
            LOSS: ring(self.group.size, len(batches) * size),
            NORM: ring(self.group.size, NORM_BYTES),
        }
        everywhere = 0
        for name, place in self.held_by_several().items():
            number = self.model.get_parameter(name).numel()
            if len(place.ranks) == self.group.size:
                everywhere += number
            elif self.group.rank == place.ranks[0]:
                volumes[SHARED] = volumes.get(SHARED, 0.0) + (len(place.ranks) - 1) * number * size
            elif self.group.rank in place.ranks:
                volumes[SHARED] = volumes.get(SHARED, 0.0) + number * size
        if everywhere:
            volumes[SHARED] = volumes.get(SHARED, 0.0) + ring(self.group.size, everywhere * size)
        return volumes

    def both_ways(self, forward: float, backward: float) -> dict[str, float]:
        """The bytes of this many numbers, sent as activations and as gradients; a purpose with 0 is left out."""
        size = self.objective.dtype.itemsize
        volumes = {ACTIVATIONS: forward * size, GRADIENTS: backward * size}
        return {purpose: volume for purpose, volume in volumes.items() if volume}

    def _add_up_gradients(self) -> None:
        """Sum the gradients of parameters that several ranks hold; those on all ranks are sent as one message."""
        everywhere = []
        for name, place in self.held_by_several().items():
            if self.group.rank not in place.ranks:
                continue
            parameter = self._owned[name]
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            if len(place.ranks) == self.group.size:
                everywhere.append(parameter.grad)
            else:
                self._add_up(parameter.grad, place.ranks)
        if everywhere:
            flat = torch.cat([gradient.flatten() for gradient in everywhere])
            self.group.all_reduce(flat, SHARED)
            for gradient, part in zip(everywhere, torch.split(flat, [g.numel() for g in everywhere]), strict=True):
                gradient.copy_(part.view_as(gradient))

    def _add_up(self, gradient: Tensor, ranks: Sequence[int]) -> None:
        """Replace a gradient by its sum over some of the ranks; the lowest of them computes it."""
        first, *others = ranks
        if self.group.rank != first:
            self.group.send(gradient, first, SHARED)
            self.group.recv(gradient, first)
            return
        for rank in others:
            gradient += self.group.recv(torch.empty_like(gradient), rank)
        for rank in others:
            self.group.send(gradient, rank, SHARED)

    def _dtype(self) -> torch.dtype:
        """The type of the weights."""
        return next(self.model.parameters()).dtype

    def _make_owned(self) -> dict[str, nn.Parameter]:
        owned, rank = {}, self.group.rank
        for name, parameter in self.model.named_parameters():
            place = self.places[name]
            if rank not in place.ranks:
                if not self.group.first:
                    parameter.data = parameter.data.cpu()
            elif place.split:
                rows = parameter.data[place.rows(len(parameter), rank)]
                owned[name] = nn.Parameter(rows, requires_grad=parameter.requires_grad)
            else:
                owned[name] = parameter
        return owned
