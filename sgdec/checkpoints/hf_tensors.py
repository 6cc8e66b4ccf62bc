"""The weights of a Transformer as the classes `MarianMTModel` and `PegasusForConditionalGeneration` of Hugging Face's
transformers store them.

These classes compute the same function. The numbers are stored differently in two ways:

- Positions. Sine and cosine alternate here, PE = (sin, cos, sin, cos, ...); there, all sines come first. So the
  vectors between the sublayers are permuted: first the even columns, then the odd ones. Everything that reads such a
  vector or adds to it is permuted in the same way: embeddings, normalisations, and one side of each matrix. Inside
  the sublayers nothing changes. Models that transformers stores again stay correct, although it computes the
  positions again when it loads them.
- Products. A matrix that computes keys and values together, or those of the source for all layers, is one matrix for
  each of them there.

Only Pegasus has a normalisation after the last layer. It also has one size of vocabulary: the smaller of two
vocabularies gets further rows, which as outputs score -inf.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sgdec.models.transformer import Transformer
from sgdec.models.transformer_layers import (
    DecoderLayer,
    Layer,
    MultiHead,
    Residual,
    TransformerDecoder,
    TransformerEncoder,
    positions,
)

Named = Iterator[tuple[str, Tensor]]


def tensors_of(model: Transformer, config: Mapping[str, Any]) -> dict[str, Tensor]:
    """The weights by name, for a class and sizes that ``config`` describes (`sgdec.checkpoints.hf.describe`)."""
    tensors = {**_tables(model, config), **_stacks(model, config["max_position_embeddings"])}
    return {name: tensor.detach().clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()}


def _tables(model: Transformer, config: Mapping[str, Any]) -> dict[str, Tensor]:
    """Embeddings and output layer. A matrix that only sgdec can tie is written once for each of its uses."""
    one_size = config["model_type"] == "pegasus"
    rows = config["vocab_size"] if one_size else 0
    source, target, output = (
        F.pad(permuted(layer.weight), (0, 0, 0, max(0, rows - len(layer.weight))))
        for layer in (model.source_embedding, model.target_embedding, model.softmax)
    )
    bias = F.pad(model.softmax.bias, (0, len(output) - len(model.softmax.bias)), value=float("-inf"))
    tensors = {"final_logits_bias": bias[None]}
    shared = config["tie_word_embeddings"] and config.get("share_encoder_decoder_embeddings", True)
    if shared or one_size:
        tensors["model.shared.weight"] = source  # Pegasus always has it
    if not shared:
        tensors["model.encoder.embed_tokens.weight"] = source
        tensors["model.decoder.embed_tokens.weight"] = target
    if not config["tie_word_embeddings"]:
        tensors["lm_head.weight"] = output
    return tensors


def _stacks(model: Transformer, steps: int) -> dict[str, Tensor]:
    """Encoder and decoder, with the positions of ``steps`` tokens."""
    encoder, decoder = cast(TransformerEncoder, model.encoder), cast(TransformerDecoder, model.decoder)
    layers = decoder.histories
    source = zip(decoder.source.weight.chunk(layers), decoder.source.bias.chunk(layers), strict=True)
    tensors: dict[str, Tensor] = {}
    for number, layer in enumerate(encoder.layers):
        tensors.update(_layer(f"model.encoder.layers.{number}", cast(Layer, layer)))
    for number, (layer, (weight, bias)) in enumerate(zip(decoder.layers, source, strict=True)):
        name = f"model.decoder.layers.{number}"
        tensors.update(_layer(name, cast(Layer, layer)))
        tensors.update(_source_attention(name, cast(DecoderLayer, layer), weight, bias))
    table = positions(torch.zeros(1, dtype=torch.long), steps, decoder.width)[0]  # [steps, d]
    for name, stack in (("model.encoder", encoder), ("model.decoder", decoder)):
        tensors[f"{name}.embed_positions.weight"] = permuted(table)
        if isinstance(stack.norm, nn.LayerNorm):
            tensors.update(_norm(f"{name}.layer_norm", stack.norm))
    return tensors


def permuted(x: Tensor) -> Tensor:
    """A matrix [..., d] that reads vectors, or the vectors themselves: even columns first.

    >>> permuted(torch.arange(6))
    tensor([0, 2, 4, 1, 3, 5])
    """
    return torch.cat([x[..., 0::2], x[..., 1::2]], -1)


def _layer(name: str, layer: Layer) -> Named:
    keys, values = layer.keys_values.weight.chunk(2)
    key_bias, value_bias = layer.keys_values.bias.chunk(2)
    yield from _attention(f"{name}.self_attn", layer.attention, keys, key_bias, values, value_bias)
    yield from _norm(f"{name}.self_attn_layer_norm", layer.around_attention)
    inner, outer = cast(nn.Linear, layer.feed_forward[0]), cast(nn.Linear, layer.feed_forward[-1])
    yield from _reads(f"{name}.fc1", inner.weight, inner.bias)
    yield from _adds(f"{name}.fc2", outer)
    yield from _norm(f"{name}.final_layer_norm", layer.around_feed_forward)


def _source_attention(name: str, layer: DecoderLayer, weight: Tensor, bias: Tensor) -> Named:
    """``weight`` [2 d, d], ``bias`` [2 d]: the product that computes the source's keys and values for this layer."""
    (keys, values), (key_bias, value_bias) = weight.chunk(2), bias.chunk(2)
    yield from _attention(f"{name}.encoder_attn", layer.source, keys, key_bias, values, value_bias)
    yield from _norm(f"{name}.encoder_attn_layer_norm", layer.around_source)


def _attention(
    name: str, attention: MultiHead, keys: Tensor, key_bias: Tensor, values: Tensor, value_bias: Tensor
) -> Named:
    yield from _reads(f"{name}.q_proj", attention.query.weight, attention.query.bias)
    yield from _reads(f"{name}.k_proj", keys, key_bias)
    yield from _reads(f"{name}.v_proj", values, value_bias)
    yield from _adds(f"{name}.out_proj", attention.output)


def _reads(name: str, weight: Tensor, bias: Tensor) -> Named:
    """A layer whose inputs are permuted."""
    yield f"{name}.weight", permuted(weight)
    yield f"{name}.bias", bias


def _adds(name: str, layer: nn.Linear) -> Named:
    """A layer whose outputs are permuted."""
    yield f"{name}.weight", permuted(layer.weight.mT).mT
    yield f"{name}.bias", permuted(layer.bias)


def _norm(name: str, norm: nn.LayerNorm | Residual) -> Named:
    if isinstance(norm, Residual):
        norm = norm.norm
    yield f"{name}.weight", permuted(norm.weight)
    yield f"{name}.bias", permuted(norm.bias)
