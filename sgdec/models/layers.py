"""Small layers that several models use."""

from __future__ import annotations

import math
from abc import abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sgdec.models.kernels import Kernels, Product


class Packable(nn.Module):
    """A layer that can use products of `Kernels` once its parameters no longer change."""

    @abstractmethod
    def pack(self, kernels: Kernels) -> None:
        """Use products of ``kernels`` from now on."""


class Dense(nn.Linear, Packable):
    """y = x W^T + b, initialised as in Glorot and Bengio (2010): weights uniform by input and output size, b = 0.

    >>> Dense(3, 8)(torch.ones(2, 5, 3)).shape
    torch.Size([2, 5, 8])
    """

    def __init__(self, inputs: int, outputs: int, *, bias: bool = True, parts: int = 1) -> None:
        """``parts``: W consists of this many matrices, one above the other, each initialised by its own sizes."""
        super().__init__(inputs, outputs, bias=bias)
        bound = math.sqrt(3) * math.sqrt(2 / (inputs + outputs / parts))
        nn.init.uniform_(self.weight, -bound, bound)
        if bias:
            nn.init.zeros_(self.bias)
        self._product: Product | None = None

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if self._product is None else self._product(x)

    def pack(self, kernels: Kernels) -> None:
        self._product = kernels.linear(self.weight, self.bias)


@torch.no_grad()
def pack_layers(model: nn.Module, kernels: Kernels) -> None:
    """Pack all `Packable` layers of a model; implements `Model.freeze`."""
    for module in model.modules():
        if isinstance(module, Packable):
            module.pack(kernels)
    model.requires_grad_(False)  # so that an attempt to train the model fails


class WordDropout(nn.Module):
    """Drops whole words in training, by setting their embedding to zero (Gal and Ghahramani 2016)."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, embedded: Tensor) -> Tensor:
        """Embeddings [..., E]."""
        if not self.training or not self.p:
            return embedded
        return embedded * dropout_mask(embedded[..., :1], self.p)


def dropout_mask(like: Tensor, p: float) -> Tensor:
    """A dropout mask of the shape of ``like``, which can be used several times: 0 with probability ``p``, else
    1 / (1 - p)."""
    return F.dropout(torch.ones_like(like), p)


def norm_or_nothing(norm: bool, size: int) -> nn.Module:
    """Layer normalisation (Ba, Kiros and Hinton 2016) with gain and bias, or the identity."""
    return nn.LayerNorm(size) if norm else nn.Identity()
