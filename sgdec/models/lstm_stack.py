"""Stacks of LSTM layers, one direction, in a stride or step by step.

In a stride they are PyTorch's fused `torch.nn.LSTM`; a step has the same gates (`lstm.py`), from products that can be
packed. Dropout acts on what enters a layer, never on recurrent connections.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from sgdec.models.encoder_decoder import Encoded, Encoder
from sgdec.models.kernels import Kernels
from sgdec.models.layers import Packable
from sgdec.models.lstm import Recurrence, lstm_cell, unpacked


def make_lstm(inputs: int, width: int, layers: int, dropout: float) -> nn.LSTM:
    """``layers`` of ``width`` units above each other, with dropout between them."""
    return nn.LSTM(inputs, width, layers, batch_first=True, dropout=dropout if layers > 1 else 0.0)


def single_layers(lstm: nn.LSTM) -> list[nn.LSTM]:
    """The layers of a stack, bottom first, as modules of one layer that have the stack's own parameters."""
    layers = []
    for number in range(lstm.num_layers):
        layer = nn.LSTM(lstm.input_size if number == 0 else lstm.hidden_size, lstm.hidden_size, device="meta")
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            setattr(layer, f"{name}_l0", getattr(lstm, f"{name}_l{number}"))
        layer.flatten_parameters()  # one piece of memory for each, as cuDNN wants it
        layers.append(layer)
    return layers


class LSTMEncoder(Encoder):
    """From left to right."""

    def __init__(self, embedding: int, width: int, layers: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.width = width
        self.lstm, self.dropout = make_lstm(embedding, width, layers, dropout), nn.Dropout(dropout)

    def forward(self, embedded: Tensor, mask: Tensor) -> Encoded:
        """With the last m and c of each layer; padding is packed away, nothing is computed for it."""
        lengths = mask.sum(1).cpu()
        packed = pack_padded_sequence(self.dropout(embedded), lengths, batch_first=True, enforce_sorted=False)
        outputs, last = self.lstm(packed)
        values, _ = pad_packed_sequence(outputs, batch_first=True, total_length=mask.size(1))
        return Encoded(values, mask, torch.stack(last, 1).permute(2, 0, 1, 3))


class LSTMStack(Packable):
    """The layers of a decoder. Its states are m and c, [R, layers, width] each."""

    def __init__(self, inputs: int, width: int, layers: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.lstm, self.dropout = make_lstm(inputs, width, layers, dropout), nn.Dropout(dropout)
        self._packed: list[Recurrence] | None = None

    def forward(self, x: Tensor, hidden: Tensor, cell: Tensor) -> Tensor:
        """All steps: x [B, T, K] to the top layer's outputs [B, T, width]."""
        first = hidden.transpose(0, 1).contiguous(), cell.transpose(0, 1).contiguous()
        outputs: Tensor = self.lstm(self.dropout(x), first)[0]
        return outputs

    def step(self, x: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """One step: x [R, K] to the new states; the output is the top layer's m."""
        new = []
        layers = unpacked(self.lstm) if self._packed is None else self._packed
        for layer, m, c in zip(layers, hidden.unbind(1), cell.unbind(1), strict=True):
            m, c = lstm_cell(layer.inputs(self.dropout(x)) + layer.hidden(m), c, None)
            new.append((m, c))
            x = m
        ms, cs = zip(*new, strict=True)
        return torch.stack(ms, 1), torch.stack(cs, 1)

    def pack(self, kernels: Kernels) -> None:
        self._packed = [
            Recurrence(kernels.linear(w_ih, b_ih + b_hh), kernels.linear(w_hh))
            for w_ih, w_hh, b_ih, b_hh in self.lstm.all_weights
        ]
