"""Quantised checkpoints: like others (`sgdec.checkpoints.layout`), but for

    model.safetensors    8-bit weights and their scales in place of those that the products need
    config.json          ``quantised``: ``bounds``, the range of each product's inputs, and ``from``, the original

They load in precision int8 only, on a CPU; others never load in int8.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from sgdec.checkpoints import files, layout, loading
from sgdec.errors import SgdecError
from sgdec.models.base import Model
from sgdec.models.quantisation import Int8Kernels
from sgdec.plugins.host import Host

SECTION = "quantised"
"""The key of config.json that only these checkpoints have."""


def load_quantised(
    folder: Path,
    config: Mapping[str, Any],
    *,
    host: Host | None = None,
    joint: bool = False,
) -> Model:
    """The model of a quantised checkpoint, ready to predict; ``joint`` as in `loading.load_model`.

    Raises `SgdecError`, naming the file.
    """
    file = folder / layout.WEIGHTS
    if SECTION not in config:
        raise SgdecError(
            f"{folder}: --precision int8 needs a quantised model, which this is not. "
            f"Quantise it first: sgdec quantize {folder} --output FOLDER."
        )
    bounds = checkpoint_bounds(config[SECTION], str(folder / layout.CONFIG))
    with torch.device("meta"):  # the replaced parameters stay there, without memory
        model = loading.build_model(config, where=str(folder / layout.CONFIG), host=host, weights=file)
    tensors = files.load_tensors(file)
    products = {name for name in tensors if name.startswith(model.replaced)}
    rest = {name: tensor for name, tensor in tensors.items() if name not in products}
    loading.fill(model, rest, str(file), assign=True)
    kernels = Int8Kernels({name: tensors[name] for name in products}, bounds, str(file))
    loading.freeze(model, kernels, joint=joint)
    return model.eval()


def checkpoint_bounds(section: Any, where: str) -> dict[str, float]:
    """The bounds by product. Raises `SgdecError` if there are none, or other things than numbers."""
    bounds = section.get("bounds") if isinstance(section, dict) else None
    if not isinstance(bounds, dict) or not all(isinstance(bound, (int, float)) for bound in bounds.values()):
        raise SgdecError(f"{where}: {SECTION} holds no bounds. Quantise the model again.")
    return bounds
