"""Stacks of unidirectional LSTM layers, over all steps at once or step by step.

All steps at once are PyTorch's fused `torch.nn.LSTM`. A single step has the same gates (`lstm.py`), with products
that can be packed. Dropout acts on the inputs of layers, never on recurrent connections.
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
    """A stack of ``layers`` LSTM layers of ``width`` units, with dropout between them."""
    return nn.LSTM(inputs, width, layers, batch_first=True, dropout=dropout if layers > 1 else 0.0)


def single_layers(lstm: nn.LSTM) -> list[nn.LSTM]:
    """The layers of a stack, bottom first, as one-layer modules that share the stack's parameters."""
    layers = []
    for number in range(lstm.num_layers):
        layer = nn.LSTM(lstm.input_size if number == 0 else lstm.hidden_size, lstm.hidden_size, device="meta")
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            setattr(layer, f"{name}_l0", getattr(lstm, f"{name}_l{number}"))
        layer.flatten_parameters()  # one block of memory per layer, as cuDNN needs it
        layers.append(layer)
    return layers


class LSTMEncoder(Encoder):
    """A stack of LSTM layers that reads the source from left to right."""

    def __init__(self, embedding: int, width: int, layers: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.width = width
        self.lstm, self.dropout = make_lstm(embedding, width, layers, dropout), nn.Dropout(dropout)

    def forward(self, embedded: Tensor, mask: Tensor) -> Encoded:
        """Encode, including the last m and c of each layer; sources are packed, so padding costs nothing."""
        lengths = mask.sum(1).cpu()
        packed = pack_padded_sequence(self.dropout(embedded), lengths, batch_first=True, enforce_sorted=False)
        outputs, last = self.lstm(packed)
        values, _ = pad_packed_sequence(outputs, batch_first=True, total_length=mask.size(1))
        return Encoded(values, mask, torch.stack(last, 1).permute(2, 0, 1, 3))


class LSTMStack(Packable):
    """The LSTM layers of a decoder. The states are m and c, [R, layers, width] each."""

    def __init__(self, inputs: int, width: int, layers: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.lstm, self.dropout = make_lstm(inputs, width, layers, dropout), nn.Dropout(dropout)
        self._packed: list[Recurrence] | None = None

    def forward(self, x: Tensor, hidden: Tensor, cell: Tensor) -> Tensor:
        """The top layer's outputs [B, T, width] of all steps, for inputs x [B, T, K]."""
        first = hidden.transpose(0, 1).contiguous(), cell.transpose(0, 1).contiguous()
        outputs: Tensor = self.lstm(self.dropout(x), first)[0]
        return outputs

    def step(self, x: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """The new states after one step with input x [R, K]; the output is the top layer's m."""
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
