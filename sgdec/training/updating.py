"""One update of the weights: the gradient of one or several batches, clipped, and then the optimiser's step.

The gradient is that of the mean loss per target token over *all* batches of the update. So an update of several
batches equals that of one large batch; a mean of the batches' means would give the tokens of small batches more
weight. If tokens have weights (`weights.py`), the mean is weighted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from sgdec.checkpoints import files, layout, loading
from sgdec.errors import SgdecError
from sgdec.models.base import Model
from sgdec.search.memory import is_out_of_memory
from sgdec.training.config import TrainConfig
from sgdec.training.data.batch import TrainingBatch
from sgdec.training.data.budget import TokenCounts
from sgdec.training.data.seeds import hash_seed
from sgdec.training.device import set_seed
from sgdec.training.moving_average import MovingAverage
from sgdec.training.objectives.expected_reward import ExpectedReward
from sgdec.training.objectives.likelihood import Likelihood
from sgdec.training.optimisation import make_optimizer, require_whole, uses_sgd
from sgdec.training.out_of_memory import IN_A_ROW, Splitter, way_out
from sgdec.training.parallel.group import ProcessGroup
from sgdec.training.parallel.memory import collect_memory, restore_memory
from sgdec.training.parallel.strategy import Loss, make_strategy
from sgdec.training.run.resuming import last_good

OPTIMIZER, RAW = "optimizer.safetensors", "raw.safetensors"
LINES_SHOWN = 100
"""Limit on the line numbers in an error; most batches have fewer lines."""


class Updater:
    """A model in training, with its optimiser and, if asked for, the moving average of its weights."""

    def __init__(
        self,
        config: TrainConfig,
        model: Model,
        precision: str,
        *,
        total_steps: int,
        step: int = 0,
        group: ProcessGroup | None = None,
    ) -> None:
        """``step``: updates made so far, of ``total_steps``; ``precision``: not auto; ``group``: the run's ranks.

        If the group has several ranks, each makes an updater and calls its methods in the same order.
        """
        self.config, self.model, self.precision, self.total_steps = config, model, precision, total_steps
        self.step = step
        self.expected_reward = ExpectedReward(config) if config.objective == "expected-reward" else None
        self.strategy = make_strategy(config.parallel, group or ProcessGroup(), model, self._loss())
        self.optimizer = make_optimizer(config, self.strategy.owned.values(), step + 1)
        self.average = MovingAverage(model, config.ema) if config.ema else None
        self.splitter = Splitter(TokenCounts(math.inf))
        self.made_of: Sequence[TrainingBatch] = []
        """The batches of the last update, after splitting to fit in memory; empty if it was skipped."""

    def update(self, batches: Sequence[TrainingBatch], step: int, rate: float) -> tuple[float, float]:
        """Make update ``step`` (from 1).

        Returns the mean loss per target token and the norm of the gradient before clipping. If no example fits in
        memory, the update is skipped: both are NaN and no weight changes. Raises `SgdecError`, without changing the
        weights, if loss or norm is not finite, and after `IN_A_ROW` skipped updates in a row.
        """
        config = self.config
        if config.sgd_after and step == config.sgd_after + 1:
            self.optimizer = make_optimizer(config, self.strategy.owned.values(), step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.step = step
        self.model.anneal(math.inf if config.start else step - 1, self.total_steps - 1)
        self.model.train()
        batches, losses = self._backward(batches)
        self.made_of = batches
        if not batches:
            self._skip(step)
            return math.nan, math.nan
        gradient = self.strategy.gradient_norm()
        torch.nn.utils.clip_grads_with_norm_(self.strategy.owned.values(), config.clip, gradient)
        values, norm = [loss.item() for loss in losses], gradient.item()
        if not (math.isfinite(sum(values)) and math.isfinite(norm)):
            raise self._not_finite(batches, values, norm, step)
        self.optimizer.step()
        if self.average is not None:
            self.average.update(self.model, step)
        return sum(values), norm

    def _backward(self, batches: Sequence[TrainingBatch]) -> tuple[list[TrainingBatch], list[torch.Tensor]]:
        """Fill the gradients.

        Returns the batches, split to fit in memory, and the share of each in the mean loss per token. Both lists are
        empty if no example fits in memory.
        """
        while parts := self.splitter.split(batches):
            tokens = torch.stack([batch.weight for batch in parts]).sum().to(self.config.device)
            set_seed(self.strategy.seed(hash_seed(self.config.seed, self.step)), self.config.device)
            self.optimizer.zero_grad()
            try:
                return parts, self.strategy.backward(parts, tokens)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
            if self.config.parallel != "none":
                raise SgdecError(
                    f"step {self.step}: out of memory. With --parallel no batch is split. Use --resume on machines "
                    "with more memory, or train again with smaller --batch-tokens or --batch-pairs."
                )
            self.optimizer.zero_grad()  # removes the gradients of the failed attempt
            if self.config.device != "cpu":
                torch.cuda.empty_cache()
            if self.expected_reward is not None:
                self.expected_reward.collect()  # the repeated update collects these rewards again
            assert self.strategy.current is not None
            self.splitter.shrink(self.strategy.current, self.step)
        return [], []

    def _skip(self, step: int) -> None:
        """Record an update without examples. Raises `SgdecError` if the last `IN_A_ROW` updates were all skipped."""
        self.splitter.skip(step)
        row = min(IN_A_ROW, self.total_steps)
        if self.splitter.skipped[-row:] == [*range(step - row + 1, step + 1)]:
            raise SgdecError(
                f"step {step}: no example of the last {row} updates fit in memory; "
                + way_out(Path(self.config.output), "a smaller model, or a smaller --max-line")
            )

    def _loss(self) -> Loss:
        """The loss of a batch: the sum over its target tokens, or minus the objective of its pairs."""
        config, reward = self.config, self.expected_reward
        likelihood = Likelihood(self.model, config.label_smoothing or 0.0, config.device, self.precision)
        if reward is None:
            return likelihood

        def rewarded(batch: TrainingBatch) -> torch.Tensor:
            with likelihood.autocast():
                return reward.loss(self.model, batch.to(config.device), self.step)

        return rewarded

    def _not_finite(
        self, batches: Sequence[TrainingBatch], values: Sequence[float], norm: float, step: int
    ) -> SgdecError:
        """The error for a loss or norm that is not finite; names the lines and the last good checkpoint."""
        loss, guilty = sum(values), batches
        if math.isfinite(loss):
            what = f"the gradient's norm is {norm}"
        else:
            what = f"the loss is {loss}"
            bad = [batch for batch, value in zip(batches, values, strict=True) if not math.isfinite(value)]
            guilty = bad or batches
        numbers = sorted(line for batch in guilty for line in batch.lines)
        lines = ", ".join(map(str, numbers[:LINES_SHOWN])) + (", ..." if len(numbers) > LINES_SHOWN else "")
        return SgdecError(
            f"step {step}: {what}, on lines {lines} of {' and '.join(self.config.train)}. Nothing was updated or "
            f"saved; {last_good(Path(self.config.output))}. Look at these lines, or train again with a lower --lr or "
            "--clip."
        )

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Inside the block the model has its averaged weights, if there are any; on rank 0 they are complete."""
        self._complete()
        if self.average is None:
            yield
        else:
            with self.average.inside(self.model):
                yield

    def collect(self) -> Callable[[Path], None]:
        """Collect all tensors of a checkpoint; returns a function that writes them to a folder, for rank 0."""
        self._complete()
        memory = collect_memory(self.strategy, self.optimizer)

        def save(folder: Path) -> None:
            weights = loading.model_tensors(self.model)
            if self.average is not None:
                files.save_tensors(folder / RAW, weights)
                weights = self.average.tensors
            files.save_tensors(folder / layout.WEIGHTS, weights)
            files.save_tensors(folder / OPTIMIZER, memory)

        return save

    @torch.no_grad()
    def _complete(self) -> None:
        """Copy the weights and averages that other ranks own to the model of rank 0."""
        for tensors in [loading.model_tensors(self.model)] + ([self.average.tensors] if self.average else []):
            for name, tensor in self.strategy.collect(self.strategy.pieces(tensors)).items():
                if tensor is not tensors[name]:
                    tensors[name].copy_(tensor)

    def restore(self, folder: Path, step: int) -> None:
        """Load the weights, the average and the optimiser's state that were saved after update ``step``."""
        loading.load_weights(self.model, folder / layout.WEIGHTS)
        if self.average is not None:
            self.average = MovingAverage(self.model, self.config.ema)
            loading.load_weights(self.model, folder / RAW)
        if uses_sgd(self.config, step + 1) == uses_sgd(self.config, step):
            memory = files.load_tensors(folder / OPTIMIZER)
            require_whole(memory, [parameter.shape for parameter in self.model.parameters()], str(folder / OPTIMIZER))
            restore_memory(self.strategy, self.optimizer, memory)
