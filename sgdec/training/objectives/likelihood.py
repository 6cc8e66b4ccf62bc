"""Maximum likelihood: the loss of a batch as an object with its settings, which model parallelism needs, too."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import Tensor

from sgdec.models.base import Model
from sgdec.training.data.batch import TrainingBatch
from sgdec.training.validation import batch_nll


@dataclass(frozen=True)
class Likelihood:
    """The sum of -ln P over the target tokens of a batch: GNMT (Wu et al. 2016), equation 7."""

    model: Model
    label_smoothing: float
    device: str
    precision: str
    """fp32, bf16 or fp64; bf16 is an autocast."""

    def __call__(self, batch: TrainingBatch) -> Tensor:
        with self.autocast():
            return batch_nll(self.model, batch.to(self.device), self.label_smoothing)

    def autocast(self) -> AbstractContextManager[object]:
        """A context in which products are computed in bf16 if that is the precision."""
        return torch.autocast(torch.device(self.device).type, torch.bfloat16, enabled=self.precision == "bf16")

    @property
    def dtype(self) -> torch.dtype:
        """The type of the outputs of layers."""
        return {"fp32": torch.float32, "bf16": torch.bfloat16, "fp64": torch.float64}[self.precision]
