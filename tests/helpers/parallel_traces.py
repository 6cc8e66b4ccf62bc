"""Updates made by one process and by several, to be compared: the losses, and every gradient before clipping."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from sgdec.models.base import Model
from sgdec.training.config import TrainConfig
from sgdec.training.data.batch import TrainingBatch
from sgdec.training.parallel.group import ProcessGroup
from sgdec.training.parallel.strategy import Strategy
from sgdec.training.updating import Updater


@dataclass
class Trace:
    """What updates did."""

    losses: list[float] = field(default_factory=list)
    gradients: list[dict[str, Tensor]] = field(default_factory=list)
    """Of the whole model, by the parameters' names; on ranks other than 0 empty."""
    weights: dict[str, Tensor] = field(default_factory=dict)
    """In the end, averaged ones if there are such."""


def trace(
    config: TrainConfig,
    model: Model,
    updates: Sequence[Sequence[TrainingBatch]],
    group: ProcessGroup | None = None,
    strategy: type[Strategy] | None = None,
) -> Trace:
    """Make updates of these batches. ``strategy``: another than the config's."""
    updater = Updater(config, model, config.precision, total_steps=len(updates), group=group)
    if strategy is not None:
        updater.strategy = strategy(updater.strategy.group, model, updater.strategy.loss)
    made = Trace()
    norm = updater.strategy.gradient_norm

    def watch() -> Tensor:
        own = {name: p.grad.clone() for name, p in updater.strategy.owned.items() if p.grad is not None}
        made.gradients.append(updater.strategy.collect(own))
        return norm()

    updater.strategy.gradient_norm = watch  # type: ignore[method-assign]
    for step, batches in enumerate(updates, start=1):
        loss, _ = updater.update(batches, step, config.lr)
        made.losses.append(loss)
    with updater.averaged(), torch.no_grad():
        made.weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    return made


def difference(one: Trace, other: Trace) -> dict[str, float]:
    """The largest differences of losses, gradients and weights, relative to the largest loss, gradient and weight."""
    assert [grads.keys() for grads in one.gradients] == [grads.keys() for grads in other.gradients]
    return {
        "losses": max(abs(a - b) / abs(a) for a, b in zip(one.losses, other.losses, strict=True)),
        "gradients": max(map(_relative, one.gradients, other.gradients)),
        "weights": _relative(one.weights, other.weights),
    }


def _relative(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> float:
    most = max(float((tensor - other[name]).abs().max()) for name, tensor in one.items())
    return most / max(float(tensor.abs().max()) for tensor in one.values())
