"""The exponential moving average of the weights (Marian, Junczys-Dowmunt et al. 2018, section 3.1.3).

After update t the average is (1 - s) x average + s x weights, with s = max(share, 9 / (t + 10)). At first the average
follows quickly, as in Marian's code, so the random initial weights soon have no influence. It needs a second copy of
the weights and one pass over them per update.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from sgdec.checkpoints.loading import model_tensors
from sgdec.models.base import Model


class MovingAverage:
    """The average of a model's weights; it starts as a copy of the current weights."""

    def __init__(self, model: Model, share: float) -> None:
        """``share``: the smallest s, the share of one update's weights in the average."""
        self.share = share
        self.tensors = {name: tensor.clone() for name, tensor in model_tensors(model).items()}
        self._learnt = {name for name, _ in model.named_parameters()}

    @torch.no_grad()
    def update(self, model: Model, step: int) -> None:
        """Add the weights after update ``step`` (from 1); tensors that are stored but not learnt are copied."""
        share = max(self.share, 9 / (step + 10))
        for name, tensor in model_tensors(model).items():
            if name in self._learnt:
                self.tensors[name].lerp_(tensor, share)
            else:
                self.tensors[name].copy_(tensor)

    @contextmanager
    def inside(self, model: Model) -> Iterator[None]:
        """Inside the block the model has the averaged weights; after it, exactly its own again."""
        own = {name: tensor.clone() for name, tensor in model_tensors(model).items()}
        model.load_state_dict(self.tensors, strict=False)
        try:
            yield
        finally:
            model.load_state_dict(own, strict=False)
