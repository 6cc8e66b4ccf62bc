"""LSTM layers step by step, with the products separate from the gates: GNMT (Wu et al. 2016), equations 10 and 11.

PyTorch's fused `torch.nn.LSTM` is used wherever possible. But it cannot clip the cell inside a sequence, and it
cannot use other matrix products. For these cases this file computes the steps, with the same gates

    c' = sigmoid(f) c + sigmoid(i) tanh(g)        c = max(-delta, min(delta, c'))        m = sigmoid(o) tanh(c)

from pre-activations in the order i, f, g, o of `torch.nn.LSTM`. m is also defined as there (equation 11 has
m = c sigmoid(o)). So m is within [-1, 1], and within [-tanh(delta), tanh(delta)] if c is clipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from sgdec.models.kernels import Product, plain_linear


class Recurrence(NamedTuple):
    """One direction of one layer: gates = inputs(x) + hidden(m), all in [..., 4 width]."""

    inputs: Product
    hidden: Product


def unpacked(lstm: nn.LSTM) -> list[Recurrence]:
    """The products of each direction (and layer), with the current values of the parameters."""
    return [
        Recurrence(plain_linear(w_ih, b_ih), plain_linear(w_hh, b_hh)) for w_ih, w_hh, b_ih, b_hh in lstm.all_weights
    ]


def lstm_cell(gates: Tensor, cell: Tensor, delta: float | None) -> tuple[Tensor, Tensor]:
    """The new output m and cell [B, width], from pre-activations [B, 4 width] and cell [B, width].

    The cell is clipped if there is a ``delta``.
    """
    i, f, g, o = gates.chunk(4, -1)
    cell = torch.addcmul(torch.sigmoid(f) * cell, torch.sigmoid(i), tanh(g))
    if delta is not None:
        cell = cell.clamp(-delta, delta)
    return torch.sigmoid(o) * tanh(cell), cell


def tanh(x: Tensor) -> Tensor:
    """tanh x, on a CPU computed as 2 sigmoid(2 x) - 1, because PyTorch's sigmoid is several times as fast there.

    In 16 bits it is tanh itself, because the difference of sigmoid from 1/2 would be lost for small x.
    """
    quick = x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64)
    return 2 * torch.sigmoid(2 * x) - 1 if quick else torch.tanh(x)


def run_lstm(
    layer: Recurrence,
    x: Tensor,
    sizes: Sequence[int],
    first: tuple[Tensor, Tensor],
    delta: float | None,
    *,
    reverse: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Run a layer over packed sequences; returns the outputs [tokens, width], and the last m and c [B, width].

    ``x`` [tokens, K]: for each step the rows that have not ended, as in `torch.nn.utils.rnn.PackedSequence`;
    ``sizes``: the number of rows of each step, decreasing from B; ``first``: m and c [B, width] before the first
    step. With ``reverse`` each row is processed from its end to its beginning.
    """
    steps = list(enumerate(torch.split(layer.inputs(x), list(sizes))))  # all input products at once
    outputs: list[Tensor] = [x] * len(steps)
    hidden, cell = (part[:0] if reverse else part for part in first)
    ended: list[tuple[Tensor, Tensor]] = []
    for step, gates in reversed(steps) if reverse else steps:
        now, before = len(gates), len(hidden)
        if now > before:  # in reverse: rows that begin here
            hidden, cell = (torch.cat([a, b[before:now]]) for a, b in zip((hidden, cell), first, strict=True))
        elif now < before:
            ended.append((hidden[now:], cell[now:]))
            hidden, cell = hidden[:now], cell[:now]
        hidden, cell = lstm_cell(gates + layer.hidden(hidden), cell, delta)
        outputs[step] = hidden
    ended.append((hidden, cell))
    last_hidden, last_cell = (torch.cat(parts) for parts in zip(*reversed(ended), strict=True))
    return torch.cat(outputs), last_hidden, last_cell
