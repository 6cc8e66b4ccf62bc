"""Layers of LSTMs on different ranks, as a wavefront over time steps.

A step of a layer needs the previous step of the same layer and the same step of the layer below. So while layer 1 is
at step t, layer 2 can be at step t - 1, and layer 3 at t - 2. With one layer per rank, all ranks work at the same
time except at the beginning and the end (the arrows to the upper right in Figure 2 of Ono et al. 2019). Here the unit
is a *chunk* of several steps, so that matrix products are larger and messages fewer. A rank computes a chunk of its
layers as soon as it has received that chunk from the rank below. With R ranks and N chunks, all chunks take N + R - 1
times the time of one chunk.

Sentences are packed step by step (`torch.nn.utils.rnn.PackedSequence`): the rows of step t are the sentences that
have not ended yet, longest first. Nothing is computed or sent for padding.

Experimental: tried on the CPUs of one machine, never on several GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from sgdec.errors import UsageError
from sgdec.models.lstm import run_lstm, unpacked


class Packed:
    """Sentences [B, T] as rows, step by step; within a step the longest sentence first, then in the batch's order."""

    def __init__(self, tokens: Tensor, lengths: Tensor) -> None:
        """``tokens`` [B, T]; ``lengths`` [B] >= 1, beyond which there is padding."""
        self.order = torch.argsort(lengths.cpu(), descending=True, stable=True)  # [B] sentences, longest first
        self.places = torch.argsort(self.order)  # [B] the position of each sentence in that order
        self.lengths, self.steps = lengths.cpu()[self.order], tokens.size(1)
        packed = pack_padded_sequence(tokens[self.order], self.lengths, batch_first=True)
        self.tokens, self.batch_sizes = packed.data, packed.batch_sizes  # [rows]; rows of each step, falling from B
        self.sizes: list[int] = packed.batch_sizes.tolist()

    def __len__(self) -> int:
        return len(self.tokens)

    def chunks(self, steps: int) -> list[list[int]]:
        """The number of rows of each step, cut into chunks of this many steps."""
        return [self.sizes[first : first + steps] for first in range(0, len(self.sizes), steps)]

    def pack(self, padded: Tensor) -> Tensor:
        """[B, T, ...] to [rows, ...]."""
        return pack_padded_sequence(padded[self.order], self.lengths, batch_first=True).data

    def pad(self, rows: Tensor) -> Tensor:
        """[rows, ...] to [B, T, ...] with zeros at padding."""
        packed = PackedSequence(rows, self.batch_sizes)
        return pad_packed_sequence(packed, batch_first=True, total_length=self.steps)[0][self.places]

    def of_sentences(self, values: Tensor) -> Tensor:
        """[rows] for each row the value of its sentence, from values [B]."""
        return self.pack(values[:, None].expand(-1, self.steps))


def pad_chunk(rows: Tensor, sizes: Sequence[int]) -> Tensor:
    """[rows, ...] of a chunk to [sentences, steps, ...], zeros where a sentence has ended."""
    return pad_packed_sequence(PackedSequence(rows, torch.tensor(sizes)), batch_first=True)[0]


def pack_chunk(padded: Tensor, sizes: Sequence[int]) -> Tensor:
    """The inverse of `pad_chunk`."""
    lengths = torch.tensor([sum(size > row for size in sizes) for row in range(sizes[0])])
    return pack_padded_sequence(padded, lengths, batch_first=True).data


class LayerRun:
    """One layer that runs over packed sentences chunk by chunk, with its state between chunks."""

    def __init__(self, lstm: nn.LSTM, first: tuple[Tensor, Tensor], delta: float | None = None) -> None:
        """``first``: m and c [B, width] before the first step, longest sentence first; ``delta`` as in `lstm.py`."""
        self.lstm, self.delta = lstm, delta
        self._now = first
        self._ended: list[tuple[Tensor, Tensor]] = []

    def __call__(self, x: Tensor, sizes: Sequence[int]) -> Tensor:
        """The next chunk: [rows, K] to outputs [rows, width]."""
        hidden, cell = self._now
        if sizes[0] < len(hidden):  # some sentences ended with the chunk before
            self._ended.append((hidden[sizes[0] :], cell[sizes[0] :]))
            hidden, cell = hidden[: sizes[0]], cell[: sizes[0]]
        if self.delta is None:
            before = hidden[None].contiguous(), cell[None].contiguous()
            outputs, (hidden, cell) = self.lstm(PackedSequence(x, torch.tensor(sizes)), before)
            self._now = hidden[0], cell[0]
            chunk: Tensor = outputs.data
            return chunk
        rows, hidden, cell = run_lstm(unpacked(self.lstm)[0], x, sizes, (hidden, cell), self.delta)
        self._now = hidden, cell
        return rows

    def last(self) -> tuple[Tensor, Tensor]:
        """m and c [B, width] after each sentence's last step."""
        hidden, cell = (torch.cat(parts) for parts in zip(*reversed([*self._ended, self._now]), strict=True))
        return hidden, cell


def spread(layers: int, ranks: int, where: str, others: int = 0) -> list[range]:
    """The layers of each rank, counted from 0 at the bottom: consecutive layers, spread as evenly as possible.

    If an even spread is impossible, the lower ranks have one layer less, because the embeddings are there as well.
    Raises `UsageError` if a rank would have no layer. ``where``: the mode and model, for the message; ``others``: the
    number of ranks without layers.

    >>> spread(4, 3, "luong"), spread(4, 4, "luong")
    ([range(0, 1), range(1, 2), range(2, 4)], [range(0, 1), range(1, 2), range(2, 3), range(3, 4)])
    """
    if ranks > layers:
        raise UsageError(
            f"{where} {layers} layer{'s' * (layers != 1)} cannot be spread over {ranks} ranks. "
            f"Start {layers + others} ranks at most, or train with --parallel data."
        )
    ends = [layers * (rank + 1) // ranks for rank in range(ranks)]
    return [range(first, end) for first, end in zip([0, *ends], ends, strict=False)]
