"""In which precision the hardware multiplies fast."""

from __future__ import annotations

import torch

from sgdec.device import require_device


def choose_precision(device: str, precision: str) -> str:
    """``auto`` made definite: bf16 where the device multiplies it in hardware, else fp32.

    Raises `UsageError` for a device that is not there.
    """
    require_device(device)
    if precision != "auto":
        return precision
    if device.startswith("cuda"):
        has_bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        has_bf16 = any(torch.cpu.get_capabilities().get(name) for name in ("avx512_bf16", "amx_bf16"))
    return "bf16" if has_bf16 else "fp32"
