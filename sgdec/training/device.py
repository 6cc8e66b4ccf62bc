"""The precision of training, chosen to suit the hardware, and the seed of its random numbers."""

from __future__ import annotations

import torch

from sgdec.device import require_device
from sgdec.errors import UsageError


def choose_precision(device: str, precision: str) -> str:
    """The precision to train in: for ``auto``, bf16 if the device multiplies it in hardware, else fp32.

    Raises `UsageError` if the device is unavailable, or bf16 is asked for and the processor cannot train in it.
    """
    require_device(device)
    if device != "cpu":
        torch.backends.cudnn.allow_tf32 = False  # fp32 means fp32: LSTMs would multiply with 10 bits of mantissa
    if precision == "bf16" and device == "cpu" and not trains_in_bf16():
        raise UsageError(
            "--precision bf16: this processor cannot train in bf16, which needs AVX-512. Use fp32, or auto."
        )
    if precision != "auto":
        return precision
    if device.startswith("cuda"):
        has_bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        has_bf16 = any(torch.cpu.get_capabilities().get(name) for name in ("avx512_bf16", "amx_bf16"))
    return "bf16" if has_bf16 else "fp32"


def trains_in_bf16() -> bool:
    """Whether this processor can train in bf16, fast or slow: autocast uses oneDNN's LSTM, which needs AVX-512."""
    available = torch.backends.mkldnn.is_available()
    return bool(available and torch.ops.mkldnn._is_mkldnn_bf16_supported())


def set_seed(seed: int, device: str) -> None:
    """Seed what is drawn on this device.

    `torch.manual_seed` formats the stack once for each kind of device that is not in use, and keeps the text until
    the end of the process: each update would take milliseconds more, and leave some memory behind.
    """
    if device == "cpu":
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)
