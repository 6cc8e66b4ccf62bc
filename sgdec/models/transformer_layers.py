"""The Transformer's encoder and decoder: Vaswani et al. 2017, section 3.

Attention of h heads between queries, keys and values of width d, each head with its own d / h of the columns:

    head = softmax(q k / sqrt(d / h)) v        multi-head = [head_1; ...; head_h] W        (section 3.2)
    feed-forward(x) = max(0, x W_1 + b_1) W_2 + b_2                                        (section 3.3)

Each such sublayer f stands in a residual connection with layer normalisation, after it as in the paper, or before it
(Wang et al. 2019), where one more normalisation ends the stack:

    post: x = norm(x + dropout(f(x)))        pre: x = x + dropout(f(norm(x)))

Inputs are embeddings times sqrt(d) plus positions (section 3.5), PE(pos, 2i) = sin(pos / 10000^(2i/d)) and
PE(pos, 2i+1) = cos of the same, computed as they are needed, so there is no longest sentence.

The decoder's step and its pass over all steps are one computation, `TransformerDecoder.run`: T new positions look
back at the positions before them, the history, and at each other. A pass over all steps has an empty history; a step
has T = 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sgdec.errors import UsageError
from sgdec.models.attention import by_prefix, by_sentence
from sgdec.models.base import Memory, State
from sgdec.models.encoder_decoder import Decoder, Encoded, Encoder
from sgdec.models.layers import Dense

Norm: TypeAlias = Literal["post", "pre"]


PRESETS: Mapping[str, Mapping[str, Any]] = {
    "base": {"layers": 6, "width": 512, "heads": 8, "feed_forward": 2048, "norm": "post", "dropout": 0.1},
    "small": {"layers": 3, "width": 256, "heads": 4, "feed_forward": 1024, "norm": "pre", "dropout": 0.2},
}
"""Of translation and language models alike: Vaswani et al. 2017, Table 3, and one for small data."""


class Shape(NamedTuple):
    """What all layers of a stack have in common."""

    width: int
    """d"""
    heads: int = 8
    feed_forward: int = 2048
    norm: Norm = "post"
    dropout: float = 0.1
    """Of what each sublayer puts out, and of embeddings with their positions."""
    attention_dropout: float = 0.0
    """Of attention weights."""
    feed_forward_dropout: float = 0.0
    """Inside the feed-forward sublayers."""

    def check(self) -> None:
        """Raises UsageError for a width that cannot be divided."""
        if self.width % self.heads or self.width % 2:
            raise UsageError(
                f"a Transformer's width is even and a multiple of its heads; {self.width} is not, with {self.heads} "
                "heads. Change one of them."
            )


def positions(first: Tensor, steps: int, width: int) -> Tensor:
    """Section 3.5: [B, steps, width] for the positions from ``first`` [B] on.

    >>> positions(torch.tensor([0]), 2, 4).round(decimals=2).tolist()
    [[[0.0, 1.0, 0.0, 1.0], [0.8399999737739563, 0.5400000214576721, 0.009999999776482582, 1.0]]]
    """
    at = first[:, None] + torch.arange(steps, device=first.device)  # [B, steps]
    rates = 10_000 ** (-torch.arange(0, width, 2, device=first.device) / width)  # [width / 2]
    angles = at[..., None] * rates
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)


class Inputs(nn.Module):
    """Embeddings [B, T, E] with their positions, [B, T, width]; another E is brought to the width first."""

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
    """Section 3.2 without the products that make keys and values."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads, self.p = shape.heads, shape.attention_dropout
        self.query, self.output = Dense(shape.width, shape.width), Dense(shape.width, shape.width)

    def forward(self, x: Tensor, keys_values: Tensor, mask: Tensor) -> Tensor:
        """x [N, T, d], keys and values side by side [N, S, 2 d], mask [N or 1, T or 1, S]: [N, T, d]."""
        keys, values = map(self._split, keys_values.chunk(2, -1))
        heads = F.scaled_dot_product_attention(
            self._split(self.query(x)), keys, values, mask[:, None], self.p if self.training else 0.0
        )
        result: Tensor = self.output(heads.transpose(1, 2).flatten(2))
        return result

    def weights(self, x: Tensor, keys_values: Tensor, mask: Tensor) -> Tensor:
        """The mean over the heads of their softmaxes: [N, T, S]; rows sum to one."""
        keys, query = self._split(keys_values.chunk(2, -1)[0]), self._split(self.query(x))
        scores = query @ keys.mT / query.size(-1) ** 0.5  # [N, h, T, S]
        return torch.softmax(scores.masked_fill(~mask[:, None], float("-inf")), -1).mean(1)

    def _split(self, x: Tensor) -> Tensor:
        """[N, T, d] to [N, h, T, d / h]."""
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)


class FeedForward(nn.Sequential):
    """Section 3.3."""

    def __init__(self, shape: Shape) -> None:
        inner, outer = Dense(shape.width, shape.feed_forward), Dense(shape.feed_forward, shape.width)
        super().__init__(inner, nn.ReLU(), nn.Dropout(shape.feed_forward_dropout), outer)


class Residual(nn.Module):
    """Around a sublayer: `before` gives what the sublayer reads, calling it adds what that puts out."""

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
    """Attention to one's own side, then feed-forward: a layer of an encoder, or of a language model."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.keys_values = Dense(shape.width, 2 * shape.width, parts=2)
        self.attention, self.feed_forward = MultiHead(shape), FeedForward(shape)
        self.around_attention, self.around_feed_forward = Residual(shape), Residual(shape)

    def forward(self, x: Tensor, before: Tensor | None, mask: Tensor) -> tuple[Tensor, Tensor]:
        """x [N, T, d] after ``before`` [N, P, 2 d], keys and values of other positions; mask [N or 1, T or 1, P + T].

        What it puts out [N, T, d], and keys and values of all positions [N, P + T, 2 d].
        """
        x, history = self.look_back(x, before, mask)
        return self.think(x), history

    def look_back(self, x: Tensor, before: Tensor | None, mask: Tensor) -> tuple[Tensor, Tensor]:
        """The first sublayer."""
        read = self.around_attention.before(x)
        history = self.keys_values(read)
        if before is not None:
            history = torch.cat([before, history.to(before.dtype)], 1)
        return self.around_attention(x, self.attention(read, history, mask)), history

    def think(self, x: Tensor) -> Tensor:
        """The last sublayer."""
        around = self.around_feed_forward
        result: Tensor = around(x, self.feed_forward(around.before(x)))
        return result


class TransformerEncoder(Encoder):
    """Section 3.1, left side of Figure 1."""

    def __init__(self, embedding: int, layers: int, shape: Shape) -> None:
        super().__init__()
        self.width = shape.width
        self.inputs = Inputs(embedding, shape)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(layers))
        self.norm = final_norm(shape)

    def forward(self, embedded: Tensor, mask: Tensor) -> Encoded:
        x = self.inputs(embedded, mask.new_zeros(len(mask), dtype=torch.long))
        for layer in self.layers:
            x, _ = layer(x, None, mask[:, None])
        return Encoded(self.norm(x), mask)


class DecoderLayer(Layer):
    """Between the two sublayers, attention to the source."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.source, self.around_source = MultiHead(shape), Residual(shape)

    def translate(
        self, x: Tensor, before: Tensor, mask: Tensor, memory: Memory, source: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """As `forward`, with the source's keys and values [B, S, 2 d]; also what the attention to them read."""
        x, history = self.look_back(x, before, mask)
        asked = self.around_source.before(x)
        found = self.source(by_source(asked, memory), source, memory.mask[:, None])
        x = self.around_source(x, by_row(found, memory))
        return self.think(x), history, asked


class TransformerDecoder(Decoder):
    """Section 3.1, right side of Figure 1.

    State: how many tokens each prefix has [R], and for each layer the keys and values of these [R, T, 2 d], the last
    token's last; where prefixes are of different lengths, shorter ones are padded in front.
    """

    def __init__(self, embedding: int, values: int, layers: int, shape: Shape) -> None:
        """``values``: H of the encoder."""
        super().__init__()
        self.width, self.histories = shape.width, layers
        self.inputs = Inputs(embedding, shape)
        self.source = Dense(values, layers * 2 * shape.width, parts=2 * layers)
        self.layers = nn.ModuleList(DecoderLayer(shape) for _ in range(layers))
        self.norm = final_norm(shape)

    def remember(self, encoded: Encoded) -> Memory:
        """Keys [B, S, layers 2 d]: the source's keys and values for each layer, side by side."""
        nothing = encoded.values.new_zeros(len(encoded.values), 0)
        return Memory(encoded.values, self.source(encoded.values), encoded.mask, nothing)

    def start(self, memory: Memory) -> State:
        sentences = len(memory.values)
        empty = memory.keys.new_zeros(sentences, 0, 2 * self.width)
        return (torch.zeros(sentences, dtype=torch.long, device=empty.device), *[empty] * self.histories)

    def step(self, memory: Memory, state: State, embedded: Tensor) -> tuple[State, Tensor, Tensor]:
        lengths, *histories = state
        x, histories, asked = self.run(memory, histories, lengths, seen(lengths, histories[0]), embedded[:, None])
        last = cast(DecoderLayer, self.layers[-1])
        weights = last.source.weights(by_source(asked, memory), self._source(memory)[-1], memory.mask[:, None])
        return (lengths + 1, *histories), x[:, 0], by_row(weights, memory)[:, 0]

    def forward(self, memory: Memory, embedded: Tensor) -> Tensor:
        lengths, *histories = self.start(memory)
        x, _, _ = self.run(memory, histories, lengths, causal(embedded), embedded)
        return x

    def run(
        self, memory: Memory, histories: Sequence[Tensor], first: Tensor, mask: Tensor, embedded: Tensor
    ) -> tuple[Tensor, list[Tensor], Tensor]:
        """T more tokens [N, T, E] after P others, their histories [N, P, 2 d], from position ``first`` [N] on.

        ``mask`` [N or 1, T, P + T] is true where a token may look. Outputs [N, T, d], histories [N, P + T, 2 d], and
        what the last layer's attention to the source read [N, T, d].
        """
        x = asked = self.inputs(embedded, first)
        longer = []
        for layer, before, source in zip(self.layers, histories, self._source(memory), strict=True):
            x, history, asked = cast(DecoderLayer, layer).translate(x, before, mask, memory, source)
            longer.append(history)
        return self.norm(x), longer, asked

    def _source(self, memory: Memory) -> Sequence[Tensor]:
        """For each layer the source's keys and values [B, S, 2 d]."""
        return memory.keys.chunk(self.histories, -1)


def causal(embedded: Tensor) -> Tensor:
    """The mask [1, T, T] of a pass over all steps [B, T, E]: each sees itself and those before it."""
    steps = embedded.size(1)
    return torch.ones(1, steps, steps, dtype=torch.bool, device=embedded.device).tril()


def seen(lengths: Tensor, history: Tensor) -> Tensor:
    """The mask [R, 1, P + 1] of one more step: it sees itself and the last ``lengths`` [R] of a history [R, P, ...].

    >>> seen(torch.tensor([2, 0]), torch.zeros(2, 2, 4))[:, 0].tolist()
    [[True, True, True], [False, False, True]]
    """
    past = history.size(1)
    columns = torch.arange(past + 1, device=lengths.device)
    return (columns >= past - lengths[:, None])[:, None]


def final_norm(shape: Shape) -> nn.Module:
    """What ends a stack: with "pre" nothing else has normalised the sum."""
    return nn.LayerNorm(shape.width) if shape.norm == "pre" else nn.Identity()


def by_source(x: Tensor, memory: Memory) -> Tensor:
    """One position a prefix [R, 1, d], those of a sentence beside each other [B, most, d]; else unchanged."""
    return x if memory.rows is None else by_sentence(x[:, 0], memory.rows)


def by_row(x: Tensor, memory: Memory) -> Tensor:
    """The inverse."""
    return x if memory.rows is None else by_prefix(x, memory.rows)[:, None]
