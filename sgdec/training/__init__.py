"""Training: `train` makes a checkpoint from a `TrainConfig`. Both are imported when first used.

`preparing` creates the objects of a run from its settings, `trainer` goes through epochs, validates and saves, and
`updating` makes one update from one batch or several, whose loss is the mean over the tokens of all. `run` has the
inputs, start, resumption and reports of a run, `data` leads from files to batches, `objectives` has the losses, and
`parallel` divides an update among processes. The settings that a model family does not support are listed by the
model (`Model.refusals`), its own options are checked by its constructor, and `config` has the rules between settings.
All are checked before any text is read.
"""

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
