"""The rows of a back-off model, computed on the device that holds a neural model's scores.

A row of 32,000 scores that is made on the host has to be copied to the device to be added there. Here the n-grams are
copied to the device once; a batch then copies only the nodes of its histories, a few numbers per row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sgdec_predictors.ngrams.backoff import BackoffTable


class DeviceRows:
    """The rows of `BackoffTable.rows`, bit-equal, as a tensor."""

    def __init__(self, table: BackoffTable, device: str) -> None:
        self._table, self._device = table, device
        self._base, self._scores = self._put(table.base), self._put(table.scores)
        self._last = self._put(table.last.astype(np.int64))
        self._doubles, self._originals = self._put(table.doubles), self._put(table.originals)

    @torch.inference_mode()
    def rows(self, histories: Sequence[int]) -> Tensor:
        """``[rows, columns]``: ln p of every column after each history."""
        handed_on, overlays = self._table.overlays(histories)
        out = self._base + self._put(handed_on)[:, None]  # [rows, width]
        for nodes, backoff in overlays:
            first, lengths = self._table.ranges(nodes)
            total = int(lengths.sum())  # known on the host, which avoids waiting for the device
            rows = torch.arange(len(nodes), device=self._device)
            rows = rows.repeat_interleave(self._put(lengths), output_size=total)
            starts = self._put(first - (np.cumsum(lengths) - lengths))
            listed = starts[rows] + torch.arange(total, device=self._device)
            out[rows, self._last[listed]] = self._scores[listed] + self._put(backoff)[rows]
        if len(self._doubles):
            out[:, self._doubles] = out[:, self._originals]
        return out[:, : self._table.columns]

    def _put(self, array: npt.NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self._device)
