"""One update of the weights: the gradient of a batch, or of several together, clipped; then the optimiser's step.

The gradient is that of the mean loss of a target token over *all* batches of the update. A mean of the batches' means
would give tokens of small batches more weight; so an update of several batches is that of one large batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

from sgdec.errors import SgdecError
from sgdec.models.base import Model
from sgdec.training import checkpoint
from sgdec.training.config import TrainConfig
from sgdec.training.data import Batch
from sgdec.training.moving_average import MovingAverage
from sgdec.training.optimisation import make_optimizer, optimizer_tensors, restore_optimizer, uses_sgd
from sgdec.training.validation import batch_nll

OPTIMIZER, RAW = "optimizer.safetensors", "raw.safetensors"
LINES_SHOWN = 100
"""Line numbers in an error: enough for most batches, so that a bad line can be looked for."""


class Updater:
    """A model in training, with its optimiser and, if asked for, the moving average of its weights."""

    def __init__(self, config: TrainConfig, model: Model, precision: str, *, total_steps: int, step: int = 0) -> None:
        """``step``: updates made so far, of ``total_steps``; ``precision``: not auto."""
        self.config, self.model, self.precision, self.total_steps = config, model, precision, total_steps
        self.optimizer = make_optimizer(config, model.parameters(), step + 1)
        self.average = MovingAverage(model, config.ema) if config.ema else None

    def update(self, batches: Sequence[Batch], step: int, rate: float) -> tuple[float, float]:
        """Make update ``step`` (from 1): mean loss of a target token, and the norm of the gradient before clipping.

        Raises `SgdecError`, with the weights left as they were, where one of them is not finite.
        """
        config = self.config
        if config.sgd_after and step == config.sgd_after + 1:
            self.optimizer = make_optimizer(config, self.model.parameters(), step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        torch.manual_seed(hash_seed(config.seed, step))
        self.model.anneal((step - 1) / max(1, self.total_steps - 1))
        self.model.train()
        losses = self._backward(batches)
        gradient = torch.nn.utils.clip_grad_norm_(self.model.parameters(), config.clip)
        values, norm = [loss.item() for loss in losses], gradient.item()
        if not (math.isfinite(sum(values)) and math.isfinite(norm)):
            raise self._not_finite(batches, values, norm, step)
        self.optimizer.step()
        if self.average is not None:
            self.average.update(self.model, step)
        return sum(values), norm

    def _backward(self, batches: Sequence[Batch]) -> list[torch.Tensor]:
        """Fill the gradients; what each batch adds to the mean loss of a token."""
        config = self.config
        device = torch.device(config.device)
        tokens = torch.stack([batch.mask.sum() for batch in batches]).sum().to(device)
        self.optimizer.zero_grad()
        losses = []
        for batch in batches:
            with torch.autocast(device.type, torch.bfloat16, enabled=self.precision == "bf16"):
                loss = batch_nll(self.model, batch.to(config.device), config.label_smoothing) / tokens
            loss.backward()  # type: ignore[no-untyped-call]
            losses.append(loss.detach())
        return losses

    def _not_finite(self, batches: Sequence[Batch], values: Sequence[float], norm: float, step: int) -> SgdecError:
        """What went wrong where, and from where one can go on."""
        loss, guilty = sum(values), batches
        if math.isfinite(loss):
            what = f"the gradient's norm is {norm}"
        else:
            what = f"the loss is {loss}"
            bad = [batch for batch, value in zip(batches, values, strict=True) if not math.isfinite(value)]
            guilty = bad or batches
        numbers = sorted(line for batch in guilty for line in batch.lines)
        lines = ", ".join(map(str, numbers[:LINES_SHOWN])) + (", ..." if len(numbers) > LINES_SHOWN else "")
        last = Path(self.config.output) / "last"
        good = f"the last good checkpoint is {last.resolve()}" if last.exists() else "there is no checkpoint yet"
        return SgdecError(
            f"step {step}: {what}, on lines {lines} of {' and '.join(self.config.train)}. Nothing was updated or "
            f"saved; {good}. Look at these lines, or train anew with a lower --lr or --clip."
        )

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """In the block the model has its averaged weights, if there are such."""
        if self.average is None:
            yield
        else:
            with self.average.inside(self.model):
                yield

    def save(self, folder: Path) -> None:
        """Write the weights to use, and what `restore` needs besides."""
        weights = checkpoint.model_tensors(self.model)
        if self.average is not None:
            checkpoint.save_tensors(folder / RAW, weights)
            weights = self.average.tensors
        checkpoint.save_tensors(folder / checkpoint.WEIGHTS, weights)
        checkpoint.save_tensors(folder / OPTIMIZER, optimizer_tensors(self.optimizer))

    def restore(self, folder: Path, step: int) -> None:
        """Take up the weights, the average and the optimiser that `save` wrote after update ``step``."""
        checkpoint.load_weights(self.model, folder / checkpoint.WEIGHTS)
        if self.average is not None:
            self.average = MovingAverage(self.model, self.config.ema)
            checkpoint.load_weights(self.model, folder / RAW)
        if uses_sgd(self.config, step + 1) == uses_sgd(self.config, step):
            restore_optimizer(self.optimizer, checkpoint.load_tensors(folder / OPTIMIZER))


def hash_seed(seed: int, step: int) -> int:
    """The seed of a step's dropout: far apart for neighbours.

    >>> hash_seed(1, 2) == hash_seed(1, 2), hash_seed(1, 2) == hash_seed(2, 1)
    (True, False)
    """
    return int(np.random.SeedSequence((seed, step)).generate_state(1, np.uint64)[0] >> np.uint64(1))
