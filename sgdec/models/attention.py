"""Attention between the queries of a decoder and the outputs of an encoder: scores, a softmax, a weighted mean.

    weights = softmax over the source of score(query, value)        context = sum of weights x values

| class | score of query q and value x | source |
|---|---|---|
| `AdditiveAttention` | v . tanh(W q + U x + b) | Bahdanau, Cho and Bengio 2015 |
| `BilinearAttention` | q . W x | Luong, Pham and Manning 2015, "general" |

The part of a score that depends only on the value, the key, is computed once per sentence: `keys`. (The Transformer's
attention is in `transformer_layers.py`.)
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from sgdec.models.base import Memory, Rows
from sgdec.models.layers import Dense, norm_or_nothing


def by_sentence(query: Tensor, rows: Rows | None) -> Tensor:
    """Group the queries of prefixes [R, ...] by sentence: [B, most, ...], for at most ``most`` prefixes each."""
    return query[:, None] if rows is None else query[rows.grid]


def by_prefix(answers: Tensor, rows: Rows | None) -> Tensor:
    """The inverse of `by_sentence`: [B, most, ...] to [R, ...]."""
    return answers[:, 0] if rows is None else answers.flatten(0, 1)[rows.cell]


class Attention(nn.Module, ABC):
    """Maps queries [B, T, Q] to contexts [B, T, H] and weights [B, T, S]; T: steps, or prefixes of one sentence."""

    @abstractmethod
    def keys(self, values: Tensor) -> Tensor:
        """The keys [B, S, A] of values [B, S, H]."""

    @abstractmethod
    def score(self, query: Tensor, keys: Tensor) -> Tensor:
        """The scores [B, T, S] of queries [B, T, Q] and keys [B, S, A]."""

    def forward(self, query: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        scores = self.score(query, memory.keys).masked_fill(~memory.mask[:, None], float("-inf"))
        weights = torch.softmax(scores, -1)  # [B, T, S]
        return weights.to(memory.values.dtype) @ memory.values, weights

    def once(self, query: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        """Contexts [R, H] and weights [R, S] for one query per prefix [R, Q]."""
        contexts, weights = self(by_sentence(query, memory.rows), memory)
        return by_prefix(contexts, memory.rows), by_prefix(weights, memory.rows)


class AdditiveAttention(Attention):
    """v . tanh(W q + U x + b); with ``norm`` both products are normalised, as in Marian's deep models."""

    def __init__(self, query: int, values: int, hidden: int, *, norm: bool = False) -> None:
        super().__init__()
        self.query = nn.Sequential(Dense(query, hidden, bias=False), norm_or_nothing(norm, hidden))  # W
        self.key = nn.Sequential(Dense(values, hidden, bias=not norm), norm_or_nothing(norm, hidden))  # U, b
        self.v = Dense(hidden, 1, bias=False)

    def keys(self, values: Tensor) -> Tensor:
        keys: Tensor = self.key(values)
        return keys

    def score(self, query: Tensor, keys: Tensor) -> Tensor:
        asked = self.query(query)
        if torch.is_grad_enabled() or keys.device.type != "cpu" or keys.dtype == torch.float64:
            hidden = torch.tanh(asked[:, :, None] + keys[:, None])  # [B, T, S, A]
        else:  # tanh x = 2 (sigmoid(2 x) - 1/2), in place and in fp32, which takes a tenth of the time
            hidden = (2 * asked.float())[:, :, None] + (2 * keys.float())[:, None]
            hidden = hidden.sigmoid_().sub_(0.5).mul_(2).to(keys.dtype)
        scores: Tensor = self.v(hidden)[..., 0]
        return scores


class BilinearAttention(Attention):
    """q . W x."""

    def __init__(self, query: int, values: int) -> None:
        super().__init__()
        self.key = Dense(values, query, bias=False)  # W

    def keys(self, values: Tensor) -> Tensor:
        keys: Tensor = self.key(values)
        return keys

    def score(self, query: Tensor, keys: Tensor) -> Tensor:
        return query @ keys.mT
