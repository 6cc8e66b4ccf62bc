"""The optimiser's state in a checkpoint: that of the whole model, under the numbers of the model's parameters."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from sgdec.training.optimisation import optimizer_tensors, restore_optimizer
from sgdec.training.parallel.strategy import Strategy


def collect_memory(strategy: Strategy, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """On rank 0, the `optimizer_tensors` of a single process (``3.exp_avg``); empty on other ranks. Collective."""
    owned, numbers = list(strategy.owned), _numbers(strategy)
    pieces: dict[str, dict[str, Tensor]] = {}
    for key, tensor in optimizer_tensors(optimizer).items():
        number, _, what = key.partition(".")
        pieces.setdefault(what, {})[owned[int(number)]] = tensor
    memory = {}
    for what in sorted(set().union(*strategy.group.agree(list(pieces)))):  # a rank may own no parameters
        for name, tensor in strategy.collect(pieces.get(what, {})).items():
            memory[f"{numbers[name]}.{what}"] = tensor
    return memory


def restore_memory(strategy: Strategy, optimizer: torch.optim.Optimizer, memory: Mapping[str, Tensor]) -> None:
    """Restore this rank's part of the tensors from `collect_memory` in its optimiser."""
    owned = {name: number for number, name in enumerate(strategy.owned)}
    names = {number: name for name, number in _numbers(strategy).items()}
    whole: dict[str, dict[str, Tensor]] = {}
    for key, tensor in memory.items():
        number, _, what = key.partition(".")
        whole.setdefault(what, {})[names[int(number)]] = tensor
    mine = {}
    for what, tensors in whole.items():
        for name, tensor in strategy.pieces(tensors).items():
            mine[f"{owned[name]}.{what}"] = tensor
    restore_optimizer(optimizer, mine)


def _numbers(strategy: Strategy) -> dict[str, int]:
    """The index of each parameter in the model, by name."""
    return {name: number for number, (name, _) in enumerate(strategy.model.named_parameters())}
