"""A complete translation model: one inference step with the minimal gated unit.

The unit has one gate instead of a GRU's two (Zhou et al. 2016, "Minimal Gated Unit for Recurrent Neural Networks").
With the embedding x of the last target token and the state h:

    f = sigmoid(W_f [h; x])        h' = (1 - f) * h + f * tanh(W_h [f * h; x])

The attention is that of Luong et al. 2015, and the output tanh(W_o [h'; context]).
"""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

import sgdec
from sgdec.models.attention import BilinearAttention
from sgdec.models.base import Memory, Model, ModelContext, State
from sgdec.models.encoder_decoder import Decoder, Encoded, EncoderDecoder
from sgdec.models.gru import GRUEncoder
from sgdec.models.layers import Dense


class MGUDecoder(Decoder):
    """State: h [R, width]. It starts from the mean of the encoder's outputs [S, values]."""

    def __init__(self, embedding: int, values: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.first = Dense(values, width)
        self.gate = Dense(width + embedding, width)  # W_f
        self.candidate = Dense(width + embedding, width)  # W_h
        self.attention = BilinearAttention(width, values)
        self.output = Dense(width + values, width)  # W_o

    def remember(self, encoded: Encoded) -> Memory:
        keys = self.attention.keys(encoded.values)
        return Memory(encoded.values, keys, encoded.mask, torch.tanh(self.first(encoded.mean())))

    def start(self, memory: Memory) -> State:
        return (memory.first,)

    def step(self, memory: Memory, state: State, embedded: Tensor) -> tuple[State, Tensor, Tensor]:
        (h,) = state
        f = torch.sigmoid(self.gate(torch.cat([h, embedded], -1)))
        h = (1 - f) * h + f * torch.tanh(self.candidate(torch.cat([f * h, embedded], -1)))
        context, attention = self.attention.once(h, memory)
        return (h,), torch.tanh(self.output(torch.cat([h, context], -1))), attention


class MGU(EncoderDecoder):
    """A bi-directional GRU encoder and a decoder of minimal gated units."""

    def __init__(
        self,
        context: ModelContext,
        *,
        width: Annotated[int, Field(ge=1, description="units of encoder (in each direction) and decoder")] = 256,
        embedding: Annotated[int, Field(ge=1, description="size of embeddings")] = 256,
    ) -> None:
        encoder = GRUEncoder(embedding, width)
        super().__init__(context, encoder, MGUDecoder(embedding, encoder.width, width), embedding=embedding)


@sgdec.hookimpl
def sgdec_models() -> dict[str, type[Model]]:
    return {"mgu": MGU}
