"""The matrix products of a frozen GNMT: those of equations 11 and 13 and of the attention, made once.

A decoder layer has one product, over [x; context; hidden]. The bottom layer multiplies only the hidden state: its
other input is one of V embeddings, so their products are computed once and stored in a table. An encoder layer has
two products, because its inputs are multiplied for all steps at once.

The range of the inputs decides how finely section 6 can represent them. The output of an LSTM is within tanh(delta)
and a residual sum within delta; without the constraints these bounds are 1 and unknown. Embeddings are in a table, so
their bound is known. A context is a mean of encoder outputs and has their bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sgdec.models.kernels import Kernels, Product
from sgdec.models.lstm import Recurrence

LARGEST_TABLE = 1 << 26
"""The largest size of the table of the bottom layer's products, in numbers: 256 MiB of fp32."""
FIRST_RESIDUAL = 2
"""Index from 0 of the first layer with a residual connection: "the layer third from the bottom"."""


class Parts(Protocol):
    """The parts of a GNMT from which its products are made."""

    encoder: nn.ModuleList
    decoder: nn.ModuleList
    source_embedding: nn.Embedding
    target_embedding: nn.Embedding
    key: nn.Linear
    query: nn.Linear
    softmax: nn.Linear
    width: int
    delta: float | None

    @property
    def score_weight(self) -> Tensor: ...


class GnmtProducts(NamedTuple):
    """The products of a GNMT."""

    encoder: list[list[Recurrence]]
    """The products of the encoder, by layer, then by direction."""
    bottom: Recurrence
    """The products of the decoder's bottom layer, whose inputs are tokens."""
    layers: list[Product]
    """The products of the decoder's other layers: [x; context; hidden] to pre-activations."""
    key: Product
    query: Product
    score: Product
    softmax: Product


def make_products(model: Parts, kernels: Kernels) -> GnmtProducts:
    """The products of a model; those of the attention stay in floating point (section 6), and its scores in fp32."""
    output = 1.0 if model.delta is None else math.tanh(model.delta)

    def above(layers: int) -> float | None:
        """The bound of the outputs of a stack of ``layers`` layers."""
        return model.delta if layers > FIRST_RESIDUAL else output

    def recurrence(name: str, weights: Sequence[Tensor], bound: float | None) -> Recurrence:
        w_ih, w_hh, b_ih, b_hh = weights
        inputs = kernels.bounded(f"{name}.input", w_ih, b_ih + b_hh, bound)
        return Recurrence(inputs, kernels.bounded(f"{name}.hidden", w_hh, None, output))

    def joint(layer: int, weights: Sequence[Tensor]) -> Product:
        w_ih, w_hh, b_ih, b_hh = weights
        bounds = [above(layer), above(len(model.encoder)), output]
        bound = None if None in bounds else max(filter(None, bounds))
        return kernels.bounded(f"decoder.{layer}", torch.cat([w_ih, w_hh], 1), b_ih + b_hh, bound)

    source, target = (float(table.weight.abs().max()) for table in (model.source_embedding, model.target_embedding))
    bottom, *layers = (cast(nn.LSTM, lstm).all_weights[0] for lstm in model.decoder)
    inputs, hidden = recurrence("decoder.0", bottom, target)
    return GnmtProducts(
        encoder=[
            [
                recurrence(f"encoder.{layer}.{direction}", weights, above(layer) if layer else source)
                for direction, weights in enumerate(cast(nn.LSTM, lstm).all_weights)
            ]
            for layer, lstm in enumerate(model.encoder)
        ],
        bottom=Recurrence(_of_tokens(inputs, model.target_embedding, 4 * model.width), hidden),
        layers=[joint(layer, weights) for layer, weights in enumerate(layers, 1)],
        key=kernels.linear(model.key.weight, model.key.bias),
        query=kernels.linear(model.query.weight),
        score=kernels.linear(model.score_weight.float()),
        softmax=kernels.bounded("softmax", model.softmax.weight, model.softmax.bias, above(len(model.decoder))),
    )


def _of_tokens(product: Product, embedding: nn.Embedding, outputs: int) -> Product:
    """The product with the embeddings of tokens [R], from a table [V, outputs] unless that would be too large."""
    if embedding.num_embeddings * outputs > LARGEST_TABLE:
        return lambda tokens: product(embedding(tokens))
    table = product(embedding.weight)
    return lambda tokens: F.embedding(tokens, table)
