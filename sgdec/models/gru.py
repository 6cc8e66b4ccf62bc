"""GRU encoder and decoder whose cells are chains of blocks (deep transitions): Marian, section 3.1.1.

A block (Cho et al. 2014) has its gates in the order of `torch.nn.GRU`, to which it is equal without layer
normalisation:

    r, z = sigmoid(W x + U h)      n = tanh(W_n x + r * (U_n h))      h' = (1 - z) * n + z * h

The cell of a recurrent step is a chain of L blocks. Only the first block reads the input x_t; the others, called
transitions, have no W x. The first block of the next step reads the state of the last block (Miceli Barone et al.
2017):

    h_1 = block_1(x_t, h of step t-1)        h_k = block_k(h_{k-1}),  k = 2..L        h of step t = h_L

Encoder: two cells, one from left to right and one from right to left; the output concatenates their states.
Decoder: the attention is between its first and its second block (Sennrich et al. 2017):

    s_1 = block_1(y_{t-1}, s of step t-1)    c_t = attention(s_1)    s_2 = block_2(c_t, s_1)    s_k = block_k(s_{k-1})
    output = tanh(R [s_L; y_{t-1}; c_t])     s of step 0 = tanh(I mean(encoder outputs))

With ``norm``, layer normalisation is applied to each product: W x, U h, R[...], I mean, and those of the attention.
The gates of a block are normalised together (Ba, Kiros and Hinton 2016, as in Marian). Dropout is variational (Gal
and Ghahramani 2016): the inputs of a block's products, the attention's query and the output have one mask for all
steps of a sentence. Dropout acts only in `forward`, which training uses, not in `step`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from sgdec.models.attention import AdditiveAttention
from sgdec.models.base import Memory, State
from sgdec.models.encoder_decoder import Decoder, Encoded, Encoder
from sgdec.models.layers import Dense, dropout_mask, norm_or_nothing


class GRUBlock(nn.Module):
    """One block; without ``inputs`` a transition, which reads only the state."""

    def __init__(self, inputs: int | None, width: int, *, norm: bool = False) -> None:
        super().__init__()
        self.width = width

        def product(size: int) -> nn.Module:
            return nn.Sequential(Dense(size, 3 * width, bias=not norm, parts=3), norm_or_nothing(norm, 3 * width))

        self.inputs = None if inputs is None else product(inputs)  # W
        self.recurrent = product(width)  # U

    def read(self, x: Tensor) -> Tensor:
        """W x [..., 3 width] of inputs [..., K]; may be called for all steps at once."""
        assert self.inputs is not None
        gates: Tensor = self.inputs(x)
        return gates

    def forward(self, gates: Tensor | None, hidden: Tensor, mask: Tensor | None = None) -> Tensor:
        """The new state h' [B, width], from W x [B, 3 width] (None for a transition) and h [B, width].

        ``mask`` [B, width]: the dropout mask of h in U h.
        """
        recurrent = self.recurrent(hidden if mask is None else hidden * mask)
        r, z, n = recurrent.chunk(3, -1)
        if gates is None:
            n = torch.tanh(torch.sigmoid(r) * n)
            return torch.lerp(n, hidden.to(n.dtype), torch.sigmoid(z))
        r_x, z_x, n_x = gates.chunk(3, -1)
        n = torch.tanh(torch.addcmul(n_x, torch.sigmoid(r + r_x), n))
        return torch.lerp(n, hidden.to(n.dtype), torch.sigmoid(z + z_x))


class Masks(NamedTuple):
    """The masks of variational dropout for one pass over sentences."""

    states: Sequence[Tensor | None]
    """The mask [B, width] of each block's state."""
    inputs: Sequence[Tensor | None]
    """The mask of each other input."""


class VariationalDropout(nn.Module):
    """Draws the masks of one pass, for the states of ``blocks`` blocks and for inputs of the given sizes."""

    def __init__(self, p: float, blocks: int, width: int, *inputs: int) -> None:
        super().__init__()
        self.p, self._states, self._inputs = p, [width] * blocks, inputs

    def forward(self, like: Tensor) -> Masks:
        """The masks for the B sentences of ``like`` [B, ...]."""
        if not self.training or not self.p:
            return Masks([None] * len(self._states), [None] * len(self._inputs))
        states, inputs = (
            [dropout_mask(like.new_empty(len(like), size), self.p) for size in sizes]
            for sizes in (self._states, self._inputs)
        )
        return Masks(states, inputs)


def masked(x: Tensor, mask: Tensor | None) -> Tensor:
    """x [B, T, K] times one mask [B, K] at all steps."""
    return x if mask is None else x * mask[:, None]


class GRUEncoder(Encoder):
    """A bidirectional GRU whose cells have ``blocks`` blocks."""

    def __init__(
        self, embedding: int, width: int, *, blocks: int = 1, norm: bool = False, dropout: float = 0.0
    ) -> None:
        """``width``: the width of one direction; the outputs are twice as wide."""
        super().__init__()
        self.width = 2 * width
        self.directions = nn.ModuleList(
            nn.ModuleList(GRUBlock(None if block else embedding, width, norm=norm) for block in range(blocks))
            for _ in range(2)
        )
        self.dropout = VariationalDropout(dropout, blocks, width, embedding)

    def forward(self, embedded: Tensor, mask: Tensor) -> Encoded:
        ahead, back = (self._run(direction, embedded, mask) for direction in range(2))
        return Encoded(torch.cat([ahead, back], -1), mask)

    def _run(self, direction: int, embedded: Tensor, mask: Tensor) -> Tensor:
        """The states [B, S, width] of one direction. Padding leaves the state unchanged, so it has no effect."""
        first, *transitions = cast("list[GRUBlock]", list(cast(nn.ModuleList, self.directions[direction])))
        masks: Masks = self.dropout(embedded)
        gates = first.read(masked(embedded, masks.inputs[0])).unbind(1)
        real = mask[:, :, None].unbind(1)
        hidden = gates[0].new_zeros(len(embedded), first.width)
        states = [hidden] * len(gates)
        for t in reversed(range(len(gates))) if direction else range(len(gates)):
            new = first(gates[t], hidden, masks.states[0])
            for block, dropped in zip(transitions, masks.states[1:], strict=True):
                new = block(None, new, dropped)
            hidden = states[t] = torch.where(real[t], new, hidden)
        return torch.stack(states, 1)


class GRUDecoder(Decoder):
    """A GRU whose cell has ``blocks`` blocks and attention after the first. State: s [R, width]."""

    def __init__(
        self,
        embedding: int,
        values: int,
        width: int,
        *,
        blocks: int = 2,
        inputs: int | None = None,
        attention: int | AdditiveAttention | None = None,
        norm: bool = False,
        dropout: float = 0.0,
    ) -> None:
        """``values``: H, the width of contexts; ``blocks`` >= 2.

        ``inputs``: the size of a step's input, ``embedding`` by default; ``attention``: the attention's number of
        hidden units, ``width`` by default, or the attention itself.
        """
        super().__init__()
        self.width, inputs = embedding, inputs or embedding
        self.first = GRUBlock(inputs, width, norm=norm)
        if not isinstance(attention, AdditiveAttention):
            attention = AdditiveAttention(width, values, attention or width, norm=norm)
        self.attention = attention
        self.second = GRUBlock(values, width, norm=norm)
        self.transitions = nn.ModuleList(GRUBlock(None, width, norm=norm) for _ in range(blocks - 2))
        self.initial = nn.Sequential(Dense(values, width, bias=not norm), norm_or_nothing(norm, width))
        self.readout = nn.Sequential(
            Dense(width + inputs + values, embedding, bias=not norm), norm_or_nothing(norm, embedding)
        )
        self.dropout = VariationalDropout(dropout, blocks, width, inputs, width, values, embedding)

    def remember(self, encoded: Encoded) -> Memory:
        first = torch.tanh(self.initial(encoded.mean()))
        return Memory(encoded.values, self.attention.keys(encoded.values), encoded.mask, first)

    def start(self, memory: Memory) -> State:
        return (memory.first,)

    def step(self, memory: Memory, state: State, embedded: Tensor) -> tuple[State, Tensor, Tensor]:
        nothing = Masks([None] * (2 + len(self.transitions)), [None] * 4)
        hidden, context, attention = self._cell(memory, state[0], self.first.read(embedded), nothing)
        return (hidden,), self._output(hidden, embedded, context), attention

    def attend(self, query: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        """Contexts [R, H] and weights [R, S] for the first block's state as query [R, width]."""
        return self.attention.once(query, memory)

    def forward(self, memory: Memory, embedded: Tensor) -> Tensor:
        masks: Masks = self.dropout(embedded)
        words, *_, last = masks.inputs
        (hidden,) = self.start(memory)
        states, contexts = [], []
        for gates in self.first.read(masked(embedded, words)).unbind(1):
            hidden, context, _ = self._cell(memory, hidden, gates, masks)
            states.append(hidden)
            contexts.append(context)
        return masked(self._output(torch.stack(states, 1), embedded, torch.stack(contexts, 1)), last)

    def _cell(self, memory: Memory, hidden: Tensor, gates: Tensor, masks: Masks) -> tuple[Tensor, Tensor, Tensor]:
        """One step from s [R, width]; returns the new s, the context [R, H] and the attention [R, S]."""
        _, asked, read, _ = masks.inputs
        hidden = self.first(gates, hidden, masks.states[0])
        context, attention = self.attend(hidden if asked is None else hidden * asked, memory)
        gates = self.second.read(context if read is None else context * read)
        hidden = self.second(gates, hidden, masks.states[1])
        for block, dropped in zip(self.transitions, masks.states[2:], strict=True):
            hidden = block(None, hidden, dropped)
        return hidden, context, attention

    def _output(self, hidden: Tensor, embedded: Tensor, context: Tensor) -> Tensor:
        """The output [..., E] of a step or of all steps."""
        return torch.tanh(self.readout(torch.cat([hidden, embedded.to(hidden.dtype), context], -1)))
