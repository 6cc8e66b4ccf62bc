"""Monotone hard attention: Aharoni and Goldberg 2016; Marian (Junczys-Dowmunt et al. 2018), sections 2.2 and 3.2.

The decoder attends to one source position a, which moves from the first to the last. The target decides when it
moves: the last token of the target vocabulary is the step symbol. With encoder outputs h (Junczys-Dowmunt and
Grundkiewicz 2017):

    a_1 = 1        a_t = a_{t-1} + 1 if y_{t-1} is the step symbol, else a_{t-1}; a never exceeds the last position
    s_t = block([y_{t-1}; h_{a_t}], s of step t-1)        output = tanh(R [s_t; y_{t-1}; h_{a_t}])

``soft`` combines both attentions: s_t is the state of the conditional GRU of `shallow`, which reads
[y_{t-1}; h_{a_t}] instead of y_{t-1}. A soft attention is between its two blocks, and its context c_t is an input of
the output as well.

The model is for tasks whose two sides are similar texts in the same order: post-editing, spelling, normalisation,
inflection. A monotone attention cannot follow reordering, as in translation. An alignment inserts step symbols into
training text, and they are removed from output text (`sgdec.text.steps`). In a search the step symbol is an ordinary
token, so a source of S tokens adds S - 1 tokens to the output: search with ``--max-length-factor 3``.

The attention that `step` returns is 1 at the position a. In training all positions are known before the first step.

Cost of a step per row, in multiplications: 3 width (embedding + 3 width), with ``soft`` 9 width^2 and S x attention
more; embedding x V for the softmax.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from sgdec import hookimpl
from sgdec.models.base import Memory, Model, ModelContext, State
from sgdec.models.encoder_decoder import (
    Decoder,
    Encoded,
    EncoderDecoder,
    SourceDropout,
    TargetDropout,
    Tied,
)
from sgdec.models.gru import GRUBlock, GRUDecoder, GRUEncoder, VariationalDropout, masked
from sgdec.models.layers import Dense, norm_or_nothing


class ReadingGRU(Decoder):
    """One GRU block without attention; the caller adds the attended state to its inputs. State: s [R, width]."""

    def __init__(
        self, inputs: int, values: int, width: int, output: int, *, norm: bool = False, dropout: float = 0.0
    ) -> None:
        """``inputs``: the size of a step's input; ``values``: H of the encoder."""
        super().__init__()
        self.width = output
        self.block = GRUBlock(inputs, width, norm=norm)
        self.initial = nn.Sequential(Dense(values, width, bias=not norm), norm_or_nothing(norm, width))
        self.readout = nn.Sequential(Dense(width + inputs, output, bias=not norm), norm_or_nothing(norm, output))
        self.dropout = VariationalDropout(dropout, 1, width, inputs, output)

    def remember(self, encoded: Encoded) -> Memory:
        first = torch.tanh(self.initial(encoded.mean()))
        return Memory(encoded.values, encoded.values[..., :0], encoded.mask, first)

    def start(self, memory: Memory) -> State:
        return (memory.first,)

    def step(self, memory: Memory, state: State, embedded: Tensor) -> tuple[State, Tensor, Tensor]:
        """As `Decoder.step`; the attention is empty [R, 0]."""
        hidden = self.block(self.block.read(embedded), state[0])
        return (hidden,), self._output(hidden, embedded), embedded[:, :0]

    def forward(self, memory: Memory, embedded: Tensor) -> Tensor:
        masks = self.dropout(embedded)
        (read, last), (recurrent,) = masks.inputs, masks.states
        (hidden,) = self.start(memory)
        states = []
        for gates in self.block.read(masked(embedded, read)).unbind(1):
            hidden = self.block(gates, hidden, recurrent)
            states.append(hidden)
        return masked(self._output(torch.stack(states, 1), embedded), last)

    def _output(self, hidden: Tensor, embedded: Tensor) -> Tensor:
        return torch.tanh(self.readout(torch.cat([hidden, embedded.to(hidden.dtype)], -1)))


class Monotone(EncoderDecoder):
    """A model whose decoder reads each target token together with the encoder's output at the attended position.

    State: the decoder's state, and the position [R], from 0.
    """

    steps: ClassVar[bool] = True

    @property
    def step_token(self) -> int:
        """The last token of the target vocabulary."""
        return self.target_embedding.num_embeddings - 1

    def span(self, memory: Memory) -> tuple[Tensor, Tensor]:
        """The first and the last position [B] of the attention; here those of the whole source."""
        count = memory.mask.sum(1)
        return torch.zeros_like(count), count - 1

    def positions(self, memory: Memory, target_in: Tensor) -> Tensor:
        """[B, T] the attended position after each token of target prefixes [B, T]."""
        first, last = self.span(memory)
        steps = (target_in == self.step_token).long().cumsum(1)
        return torch.minimum(first[:, None] + steps, last[:, None])

    def start(self, memory: Memory) -> State:
        return (*self.decoder.start(memory), self.span(memory)[0])

    def step(self, memory: Memory, state: State, tokens: Tensor) -> tuple[State, Tensor, Tensor]:
        *inside, place = state
        rows = memory.rows
        sentence = (
            torch.arange(len(tokens), device=tokens.device)
            if rows is None
            else rows.cell.div(rows.grid.size(1), rounding_mode="floor")
        )
        place = torch.minimum(place + (tokens == self.step_token), self.span(memory)[1][sentence])
        embedded = self.target_words(self.target_embedding(tokens))
        read = torch.cat([embedded, memory.values[sentence, place].to(embedded.dtype)], -1)
        after, output, _ = self.decoder.step(memory, tuple(inside), read)
        attended = place[:, None] == torch.arange(memory.mask.size(1), device=place.device)  # [R, S]
        return (*after, place), output, attended.to(output.dtype)

    def forward(self, source: Tensor, lengths: Tensor, target_in: Tensor) -> Tensor:
        memory = self.encode(source, lengths)
        embedded = self.target_words(self.target_embedding(target_in))
        places = self.positions(memory, target_in)[..., None].expand(-1, -1, memory.values.size(-1))
        read = torch.cat([embedded, memory.values.gather(1, places).to(embedded.dtype)], -1)
        outputs: Tensor = self.decoder(memory, read)
        return outputs


class HardAttention(Monotone):
    """A model with monotone hard attention, optionally combined with soft attention.

    >>> model = HardAttention(ModelContext(source_vocab_size=20, target_vocab_size=30), width=8, embedding=6)
    >>> source, lengths, step = torch.tensor([[5, 6, 7]]), torch.tensor([3]), 29
    >>> model.positions(model.encode(source, lengths), torch.tensor([[1, 9, step, 8, step, step]])).tolist()
    [[0, 0, 1, 1, 2, 2]]
    """

    def __init__(
        self,
        context: ModelContext,
        *,
        soft: Annotated[bool, Field(description="add a soft attention between two blocks")] = False,
        width: Annotated[int, Field(ge=1, description="GRU units of a block (of each direction)")] = 512,
        embedding: Annotated[int, Field(ge=1, description="size of embeddings and of the output")] = 512,
        attention: Annotated[
            int | None, Field(ge=1, description="the soft attention's hidden units; width by default")
        ] = None,
        layer_norm: Annotated[bool, Field(description="normalise inside blocks and attention")] = False,
        dropout: Annotated[
            float, Field(ge=0, lt=1, description="variational dropout inside blocks and attention")
        ] = 0.0,
        source_dropout: SourceDropout = 0.0,
        target_dropout: TargetDropout = 0.0,
        tied: Tied = "none",
    ) -> None:
        reader = GRUEncoder(embedding, width, norm=layer_norm, dropout=dropout)
        values, inputs = reader.width, embedding + reader.width
        if soft:
            decoder: Decoder = GRUDecoder(
                embedding, values, width, inputs=inputs, attention=attention, norm=layer_norm, dropout=dropout
            )
        else:
            decoder = ReadingGRU(inputs, values, width, embedding, norm=layer_norm, dropout=dropout)
        super().__init__(
            context,
            reader,
            decoder,
            embedding=embedding,
            tied=tied,
            source_dropout=source_dropout,
            target_dropout=target_dropout,
        )


@hookimpl
def sgdec_models() -> dict[str, type[Model]]:
    return {"hard-attention": HardAttention}
