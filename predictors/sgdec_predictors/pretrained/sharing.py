"""Steps of models of transformers in which the prefixes of a sentence share keys and values.

transformers lets others register attention functions, which are called with the queries, keys, values and mask of a
layer. Here the keys and values belong to sentences and not to rows (`sgdec.models.decoding_attention`), and the mask,
in four dimensions, passes through the model unchanged. Models with other kinds of attention, such as windows or
biases by distance, are not read in this way; `probe` says whether the others give the same scores.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from torch import Tensor
from transformers import AttentionInterface
from transformers.cache_utils import DynamicLayer

from sgdec.models.base import Rows
from sgdec.models.decoding_attention import attend, feed

NAME = "sgdec"
OTHERS = ("position_bias", "softcap", "s_aux", "sliding_window")
"""Arguments of attention functions that change the scores."""

_rows: ContextVar[Rows | None] = ContextVar("rows", default=None)


def may_share(config: Any) -> bool:
    """Whether all layers of a decoder attend to all tokens, by a function that can be replaced."""
    kinds = getattr(config, "layer_types", None) or ()
    return config._attn_implementation == "sdpa" and all(kind == "full_attention" for kind in kinds)


@contextmanager
def sharing(config: Any, rows: Rows | None) -> Iterator[None]:
    """Context manager for a step in which keys and values belong to sentences."""
    before, token = config._attn_implementation, _rows.set(rows)
    config._attn_implementation = NAME
    try:
        yield
    finally:
        config._attn_implementation = before
        _rows.reset(token)


def _attended(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor,
    scaling: float | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """For queries ``[rows, H, 1, D]``, keys and values ``[B, G, L, D]``, as `transformers` calls it."""
    unknown = [name for name in OTHERS if others.get(name) is not None]
    if unknown:
        raise NotImplementedError(f"attention with {unknown[0]}")
    dtype = mask.dtype
    keys, values = key.transpose(0, 1).to(dtype), value.transpose(0, 1).to(dtype)
    found, _ = attend(query[:, :, 0].to(dtype), keys, values, mask[:, 0], _rows.get(), scaling)
    return found[:, None].to(query.dtype), None


AttentionInterface.register(NAME, _attended)


class SharedByPrefixes(DynamicLayer):  # type: ignore[misc]  # mypy skips transformers
    """Keys and values of a layer, once for each sentence, with room for the tokens that its prefixes are fed."""

    def __init__(self, keys: Tensor, values: Tensor, rows: Rows | None, length: int) -> None:
        """``keys``, ``values``: ``[heads, B, L, d]``, of which the last ``most`` places, one for each prefix of a
        sentence, are the room. ``length``: the number of tokens of the longest prefix."""
        super().__init__()
        self.lazy_initialization(keys, values)
        self.keys, self.values = keys, values
        self._rows, self._length = rows, length

    def get_seq_length(self) -> int:
        return self._length

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        self.fed = key_states[:, :, 0].transpose(0, 1), value_states[:, :, 0].transpose(0, 1)  # [heads, rows, d]
        for whole, new in zip((self.keys, self.values), self.fed, strict=True):
            feed(whole, new, self._rows)
        return self.keys.transpose(0, 1), self.values.transpose(0, 1)
