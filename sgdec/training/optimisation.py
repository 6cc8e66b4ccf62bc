"""The optimiser of GNMT section 8.3: Adam, then plain SGD; the learning rate is a function of the step.

The learning rate is that of the stage (Adam's or SGD's) times all of these factors:

- a linear rise from 0 over ``warmup`` steps
- sqrt(``inverse_sqrt`` / step) after ``inverse_sqrt`` steps
- 1/2 for each period of ``halve_every`` steps that has begun after ``anneal_after``
- ``plateau_factor`` for each plateau so far
- a linear fall to 0 over the share ``cooldown`` of the steps, at the end.

The paper uses Adam at 0.0002 for 60k steps, then SGD at 0.5, halved every 200k steps after 1.2M. Marian
(Junczys-Dowmunt et al. 2018, section 3.1.3) uses Adam at 0.0003 with ``warmup`` and ``inverse_sqrt`` of 16,000 steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from sgdec.errors import SgdecError
from sgdec.io.limits import whole_number
from sgdec.training.config import TrainConfig


def uses_sgd(config: TrainConfig, step: int) -> bool:
    """Whether a step (from 1) belongs to the SGD stage; refinement by expected reward uses SGD in all steps."""
    return config.objective == "expected-reward" or 0 < config.sgd_after < step


def learning_rate(config: TrainConfig, step: int, total_steps: int, plateaus: int = 0) -> float:
    """The learning rate of a step (from 1) in a run of ``total_steps``, after this many plateaus."""
    rate = config.sgd_lr if uses_sgd(config, step) else config.lr
    if step <= config.warmup:
        rate *= step / config.warmup
    if config.inverse_sqrt and step > config.inverse_sqrt:
        rate *= math.sqrt(config.inverse_sqrt / step)
    if config.halve_every and step > config.anneal_after:
        rate *= 0.5 ** ((step - config.anneal_after - 1) // config.halve_every + 1)
    falling = config.cooldown * total_steps
    if falling and step > total_steps - falling:
        rate *= max(0.0, (total_steps - step + 1) / falling)
    return rate * config.plateau_factor**plateaus


def make_optimizer(config: TrainConfig, parameters: Iterable[nn.Parameter], step: int) -> torch.optim.Optimizer:
    """The optimiser for the stage of ``step``; the trainer sets its learning rate before each step."""
    if uses_sgd(config, step):
        return torch.optim.SGD(parameters, lr=config.sgd_lr)
    betas, epsilon = (config.beta1, config.beta2), config.adam_epsilon
    adam = torch.optim.Adam(parameters, lr=config.lr, betas=betas, eps=epsilon, fused=True)
    for parameter in adam.param_groups[0]["params"]:  # allocated now, so that the remaining memory is for batches
        if parameter.requires_grad:
            adam.state[parameter] = {
                "step": torch.zeros((), device=parameter.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
    return adam


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's state under flat names, as safetensors needs them: ``3.exp_avg``."""
    state = optimizer.state_dict()["state"]
    return {f"{index}.{name}": value for index, values in state.items() for name, value in values.items()}


def require_whole(tensors: Mapping[str, Tensor], shapes: Sequence[torch.Size], where: str) -> None:
    """Raises SgdecError unless the tensors are Adam's complete state for some parameters of these ``shapes``."""
    memories: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        number = whole_number(key.partition(".")[0], len(shapes))
        if number is not None:
            memories.setdefault(number, {})[key.partition(".")[2]] = tensor
    sound = sum(map(len, memories.values())) == len(tensors) and all(
        memory.keys() == {"step", "exp_avg", "exp_avg_sq"}
        and memory["step"].numel() == 1
        and all(memory[name].shape == shapes[number] for name in ("exp_avg", "exp_avg_sq"))
        and all(tensor.is_floating_point() for tensor in memory.values())
        for number, memory in memories.items()
    )
    if not sound:
        raise SgdecError(
            f"{where}: not the state of this model's optimiser. The checkpoint is damaged: resume from another one."
        )


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """The inverse of `optimizer_tensors`."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        index, _, name = key.partition(".")
        state.setdefault(int(index), {})[name] = value
    optimizer.state.clear()  # frees the old state before the new one is loaded
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
