"""`elman`: a translation model with a simple recurrent network (Elman 1990) and bilinear attention.

With the embedding x of the last target token and the state h: h' = tanh(W [h; x]). The output is
tanh(W_o [h'; context]).
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


class ElmanDecoder(Decoder):
    """State: h [R, width]."""

    def __init__(self, embedding: int, values: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.first = Dense(values, width)
        self.recurrent = Dense(width + embedding, width)
        self.attention = BilinearAttention(width, values)
        self.output = Dense(width + values, width)

    def remember(self, encoded: Encoded) -> Memory:
        keys = self.attention.keys(encoded.values)
        return Memory(encoded.values, keys, encoded.mask, torch.tanh(self.first(encoded.mean())))

    def start(self, memory: Memory) -> State:
        return (memory.first,)

    def step(self, memory: Memory, state: State, embedded: Tensor) -> tuple[State, Tensor, Tensor]:
        (h,) = state
        h = torch.tanh(self.recurrent(torch.cat([h, embedded], -1)))
        context, attention = self.attention.once(h, memory)
        return (h,), torch.tanh(self.output(torch.cat([h, context], -1))), attention


class Elman(EncoderDecoder):
    """A bi-directional GRU encoder and a simple recurrent decoder."""

    def __init__(
        self,
        context: ModelContext,
        *,
        width: Annotated[int, Field(ge=1, description="units of encoder (in each direction) and decoder")] = 64,
        embedding: Annotated[int, Field(ge=1, description="size of embeddings")] = 64,
    ) -> None:
        encoder = GRUEncoder(embedding, width)
        super().__init__(context, encoder, ElmanDecoder(embedding, encoder.width, width), embedding=embedding)


@sgdec.hookimpl
def sgdec_models() -> dict[str, type[Model]]:
    return {"elman": Elman}
