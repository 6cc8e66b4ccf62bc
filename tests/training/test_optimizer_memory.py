"""A damaged memory of the optimiser is one line before training goes on, not an exception in an update."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from sgdec.errors import SgdecError
from sgdec.training.optimisation import optimizer_tensors, require_whole, restore_optimizer

Memory = dict[str, Tensor]


def model_and_memory() -> tuple[nn.Linear, Memory]:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    return model, optimizer_tensors(optimizer)


def check(model: nn.Module, memory: Memory) -> None:
    require_whole(memory, [parameter.shape for parameter in model.parameters()], "run/last/optimizer.safetensors")


def test_what_adam_remembers_is_whole_and_goes_on() -> None:
    model, memory = model_and_memory()
    check(model, memory)
    check(model, {key: tensor for key, tensor in memory.items() if key.startswith("0.")})  # one had no gradient
    check(model, {})  # plain SGD remembers nothing
    optimizer = torch.optim.Adam(model.parameters())
    restore_optimizer(optimizer, memory)
    optimizer.step()


DAMAGE: dict[str, Callable[[Memory], object]] = {
    "a part is missing": lambda memory: memory.pop("0.exp_avg"),
    "the step is missing": lambda memory: memory.pop("1.step"),
    "a part too many": lambda memory: memory.update({"0.more": torch.zeros(2, 3)}),
    "no such parameter": lambda memory: memory.update({"2.exp_avg": torch.zeros(2)}),
    "no number": lambda memory: memory.update({"first.exp_avg": torch.zeros(2)}),
    "negative": lambda memory: memory.update({"-1.exp_avg": memory.pop("0.exp_avg")}),
    "of another shape": lambda memory: memory.update({"0.exp_avg_sq": torch.zeros(3, 2)}),
    "several steps": lambda memory: memory.update({"0.step": torch.ones(2)}),
    "whole numbers": lambda memory: memory.update({"1.exp_avg": torch.zeros(2, dtype=torch.long)}),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_whatever_is_wrong_is_said_of_the_file(damage: str) -> None:
    model, memory = model_and_memory()
    DAMAGE[damage](memory)
    with pytest.raises(
        SgdecError, match=r"^run/last/optimizer.safetensors: not the state of this model"
    ):
        check(model, memory)
