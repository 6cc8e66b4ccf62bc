"""Where the parameters of a model live, when its layers are spread over ranks.

A parameter is whole on one rank, or on several which then all need the sum of their gradients (the attention of
hybrid parallelism; embeddings tied to an output layer on another rank), or cut into as many runs of rows as there are
ranks (the output layer, partitioned over symbols). Of several ranks that hold the same the lowest speaks for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from sgdec.training.parallel.group import Group


@dataclass(frozen=True)
class Place:
    """Of one parameter."""

    ranks: tuple[int, ...]
    """Who holds it, in rising order."""
    split: bool = False
    """Each of them has some of its rows, none has all."""

    def rows(self, number: int, rank: int) -> slice:
        """Which of ``number`` rows a rank holds."""
        if not self.split:
            return slice(0, number)
        place = self.ranks.index(rank)
        return slice(number * place // len(self.ranks), number * (place + 1) // len(self.ranks))

    def speaks(self, rank: int, tensor: Tensor) -> bool:
        """Whether this rank hands over its piece when the whole is put together."""
        return rank in self.ranks if self.split and tensor.dim() else rank == self.ranks[0]


def pieces(whole: Mapping[str, Tensor], places: Mapping[str, Place], rank: int) -> dict[str, Tensor]:
    """`Strategy.pieces`; what has no place, a buffer, is everywhere."""
    own = {}
    for name, tensor in whole.items():
        place = places.get(name)
        if place is None:
            own[name] = tensor
        elif rank in place.ranks:
            own[name] = tensor[place.rows(len(tensor), rank)] if place.split and tensor.dim() else tensor
    return own


def collect(own: Mapping[str, Tensor], places: Mapping[str, Place], group: Group) -> dict[str, Tensor]:
    """`Strategy.collect`."""
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
