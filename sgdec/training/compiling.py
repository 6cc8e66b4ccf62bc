"""``--compile``: torch.compile turns the forward and backward pass of training into fused kernels for all lengths.

Only the pass over whole batches is compiled. The search of validation and decoding use the uncompiled model. The
results differ from those of an uncompiled run by rounding only; dropout draws the same numbers. The first steps take
half a minute or more. On a CPU this time is not regained: there, large matrix products and the softmax take most of
the time, and compilation does not make them faster. `benchmarks/compiling.py` measures this.
"""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec

import torch

from sgdec.errors import UsageError
from sgdec.models.base import Model
from sgdec.training.config import TrainConfig


def compile_model(model: Model, config: TrainConfig) -> None:
    """Have ``model(...)`` compiled when it is first called; its weights and their names do not change.

    Raises `UsageError` if there is no C++ compiler, or no triton for a GPU.
    """
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        raise UsageError(
            f"--compile needs a C++ compiler, and there is no {compiler}. Install one, or leave the option out."
        )
    if torch.device(config.device).type == "cuda" and find_spec("triton") is None:
        raise UsageError("--compile on a GPU needs the package triton. Install it, or leave the option out.")
    model.compile(dynamic=True, options={"fallback_random": True})  # dropout draws as in the uncompiled model
