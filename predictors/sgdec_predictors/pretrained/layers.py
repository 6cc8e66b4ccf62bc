"""Layers of the caches of transformers that hold what was gathered from slots.

In transformers a cache belongs to one batch, whose rows grow together. Here each step gets a cache of its own, with
the tokens of any prefixes, and room for the token that is fed.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from transformers.cache_utils import DynamicLayer, LinearAttentionLayer


class Gathered(DynamicLayer):  # type: ignore[misc]  # mypy skips transformers
    """Keys and values ``[rows, heads, tokens + 1, d]``; the last place is for the token that is fed."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        super().__init__()
        self.lazy_initialization(keys, values)
        self.keys, self.values = keys, values

    def get_seq_length(self) -> int:
        return int(self.keys.shape[-2]) - 1

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        self.keys[:, :, -1:] = key_states
        self.values[:, :, -1:] = value_states
        return self.keys, self.values


class Crossed(DynamicLayer):  # type: ignore[misc]  # mypy skips transformers
    """Keys and values ``[rows, heads, S, d]`` of encoded sources, to which nothing is added."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        super().__init__()
        self.lazy_initialization(keys, values)
        self.keys, self.values = keys, values


class Carried(LinearAttentionLayer):  # type: ignore[misc]  # mypy skips transformers
    """The states of a recurrent layer after the tokens so far, ``[rows, ...]``, as `carried_parts` gives them."""

    def __init__(self, like: LinearAttentionLayer, parts: list[Tensor]) -> None:
        super().__init__(number_of_states=like.number_of_states)
        left = iter(parts)
        self.conv_kernel_size = dict(like.conv_kernel_size)
        self.is_conv_states_initialized = dict(like.is_conv_states_initialized)
        self.is_recurrent_states_initialized = dict(like.is_recurrent_states_initialized)
        self.has_previous_state = dict(like.has_previous_state)
        self.dtype, self.device = like.dtype, like.device
        for present, states in (
            (self.is_conv_states_initialized, self.conv_states),
            (self.is_recurrent_states_initialized, self.recurrent_states),
        ):
            states.update({place: next(left) for place, there in present.items() if there})


def carried_parts(layer: LinearAttentionLayer) -> list[Tensor]:
    """The states of a recurrent layer, ``[rows, ...]`` each."""
    return [
        states[place]
        for present, states in (
            (layer.is_conv_states_initialized, layer.conv_states),
            (layer.is_recurrent_states_initialized, layer.recurrent_states),
        )
        for place, there in present.items()
        if there
    ]
