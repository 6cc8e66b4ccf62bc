"""The ranks that hold each parameter of a model whose layers are spread over ranks.

There are three cases:

- One rank holds the whole parameter.
- Several ranks hold the whole parameter, and their gradients must be summed: the attention of hybrid parallelism, or
  embeddings tied to an output layer on another rank. The lowest of these ranks supplies the parameter when the whole
  model is put together.
- Every rank holds a range of the rows: the output layer that is partitioned over symbols.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from sgdec.training.parallel.group import ProcessGroup


@dataclass(frozen=True)
class DevicePlace:
    """The placement of one parameter."""

    ranks: tuple[int, ...]
    """The ranks that hold the parameter, in ascending order."""
    split: bool = False
    """Whether each rank holds only a range of the rows."""

    def rows(self, number: int, rank: int) -> slice:
        """The rows that a rank holds, of ``number`` rows."""
        if not self.split:
            return slice(0, number)
        place = self.ranks.index(rank)
        return slice(number * place // len(self.ranks), number * (place + 1) // len(self.ranks))

    def speaks(self, rank: int, tensor: Tensor) -> bool:
        """Whether this rank supplies its piece when the whole parameter is put together."""
        return rank in self.ranks if self.split and tensor.dim() else rank == self.ranks[0]


def pieces(whole: Mapping[str, Tensor], places: Mapping[str, DevicePlace], rank: int) -> dict[str, Tensor]:
    """Implements `Strategy.pieces`; a tensor without a place, such as a buffer, is on every rank."""
    own = {}
    for name, tensor in whole.items():
        place = places.get(name)
        if place is None:
            own[name] = tensor
        elif rank in place.ranks:
            own[name] = tensor[place.rows(len(tensor), rank)] if place.split and tensor.dim() else tensor
    return own


def collect(own: Mapping[str, Tensor], places: Mapping[str, DevicePlace], group: ProcessGroup) -> dict[str, Tensor]:
    """Implements `Strategy.collect`."""
    mine = {
        name: tensor
        for name, tensor in own.items()
        if (places[name].speaks(group.rank, tensor) if name in places else group.first)
    }
    parts: dict[str, list[Tensor]] = {}
    for theirs in group.gather_named(mine, "checkpoints"):
        for name, tensor in theirs.items():
            parts.setdefault(name, []).append(tensor)
    return {name: some[0] if len(some) == 1 else torch.cat(some) for name, some in parts.items()}
