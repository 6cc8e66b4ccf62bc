"""The Transformer's encoder and decoder: Vaswani et al. 2017, section 3.

Attention of h heads between queries, keys and values of width d; each head has its own d / h columns:

    head = softmax(q k / sqrt(d / h)) v        multi-head = [head_1; ...; head_h] W        (section 3.2)
    feed-forward(x) = max(0, x W_1 + b_1) W_2 + b_2                                        (section 3.3)

Each sublayer f has a residual connection with layer normalisation, either after the sublayer as in the paper, or
before it (Wang et al. 2019). In the second case the stack ends with one more normalisation:

    post: x = norm(x + dropout(f(x)))        pre: x = x + dropout(f(norm(x)))

Inputs are embeddings times sqrt(d) plus positions (section 3.5), PE(pos, 2i) = sin(pos / 10000^(2i/d)) and
PE(pos, 2i+1) = cos of the same. Positions are computed when needed, so the length of sentences is not limited.

The decoder's step and its pass over all steps are one computation, `TransformerDecoder.run`: T new positions attend
to the positions before them, the history, and to each other. A pass over all steps has an empty history; a step has
T = 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sgdec.errors import UsageError
from sgdec.models.attention import by_prefix, by_sentence
from sgdec.models.base import Memory, SharedEntries, State
from sgdec.models.decoding_attention import additive, attend, feed
from sgdec.models.encoder_decoder import Decoder, Encoded, Encoder
from sgdec.models.kernels import Kernels
from sgdec.models.layers import Dense, Packable

Norm: TypeAlias = Literal["post", "pre"]


PRESETS: Mapping[str, Mapping[str, Any]] = {
    "base": {"layers": 6, "width": 512, "heads": 8, "feed_forward": 2048, "norm": "post", "dropout": 0.1},
    "small": {"layers": 3, "width": 256, "heads": 4, "feed_forward": 1024, "norm": "pre", "dropout": 0.2},
}
"""Presets of translation and language models: base of Vaswani et al. 2017, Table 3, and one for small data."""


class Shape(NamedTuple):
    """The settings that all layers of a stack share."""

    width: int
    """d"""
    heads: int = 8
    feed_forward: int = 2048
    norm: Norm = "post"
    dropout: float = 0.1
    """Dropout of each sublayer's output, and of embeddings with their positions."""
    attention_dropout: float = 0.0
    """Dropout of attention weights."""
    feed_forward_dropout: float = 0.0
    """Dropout inside the feed-forward sublayers."""

    def check(self) -> None:
        """Raises UsageError unless the width is even and a multiple of the number of heads."""
        if self.width % self.heads or self.width % 2:
            raise UsageError(
                f"a Transformer's width must be even and a multiple of its number of heads; {self.width} is not, "
                f"with {self.heads} heads. Change one of them."
            )


def positions(first: Tensor, steps: int, width: int) -> Tensor:
    """The position vectors [B, steps, width] of section 3.5, for the positions from ``first`` [B] on.

    >>> positions(torch.tensor([0]), 2, 4).round(decimals=2).tolist()
    [[[0.0, 1.0, 0.0, 1.0], [0.8399999737739563, 0.5400000214576721, 0.009999999776482582, 1.0]]]
    """
    at = first[:, None] + torch.arange(steps, device=first.device)  # [B, steps]
    rates = 10_000 ** (-torch.arange(0, width, 2, device=first.device) / width)  # [width / 2]
    angles = at[..., None] * rates
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)


class LayerInputs(nn.Module):
    """Adds positions to embeddings [B, T, E]: [B, T, width]; if E is not the width, a linear layer comes first."""

    def __init__(self, embedding: int, shape: Shape) -> None:
        super().__init__()
        shape.check()
        self.widen = nn.Identity() if embedding == shape.width else Dense(embedding, shape.width)
        self.dropout = nn.Dropout(shape.dropout)
        self.scale = float(embedding**0.5)

    def forward(self, embedded: Tensor, first: Tensor) -> Tensor:
        """``first`` [B]: the position of each row's first embedding."""
        x = self.widen(embedded * self.scale)
        x = x + positions(first, x.size(1), x.size(2)).to(x.dtype)
        dropped: Tensor = self.dropout(x)
        return dropped


class MultiHead(nn.Module):
    """Multi-head attention of section 3.2, without the products that compute keys and values."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads, self.p = shape.heads, shape.attention_dropout
        self.query, self.output = Dense(shape.width, shape.width), Dense(shape.width, shape.width)

    def forward(self, x: Tensor, keys_values: Tensor, mask: Tensor) -> Tensor:
        """The result [N, T, d] for x [N, T, d].

        ``keys_values``: keys and values, concatenated [N, S, 2 d]; ``mask``: [N or 1, T or 1, S].
        """
        keys, values = map(self._split, keys_values.chunk(2, -1))
        heads = F.scaled_dot_product_attention(
            self._split(self.query(x)).to(keys.dtype), keys, values, mask[:, None], self.p if self.training else 0.0
        )
        result: Tensor = self.output(heads.transpose(1, 2).flatten(2).to(x.dtype))
        return result

    def together(self, x: Tensor, entries: SharedEntries) -> tuple[Tensor, Tensor]:
        """The result [R, 1, d] for one position of each prefix [R, 1, d], and the weights [h, B, most, L]."""
        query = self.query(x).view(len(x), self.heads, -1).to(entries.keys.dtype)
        found, weights = attend(query, *entries)
        result: Tensor = self.output(found.to(x.dtype).flatten(1)[:, None])
        return result, weights[:, :, :, 0]

    def weights(self, x: Tensor, keys_values: Tensor, mask: Tensor) -> Tensor:
        """The attention weights [N, T, S], averaged over the heads; rows sum to one."""
        keys = self._split(keys_values.chunk(2, -1)[0])
        query = self._split(self.query(x)).to(keys.dtype)
        scores = query @ keys.mT / query.size(-1) ** 0.5  # [N, h, T, S]
        return torch.softmax(scores.masked_fill(~mask[:, None], float("-inf")), -1).mean(1)

    def _split(self, x: Tensor) -> Tensor:
        """[N, T, d] to [N, h, T, d / h]."""
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)


class FeedForward(nn.Sequential):
    """The feed-forward sublayer of section 3.3."""

    def __init__(self, shape: Shape) -> None:
        inner, outer = Dense(shape.width, shape.feed_forward), Dense(shape.feed_forward, shape.width)
        super().__init__(inner, nn.ReLU(inplace=True), nn.Dropout(shape.feed_forward_dropout), outer)


class Residual(nn.Module):
    """The residual connection of a sublayer: `before` returns the sublayer's input, a call adds its output."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.pre = shape.norm == "pre"
        self.norm, self.dropout = nn.LayerNorm(shape.width), nn.Dropout(shape.dropout)

    def before(self, x: Tensor) -> Tensor:
        return self.norm(x) if self.pre else x

    def forward(self, x: Tensor, output: Tensor) -> Tensor:
        x = x + self.dropout(output)
        return x if self.pre else self.norm(x)


class Layer(nn.Module):
    """Self-attention, then feed-forward: a layer of an encoder or of a language model."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.keys_values = Dense(shape.width, 2 * shape.width, parts=2)
        self.attention, self.feed_forward = MultiHead(shape), FeedForward(shape)
        self.around_attention, self.around_feed_forward = Residual(shape), Residual(shape)

    def forward(self, x: Tensor, before: Tensor | None, mask: Tensor) -> tuple[Tensor, Tensor]:
        """The output [N, T, d] for x [N, T, d], and the keys and values of all positions [N, P + T, 2 d].

        ``before``: keys and values of the positions before x [N, P, 2 d], if any; ``mask``: [N or 1, T or 1, P + T].
        """
        x, history = self.look_back(x, before, mask)
        return self.think(x), history

    def look_back(self, x: Tensor, before: Tensor | None, mask: Tensor) -> tuple[Tensor, Tensor]:
        """The first sublayer, self-attention; arguments and result as in `forward`."""
        read = self.around_attention.before(x)
        history = self.keys_values(read)
        if before is not None:
            history = torch.cat([before, history.to(before.dtype)], 1)
        return self.around_attention(x, self.attention(read, history, mask)), history

    def look_back_sharing(self, x: Tensor, before: SharedEntries) -> tuple[Tensor, Tensor]:
        """As `look_back`, for one position of each prefix [R, 1, d]; returns only its keys and values [R, 1, 2 d]."""
        read = self.around_attention.before(x)
        entry = self.keys_values(read).to(before.keys.dtype)
        for whole, new in zip(before[:2], entry[:, 0].chunk(2, 1), strict=True):
            feed(whole, new.unflatten(1, (len(whole), -1)).transpose(0, 1), before.rows)
        return self.around_attention(x, self.attention.together(read, before)[0]), entry

    def think(self, x: Tensor) -> Tensor:
        """The last sublayer, feed-forward: [N, T, d] to [N, T, d]."""
        around = self.around_feed_forward
        result: Tensor = around(x, self.feed_forward(around.before(x)))
        return result


class TransformerEncoder(Encoder):
    """The encoder of section 3.1, left side of Figure 1."""

    def __init__(self, embedding: int, layers: int, shape: Shape) -> None:
        super().__init__()
        self.width = shape.width
        self.inputs = LayerInputs(embedding, shape)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(layers))
        self.norm = final_norm(shape)

    def forward(self, embedded: Tensor, mask: Tensor) -> Encoded:
        x = self.inputs(embedded, mask.new_zeros(len(mask), dtype=torch.long))
        for layer in self.layers:
            x, _ = layer(x, None, mask[:, None])
        return Encoded(self.norm(x), mask)


class DecoderLayer(Layer):
    """A layer with attention to the source between the other two sublayers."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.source, self.around_source = MultiHead(shape), Residual(shape)

    def translate(
        self, x: Tensor, before: Tensor, mask: Tensor, memory: Memory, source: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """As `look_back`; also returns the input of the attention to the source [N, T, d].

        ``source``: the keys and values of the source [B, S, 2 d].
        """
        x, history = self.look_back(x, before, mask)
        asked = self.around_source.before(x)
        found = self.source(by_source(asked, memory), source, memory.mask[:, None])
        x = self.around_source(x, by_row(found, memory))
        return self.think(x), history, asked

    def translate_sharing(
        self, x: Tensor, before: SharedEntries, source: SharedEntries
    ) -> tuple[Tensor, Tensor, Tensor]:
        """As `look_back_sharing`; also returns the weights of the attention to the source [h, B, most, S]."""
        x, entry = self.look_back_sharing(x, before)
        found, weights = self.source.together(self.around_source.before(x), source)
        return self.think(self.around_source(x, found)), entry, weights


class TransformerDecoder(Decoder, Packable):
    """The decoder of section 3.1, right side of Figure 1.

    State: the number of tokens of each prefix [R], and for each layer their keys and values [R, T, 2 d], in the order
    of the tokens. If prefixes have different lengths, shorter ones are padded in front.
    """

    def __init__(self, embedding: int, values: int, layers: int, shape: Shape) -> None:
        """``values``: H of the encoder."""
        super().__init__()
        self.width, self.histories, self.history_heads = shape.width, layers, shape.heads
        self.inputs = LayerInputs(embedding, shape)
        self.source = Dense(values, layers * 2 * shape.width, parts=2 * layers)
        self.layers = nn.ModuleList(DecoderLayer(shape) for _ in range(layers))
        self.norm = final_norm(shape)
        self._keeps: torch.dtype | None = None

    def pack(self, kernels: Kernels) -> None:
        """Keep keys and values in the precision that ``kernels`` names."""
        self._keeps = kernels.keeps

    def remember(self, encoded: Encoded) -> Memory:
        """As `Decoder.remember`; the keys [B, S, layers 2 d] are the source's keys and values for all layers."""
        nothing, keys = encoded.values.new_zeros(len(encoded.values), 0), self.source(encoded.values)
        return Memory(encoded.values, keys.to(self._keeps or keys.dtype), encoded.mask, nothing)

    def prepare(self, memory: Memory) -> Memory:
        halves = memory.keys.unflatten(-1, (self.histories, 2, self.history_heads, -1)).permute(2, 3, 4, 0, 1, 5)
        return memory._replace(shared=tuple((keys, values) for keys, values in halves.contiguous()))

    def start(self, memory: Memory) -> State:
        sentences = len(memory.values)
        empty = memory.keys.new_zeros(sentences, 0, 2 * self.width)
        return (torch.zeros(sentences, dtype=torch.long, device=empty.device), *[empty] * self.histories)

    def step(self, memory: Memory, state: State, embedded: Tensor) -> tuple[State, Tensor, Tensor]:
        lengths, *histories = state
        x, longer, asked = self.run(memory, histories, lengths, seen(lengths, histories[0]), embedded[:, None])
        last = cast(DecoderLayer, self.layers[-1])
        weights = last.source.weights(by_source(asked, memory), self._source(memory)[-1], memory.mask[:, None])
        return (lengths + 1, *longer), x[:, 0], by_row(weights, memory)[:, 0]

    def step_sharing(
        self, memory: Memory, state: State, histories: Sequence[SharedEntries], embedded: Tensor
    ) -> tuple[State, Tensor, Tensor]:
        x, weights = self.inputs(embedded[:, None], state[0]), memory.values
        mask, entries = additive(memory.mask, memory.keys.dtype)[:, None], []
        for layer, before, source in zip(self.layers, histories, memory.shared, strict=True):
            whole = SharedEntries(*source, mask, memory.rows)
            x, entry, weights = cast(DecoderLayer, layer).translate_sharing(x, before, whole)
            entries.append(entry)
        return (state[0] + 1, *entries), self.norm(x)[:, 0], by_prefix(weights.mean(0), memory.rows)

    def forward(self, memory: Memory, embedded: Tensor) -> Tensor:
        lengths, *histories = self.start(memory)
        x, _, _ = self.run(memory, histories, lengths, causal(embedded), embedded)
        return x

    def run(
        self,
        memory: Memory,
        histories: Sequence[Tensor],
        first: Tensor,
        mask: Tensor,
        embedded: Tensor,
    ) -> tuple[Tensor, list[Tensor], Tensor]:
        """Run the layers over T new tokens [N, T, E], which follow P others.

        ``histories``: the keys and values of the P tokens in each layer [N, P, 2 d]; ``first``: the position of the
        first new token [N]; ``mask``: [N or 1, T, P + T] true at positions to which a token may attend. Returns the
        outputs [N, T, d], the histories [N, P + T, 2 d], and the input of the last layer's attention to the source
        [N, T, d].
        """
        x = asked = self.inputs(embedded, first)
        longer = []
        for layer, before, source in zip(self.layers, histories, self._source(memory), strict=True):
            x, history, asked = cast(DecoderLayer, layer).translate(x, before, mask, memory, source)
            longer.append(history)
        return self.norm(x), longer, asked

    def _source(self, memory: Memory) -> Sequence[Tensor]:
        """The source's keys and values [B, S, 2 d] for each layer."""
        return memory.keys.chunk(self.histories, -1)


def causal(embedded: Tensor) -> Tensor:
    """The mask [1, T, T] of a pass over all steps [B, T, E]: each position sees itself and the ones before it."""
    steps = embedded.size(1)
    return torch.ones(1, steps, steps, dtype=torch.bool, device=embedded.device).tril()


def seen(lengths: Tensor, history: Tensor) -> Tensor:
    """The mask [R, 1, P + 1] of one step, which sees itself and the last ``lengths`` [R] of a history [R, P, ...].

    >>> seen(torch.tensor([2, 0]), torch.zeros(2, 2, 4))[:, 0].tolist()
    [[True, True, True], [False, False, True]]
    """
    past = history.size(1)
    columns = torch.arange(past + 1, device=lengths.device)
    return (columns >= past - lengths[:, None])[:, None]


def final_norm(shape: Shape) -> nn.Module:
    """The last layer of a stack: with "pre" a normalisation of the residual sum, otherwise the identity."""
    return nn.LayerNorm(shape.width) if shape.norm == "pre" else nn.Identity()


def by_source(x: Tensor, memory: Memory) -> Tensor:
    """Group one position per prefix [R, 1, d] by sentence [B, most, d]; without `Memory.rows`, x is unchanged."""
    return x if memory.rows is None else by_sentence(x[:, 0], memory.rows)


def by_row(x: Tensor, memory: Memory) -> Tensor:
    """The inverse of `by_source`."""
    return x if memory.rows is None else by_prefix(x, memory.rows)[:, None]
