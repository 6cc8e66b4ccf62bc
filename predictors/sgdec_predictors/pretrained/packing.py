"""The products of a loaded model with weights that are packed for the processor (`sgdec.models.kernels`)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from sgdec.errors import UsageError
from sgdec.models.kernels import int8_by_row, packed_linear
from sgdec.vocabularies import quiet


def pack(module: Any, precision: str) -> list[Tensor]:
    """Pack the weights of all linear layers, on a CPU, in the precision of the model or in ``int8``.

    Subclasses of linear layers stay as they are, because their forward may do more. Returns the plain weights that
    the module does not need any more, so that it need not be in memory twice. In int8 raises `UsageError` for a model
    without linear layers.
    """
    layers = [layer for layer in module.modules() if type(layer) in (nn.Linear, Conv1D)]
    if precision == "int8" and len(layers) < 2:
        raise UsageError("--precision int8: this model has no linear layers. Give --precision bf16.")
    make = int8_by_row if precision == "int8" else packed_linear
    for layer in layers:
        weight = layer.weight if type(layer) is nn.Linear else layer.weight.t()  # GPT-2's is transposed
        layer.forward = make(weight.contiguous(), layer.bias)
    return _given_up(module, {layer: layer.weight for layer in layers})


def is_packed(module: Any) -> bool:
    """Whether all weights of a model belong to packed layers and embeddings, or are vectors."""
    return all(
        parameter.dim() < 2 or isinstance(layer, nn.Embedding) or "forward" in vars(layer)
        for layer in module.modules()
        for parameter in layer.parameters(recurse=False)
    )


def _given_up(module: Any, weights: Mapping[Any, Tensor]) -> list[Tensor]:
    """The weights of layers that could be replaced by one NaN in the same shape.

    Others share their weights, or belong to an architecture that multiplies with the weights of its layers itself, so
    that its scores would be NaN.
    """
    uses = Counter(parameter.data_ptr() for _, parameter in module.named_parameters(remove_duplicate=False))
    own = {layer: weight for layer, weight in weights.items() if uses[weight.data_ptr()] == 1}
    for layer, weight in own.items():
        nothing = torch.full((), math.nan, dtype=weight.dtype).expand(weight.shape)
        layer.weight = nn.Parameter(nothing, requires_grad=False)
    if not _predicts(module):
        for layer, weight in own.items():
            layer.weight = weight
        return []
    return list(own.values())


def _predicts(module: Any) -> bool:
    """Whether the scores of a model are numbers."""
    ids = {"input_ids": torch.tensor([[3, 4]])}
    if module.config.is_encoder_decoder:
        ids["decoder_input_ids"] = ids["input_ids"]
    try:
        with torch.inference_mode(), quiet():
            return not module(**ids, use_cache=False).logits.isnan().any()
    except (RuntimeError, IndexError, ValueError, AttributeError, TypeError):
        return False  # whatever it is, `probe` will say it
