"""A check that a device is available, to run before models are loaded."""

from __future__ import annotations

import re

from sgdec.errors import UsageError


def require_device(name: str) -> None:
    """Raise UsageError if the device is unknown or unavailable. Imports torch only for ``cuda``.

    >>> require_device("cpu")
    >>> require_device("gpu")
    Traceback (most recent call last):
    sgdec.errors.UsageError: --device gpu: expected cpu, cuda or cuda:N.
    """
    if name == "cpu":
        return
    match = re.fullmatch(r"cuda(?::([0-9]+))?", name)
    if match is None:
        raise UsageError(f"--device {name}: expected cpu, cuda or cuda:N.")
    import torch

    count = torch.cuda.device_count()
    if int(match[1] or 0) >= count:
        raise UsageError(f"--device {name}: PyTorch sees {count or 'no'} CUDA devices here. Use --device cpu.")
