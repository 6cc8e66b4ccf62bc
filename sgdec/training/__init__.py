"""Training: `train` makes a checkpoint from a `TrainConfig`. Both are imported when first used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sgdec.training.config import TrainConfig
    from sgdec.training.preparing import train
    from sgdec.training.trainer import Trained

__all__ = ["TrainConfig", "Trained", "train"]


def __getattr__(name: str) -> Any:
    if name == "TrainConfig":
        from sgdec.training.config import TrainConfig

        return TrainConfig
    if name == "Trained":
        from sgdec.training.trainer import Trained

        return Trained
    if name == "train":
        from sgdec.training.preparing import train

        return train
    raise AttributeError(f"module 'sgdec.training' has no attribute {name!r}")
