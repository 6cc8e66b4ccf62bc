"""Attention in a step of decoding: one query for each prefix.

The prefixes of a sentence have its source in common, and the beginnings of their histories. So there are keys and
values once for each sentence, and one product for each sentence and head compares all its queries with all its keys.
A mask says which prefix sees which key. This reads less memory than a copy for each prefix, and a product of several
queries is faster than several products of one. The products are those of PyTorch for batches of matrices, in the
precision of the keys; on a CPU they were measured to be faster than its ``scaled_dot_product_attention``, which is
made for many queries (`benchmarks/attention.py`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from sgdec.models.base import Rows


def attend(
    query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, rows: Rows | None, scale: float | None = None
) -> tuple[Tensor, Tensor]:
    """The means of values ``[R, H, E]`` for the queries ``[R, H, D]`` of R prefixes, and the weights of the values
    ``[G, B, most, H / G, L]``.

    ``keys``, ``values``: ``[G, B, L, D]`` and ``[G, B, L, E]`` for G groups of heads, whose H / G queries share keys;
    ``mask``: ``[B, most or 1, L]``, which is added to the scores: 0, or -inf for what a prefix does not see, with at
    least one 0 for each. ``rows``: the sentence of each prefix; None = prefix i belongs to sentence i. ``scale``: the
    factor of the scores; None = 1 / sqrt(D).
    """
    groups, sentences, length, size = keys.shape
    prefixes, heads, _ = query.shape
    shared = heads // groups
    wide = (query * (size**-0.5 if scale is None else scale)).view(prefixes, groups, shared * size).transpose(0, 1)
    if rows is not None:
        wide = wide.index_select(1, rows.grid.flatten())
    queries = wide.reshape(groups * sentences, -1, size)  # [G B, most H / G, D]
    scores = torch.bmm(queries, keys.flatten(0, 1).mT).view(groups, sentences, -1, shared, length)
    scores += mask[:, :, None]
    weights = torch.softmax(scores, -1).view(groups * sentences, -1, length)
    found = torch.bmm(weights, values.flatten(0, 1)).view(groups, -1, shared * values.size(-1))
    if rows is not None:
        found = found.index_select(1, rows.cell)
    return found.transpose(0, 1).reshape(prefixes, heads, -1), weights.view(scores.shape)


def feed(entries: Tensor, new: Tensor, rows: Rows | None) -> None:
    """Write the entries ``[heads, R, D]`` of new tokens into the room at the end of ``[heads, B, L, D]``."""
    if rows is None:
        entries[:, :, -1] = new
    else:
        entries[:, :, -rows.grid.size(1) :] = new[:, rows.grid]


def additive(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask for `attend`: 0 where ``seen``, -inf elsewhere."""
    return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, float("-inf"))
