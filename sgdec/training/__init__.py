"""Training: `train` makes a checkpoint from a `TrainConfig`. Both are imported when first used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sgdec.training.config import TrainConfig
    from sgdec.training.trainer import Trained, train

__all__ = ["TrainConfig", "Trained", "train"]


def __getattr__(name: str) -> Any:
    if name == "TrainConfig":
        from sgdec.training.config import TrainConfig

        return TrainConfig
    if name in ("Trained", "train"):
        from sgdec.training import trainer

        return getattr(trainer, name)
    raise AttributeError(f"module 'sgdec.training' has no attribute {name!r}")
