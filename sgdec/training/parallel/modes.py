"""The models that can be spread over ranks with ``--parallel model`` and ``--parallel hybrid``."""

from __future__ import annotations

from sgdec.errors import UsageError
from sgdec.models.base import Model
from sgdec.models.gnmt import GNMT
from sgdec.models.luong import Luong
from sgdec.training.parallel.gnmt import GNMTModel
from sgdec.training.parallel.group import ProcessGroup
from sgdec.training.parallel.luong_modes import LuongHybrid, LuongModel
from sgdec.training.parallel.staged import Staged
from sgdec.training.parallel.strategy import Loss, Strategy

MODEL: dict[type[Model], type[Staged]] = {GNMT: GNMTModel, Luong: LuongModel}
HYBRID: dict[type[Model], type[Staged]] = {Luong: LuongHybrid}


def model_parallel(group: ProcessGroup, model: Model, loss: Loss) -> Strategy:
    """Each rank has some layers. Raises `UsageError` if this model or number of ranks does not allow it."""
    return _choose("model", MODEL, group, model, loss)


def hybrid_parallel(group: ProcessGroup, model: Model, loss: Loss) -> Strategy:
    """Each rank has some layers, and attention and softmax. Raises `UsageError` as `model_parallel` does."""
    return _choose("hybrid", HYBRID, group, model, loss)


def _choose(
    mode: str, modes: dict[type[Model], type[Staged]], group: ProcessGroup, model: Model, loss: Loss
) -> Strategy:
    name = type(model).__name__.lower()
    if type(model) not in modes:
        possible = ["data", *(other for other, has in (("model", MODEL), ("hybrid", HYBRID)) if type(model) in has)]
        able = ", ".join(sorted(kind.__name__.lower() for kind in modes))
        raise UsageError(
            f"--parallel {mode} works with {able} only. For {name} give --parallel {' or '.join(possible)}."
        )
    if group.size < 2:
        raise UsageError(f"--parallel {mode} needs at least 2 ranks. Start it with torchrun --nproc-per-node 2.")
    return modes[type(model)](group, model, loss)
