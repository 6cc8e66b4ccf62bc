"""A batch: examples of similar lengths as padded tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from sgdec.context import BOS, EOS

STAND_IN = 0
"""The line number of a placeholder example, which has weight 0: no share of a batch may be empty."""


class TrainingBatch(NamedTuple):
    """Some examples; the positions beyond a line's length are padding."""

    source: Tensor | None
    """[B, S] without ``<s>`` and ``</s>``; None for a language model"""
    lengths: Tensor | None
    """[B] tokens of each source, on the CPU; None for a language model"""
    target_in: Tensor
    """[B, T] ``<s> y_1 ... y_n``"""
    target_out: Tensor
    """[B, T] ``y_1 ... y_n </s>``"""
    mask: Tensor
    """[B, T] true where there is a target token"""
    lines: list[int]
    """[B] line numbers from 1, in the files"""
    weights: Tensor | None = None
    """[B, T] weights of the target tokens in the objective (`weights.py`); None: 1 each"""

    @property
    def weight(self) -> Tensor:
        """The sum of the weights of all target tokens, by which the update's mean loss is divided."""
        return self.mask.sum() if self.weights is None else self.weights[self.mask].sum()

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The arguments of a model's ``forward``."""
        if self.source is None or self.lengths is None:
            return (self.target_in,)
        return self.source, self.lengths, self.target_in

    def to(self, device: str) -> TrainingBatch:
        """The batch on a device; the lengths stay on the CPU, where PyTorch's packing needs them."""
        source = None if self.source is None else self.source.to(device)
        weights = None if self.weights is None else self.weights.to(device)
        moved = {name: getattr(self, name).to(device) for name in ("target_in", "target_out", "mask")}
        return self._replace(source=source, weights=weights, **moved)


def make_batch(
    lines: list[int], targets: Sequence[Sequence[int]], sources: Sequence[Sequence[int]] = ()
) -> TrainingBatch:
    """The tensors of some examples; no sources are given for a language model."""
    source, lengths = pad(sources) if sources else (None, None)
    return TrainingBatch(source, lengths, *pad_targets(targets), lines)


def take(batch: TrainingBatch, rows: Sequence[int]) -> TrainingBatch:
    """The batch of these rows, with as little padding as they need."""
    chosen = torch.tensor(rows)
    width = int(batch.mask[chosen].sum(1).max())
    source, lengths = batch.source, batch.lengths
    if source is not None and lengths is not None:
        lengths = lengths[chosen]
        source = source[chosen, : int(lengths.max())]
    return TrainingBatch(
        source,
        lengths,
        batch.target_in[chosen, :width],
        batch.target_out[chosen, :width],
        batch.mask[chosen, :width],
        [batch.lines[row] for row in rows],
        None if batch.weights is None else batch.weights[chosen, :width],
    )


def pad_targets(targets: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor, Tensor]:
    """``target_in``, ``target_out`` and ``mask`` of a `TrainingBatch`."""
    target_in, lengths = pad([[BOS, *target] for target in targets])
    target_out, _ = pad([[*target, EOS] for target in targets])
    return target_in, target_out, torch.arange(target_in.size(1)) < lengths[:, None]


def pad(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Rows of ids as [B, longest], padded with ``</s>``, and their lengths [B].

    >>> pad([[5], [6, 7]])[0].tolist()
    [[5, 2], [6, 7]]
    """
    lengths = torch.tensor([len(row) for row in rows])
    longest = int(lengths.max())
    return torch.tensor([[*row, *[EOS] * (longest - len(row))] for row in rows]), lengths
