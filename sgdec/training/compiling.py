"""``--compile``: the passes of training made into fused kernels by torch.compile, for lengths of any size.

Only the pass over whole batches is compiled: validation's search and decoding take the model as it is. Numbers differ
from those without by rounding alone, dropout has the same draws. The first steps take half a minute or more. On a CPU
that is not won back: there large products and the softmax take the time, which libraries make as fast.
`benchmarks/compiling.py` measures it.
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
    """Have ``model(...)`` compiled when it is first called; its weights and their names stay as they are.

    Raises `UsageError` if that cannot work.
    """
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        raise UsageError(
            f"--compile takes a C++ compiler, and there is no {compiler}. Install one, or leave the option out."
        )
    if torch.device(config.device).type == "cuda" and find_spec("triton") is None:
        raise UsageError("--compile on a GPU takes the package triton. Install it, or leave the option out.")
    model.compile(dynamic=True, options={"fallback_random": True})  # the draws of dropout without compilation
