"""Stacked LSTMs with global attention after the stack: Luong, Pham and Manning 2015, as in section 3 of "Hybrid
Data-Model Parallel Training for Sequence-to-Sequence Recurrent Neural Network Machine Translation" (Ono et al. 2019).

H are the top states of the decoder's stack, S those of the encoder's. The numbers are those of the paper's equations:

    alpha = softmax(H W_a S)    (1, 2)        C = alpha S    (3)
    H_c = tanh(W_c [H; C])      (4)           P = softmax(F_c(H_c))    (5)

Without input feeding (the paper's HybridNMT) no state depends on attention: training runs the stack over all steps,
as one fused kernel, then attention and softmax over all steps. With ``input_feeding`` (the baseline of the paper's
Figure 1, and HybridNMTIF) the first layer reads [y; H_c of the previous step], so training proceeds step by step.

The decoder starts from the last states of the encoder's layers (``bridge``). It starts from zeros without the bridge,
or if the encoder is not an LSTM stack of the same size. The initial parameters are in [-0.1, 0.1], as in Luong et al.
for 1000 units. A stack of 64 units learnt a toy task only with both a larger ``init`` and a larger learning rate (0.3
and 0.01).

Departures of ``--parallel``: with ``hybrid`` all ranks have layers, where one of the paper's four GPUs stores only
hidden states. The gradients of attention and softmax are summed in a ring, not on a root. Ranks hand on chunks of
several time steps, not single steps, so that products are larger and messages fewer. HybridNMTIF is not described in
detail: here the rank of the top layer computes the attention, and all ranks share the softmax.

Parameters: with 32,000 words on each side, untied, the models of Table 2 have 131.7 and 135.9 million parameters,
where section 4.3 counts 138 and 142 million; the difference between the two is the paper's.

Cost of a step per row, in multiplications: 8 width^2 per layer (the first: 4 width (embedding + width), and 4 width^2
more with input feeding), 2 S width for attention, 2 width^2 for equation 4, width x V for the softmax.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from sgdec import hookimpl
from sgdec.models.attention import BilinearAttention
from sgdec.models.base import Correspondence, Memory, Model, ModelContext, State
from sgdec.models.encoder_decoder import (
    Decoder,
    Encoded,
    EncoderDecoder,
    SourceDropout,
    TargetDropout,
    Tied,
)
from sgdec.models.encoders import EncoderKind, make_encoder
from sgdec.models.layers import Dense
from sgdec.models.lstm_stack import LSTMStack


class LuongDecoder(Decoder):
    """State: m and c [R, layers, width] of the stack, and with input feeding H_c [R, width]."""

    def __init__(
        self,
        embedding: int,
        values: int,
        width: int,
        layers: int,
        *,
        input_feeding: bool = False,
        bridge: bool = True,
        dropout: float = 0.0,
    ) -> None:
        """``values``: H of the encoder."""
        super().__init__()
        self.width, self.layers, self.input_feeding, self.bridge = width, layers, input_feeding, bridge
        self.stack = LSTMStack(embedding + (width if input_feeding else 0), width, layers, dropout)
        self.attention = BilinearAttention(width, values)  # W_a
        self.combine = Dense(width + values, width, bias=False)  # W_c
        self.dropout = nn.Dropout(dropout)

    def remember(self, encoded: Encoded) -> Memory:
        values, last = encoded.values, encoded.last
        fits = self.bridge and last is not None and last.shape[1:] == (self.layers, 2, self.width)
        first = last if last is not None and fits else values.new_zeros(len(values), self.layers, 2, self.width)
        return Memory(values, self.attention.keys(values), encoded.mask, first)

    def start(self, memory: Memory) -> State:
        hidden, cell = memory.first.unbind(2)
        fed = [memory.values.new_zeros(len(memory.values), self.width)] if self.input_feeding else []
        return (hidden, cell, *fed)

    def step(self, memory: Memory, state: State, embedded: Tensor) -> tuple[State, Tensor, Tensor]:
        hidden, cell, *fed = state
        hidden, cell = self.stack.step(torch.cat([embedded, *fed], -1), hidden, cell)
        context, attention = self.attention.once(hidden[:, -1], memory)
        output = self._combine(hidden[:, -1], context)
        return (hidden, cell, *[output for _ in fed]), self.dropout(output), attention

    def forward(self, memory: Memory, embedded: Tensor) -> Tensor:
        if self.input_feeding:
            return super().forward(memory, embedded)
        hidden, cell = self.start(memory)
        return self.attend(self.stack(embedded, hidden, cell), memory)

    def attend(self, states: Tensor, memory: Memory) -> Tensor:
        """H_c [B, T, width] for the softmax, with dropout, from H of all steps [B, T, width]: equations 1 to 4."""
        outputs: Tensor = self.dropout(self.attentional(states, memory))
        return outputs

    def attentional(self, states: Tensor, memory: Memory) -> Tensor:
        """H_c [B, T, width] for input feeding, without dropout, from H [B, T, width]: equations 1 to 4."""
        contexts, _ = self.attention(states, memory)
        return self._combine(states, contexts)

    def _combine(self, states: Tensor, contexts: Tensor) -> Tensor:
        """Equation 4."""
        return torch.tanh(self.combine(torch.cat([states, contexts.to(states.dtype)], -1)))


class Luong(EncoderDecoder):
    """Stacked LSTMs with attention after the stack.

    >>> model = Luong(ModelContext(source_vocab_size=20, target_vocab_size=30), width=8, embedding=6)
    >>> source, lengths = torch.tensor([[5, 6, 7]]), torch.tensor([3])
    >>> model.project(model(source, lengths, torch.tensor([[1, 9]]))).shape
    torch.Size([1, 2, 30])
    """

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "hybrid": {"layers": 4, "width": 1024, "embedding": 512, "dropout": 0.3},
        "baseline": {"layers": 4, "width": 1024, "embedding": 512, "dropout": 0.3, "input_feeding": True},
    }
    language_models: ClassVar[Mapping[str, Correspondence]] = {
        "rnnlm": Correspondence(
            {
                r"embedding\.(\w+)": r"target_embedding.\1",
                r"lstm\.(\w+)": r"decoder.stack.lstm.\1",
                r"softmax\.(\w+)": r"softmax.\1",
            },
            wider=r"decoder\.stack\.lstm\.weight_ih_l0",  # with input feeding it reads H_c after y
        )
    }

    def __init__(
        self,
        context: ModelContext,
        *,
        layers: Annotated[int, Field(ge=1, description="layers of encoder and decoder each")] = 2,
        width: Annotated[int, Field(ge=1, description="LSTM units of a layer")] = 512,
        embedding: Annotated[int | None, Field(ge=1, description="size of embeddings; width by default")] = None,
        input_feeding: Annotated[
            bool, Field(description="the first layer also reads H_c of the previous step")
        ] = False,
        bridge: Annotated[bool, Field(description="decoder starts from the encoder's last states")] = True,
        dropout: Annotated[float, Field(ge=0, lt=1, description="dropout of non-recurrent connections")] = 0.3,
        source_dropout: SourceDropout = 0.0,
        target_dropout: TargetDropout = 0.0,
        tied: Tied = "none",
        init: Annotated[float, Field(gt=0, description="initial parameters are uniform in [-init, init]")] = 0.1,
        encoder: Annotated[EncoderKind, Field(description="kind of encoder")] = "lstm",
    ) -> None:
        embedding = embedding or width
        reader = make_encoder(encoder, embedding=embedding, width=width, layers=layers, dropout=dropout)
        decoder = LuongDecoder(
            embedding, reader.width, width, layers, input_feeding=input_feeding, bridge=bridge, dropout=dropout
        )
        super().__init__(
            context,
            reader,
            decoder,
            embedding=embedding,
            tied=tied,
            source_dropout=source_dropout,
            target_dropout=target_dropout,
        )
        own = [decoder, self.softmax, self.source_embedding, self.target_embedding]
        for part in [*own, reader] if encoder == "lstm" else own:  # other encoders initialise themselves
            for parameter in part.parameters():
                nn.init.uniform_(parameter, -init, init)


@hookimpl
def sgdec_models() -> dict[str, type[Model]]:
    return {"luong": Luong}
