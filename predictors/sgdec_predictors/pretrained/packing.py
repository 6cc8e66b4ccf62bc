"""The products of a loaded model with weights that are packed for the processor (`sgdec.models.kernels`)."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from sgdec.models.kernels import packed_linear


def pack(module: Any) -> None:
    """Pack the weights of all linear layers, which must not change from then on. Only in fp32 on a CPU.

    The plain weights stay, because some architectures use them directly: the model takes up to twice the memory.
    Subclasses stay as they are, because their forward may do more.
    """
    for layer in module.modules():
        if type(layer) is nn.Linear:
            weight: Tensor = layer.weight
        elif type(layer) is Conv1D:  # GPT-2's linear layer, whose weight is transposed
            weight = layer.weight.t()
        else:
            continue
        layer.forward = packed_linear(weight, layer.bias)
