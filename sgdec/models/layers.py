"""Small parts that several models are made of."""

from __future__ import annotations

from abc import abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sgdec.models.kernels import Kernels, Product


class Packable(nn.Module):
    """A layer whose products can be made by `Kernels` once its parameters do not change any more."""

    @abstractmethod
    def pack(self, kernels: Kernels) -> None:
        """From here on compute with products of ``kernels``."""


class Dense(nn.Linear, Packable):
    """y = x W^T + b, initialised as Glorot and Bengio (2010): weights uniform, by the sizes of both sides; b = 0.

    >>> Dense(3, 8)(torch.ones(2, 5, 3)).shape
    torch.Size([2, 5, 8])
    """

    def __init__(self, inputs: int, outputs: int, *, bias: bool = True, parts: int = 1) -> None:
        """``parts``: so many matrices lie one above the other in W, each initialised by its own sizes."""
        super().__init__(inputs, outputs, bias=bias)
        for matrix in self.weight.chunk(parts):
            nn.init.xavier_uniform_(matrix)
        if bias:
            nn.init.zeros_(self.bias)
        self._product: Product | None = None

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if self._product is None else self._product(x)

    def pack(self, kernels: Kernels) -> None:
        self._product = kernels.linear(self.weight, self.bias)


@torch.no_grad()
def pack_layers(model: nn.Module, kernels: Kernels) -> None:
    """What `Model.freeze` does for a model of such layers: all that can be packed are."""
    for module in model.modules():
        if isinstance(module, Packable):
            module.pack(kernels)
    model.requires_grad_(False)  # an attempt to train it fails


class WordDropout(nn.Module):
    """Leaves out whole words in training: all of an embedding is zero, or none of it (Gal and Ghahramani 2016)."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, embedded: Tensor) -> Tensor:
        """Embeddings [..., E]."""
        if not self.training or not self.p:
            return embedded
        return embedded * dropout_mask(embedded[..., :1], self.p)


def dropout_mask(like: Tensor, p: float) -> Tensor:
    """Zeros with probability ``p``, 1 / (1 - p) elsewhere, of the same shape: to be used more than once."""
    return F.dropout(torch.ones_like(like), p)


def norm_or_nothing(norm: bool, size: int) -> nn.Module:
    """Layer normalisation (Ba, Kiros and Hinton 2016) with gain and bias, or the identity."""
    return nn.LayerNorm(size) if norm else nn.Identity()
