"""LSTM layers step by step, with the products separate from the gates: GNMT (Wu et al. 2016), equations 10 and 11.

PyTorch's fused `torch.nn.LSTM` is used wherever it can be. It cannot clip the cell inside a sequence, and knows no
products other than its own; then the steps are taken here, with the same gates

    c' = sigmoid(f) c + sigmoid(i) tanh(g)        c = max(-delta, min(delta, c'))        m = sigmoid(o) tanh(c)

from pre-activations ordered i, f, g, o as in `torch.nn.LSTM`, whose m this is (equation 11 has m = c sigmoid(o)). So
m is within [-1, 1], and within [-tanh(delta), tanh(delta)] where c is clipped.
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
    """The products of each direction, with the parameters as they are."""
    return [
        Recurrence(plain_linear(w_ih, b_ih), plain_linear(w_hh, b_hh)) for w_ih, w_hh, b_ih, b_hh in lstm.all_weights
    ]


def lstm_cell(gates: Tensor, cell: Tensor, delta: float | None) -> tuple[Tensor, Tensor]:
    """Pre-activations [B, 4 width] and cell [B, width] to the new output m and cell, clipped if there is a delta."""
    i, f, g, o = gates.chunk(4, -1)
    cell = torch.addcmul(torch.sigmoid(f) * cell, torch.sigmoid(i), tanh(g))
    if delta is not None:
        cell = cell.clamp(-delta, delta)
    return torch.sigmoid(o) * tanh(cell), cell


def tanh(x: Tensor) -> Tensor:
    """tanh x = 2 sigmoid(2 x) - 1: on a CPU, where PyTorch's sigmoid is several times as fast as its tanh.

    Not in 16 bits: there the difference from 1/2 is lost where x is small.
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
    """A layer over sequences packed step by step: outputs [tokens, width], and the last m and c [B, width].

    ``x`` [tokens, K] holds, step after step, the rows that are not yet at their end: ``sizes`` of them, falling from
    B (a `torch.nn.utils.rnn.PackedSequence`). ``first``: m and c [B, width] before. In reverse the steps are taken
    from the end of each row to its beginning.
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
