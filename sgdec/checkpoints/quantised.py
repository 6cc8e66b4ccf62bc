"""Quantised checkpoints: like others (`sgdec.checkpoints.layout`), except for

    model.safetensors    8-bit weights and their scales in place of those that the products need
    config.json          ``quantised``: ``bounds``, the range of each product's inputs, and ``from``, the original

They can be loaded only in precision int8, on a CPU. Other checkpoints can be loaded in int8 only if their models need
no stored ranges (`sgdec.models.base.Model.int8_by_row`).
"""

from __future__ import annotations

from typing import Any

from sgdec.errors import SgdecError

SECTION = "quantised"
"""The key of config.json that only these checkpoints have."""


def checkpoint_bounds(section: Any, where: str) -> dict[str, float]:
    """The bounds by product. Raises `SgdecError` if there are none, or if they are not numbers."""
    bounds = section.get("bounds") if isinstance(section, dict) else None
    if not isinstance(bounds, dict) or not all(isinstance(bound, (int, float)) for bound in bounds.values()):
        raise SgdecError(f"{where}: {SECTION} holds no bounds. Quantise the model again.")
    return bounds
