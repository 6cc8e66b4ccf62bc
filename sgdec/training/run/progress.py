"""The progress of a run: everything that its checkpoints store besides weights and optimiser."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar, TypeAlias

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from sgdec.checkpoints import files
from sgdec.complaints import complaint
from sgdec.errors import SgdecError

PROGRESS = "progress.json"
MOST = 2.0**53
"""Beyond any count, time or score of a run; up to here a float has every whole number."""
Count: TypeAlias = Annotated[int, Field(strict=True, ge=0, le=MOST)]
Amount: TypeAlias = Annotated[float, Field(strict=True, ge=0, le=MOST)]
Sum: TypeAlias = Annotated[float, Field(strict=True, ge=-MOST, le=MOST)]


@dataclass
class TrainingProgress:
    """Counts and sums as plain numbers, which JSON can store."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    step: Count = 0
    """Number of updates made."""
    epoch: Count = 0
    batch: Count = 0
    """The next batch of this epoch."""
    plateaus: Count = 0
    """Number of times that the learning rate was lowered because validation did not improve."""
    best: Annotated[float, Field(strict=True, le=MOST)] = -math.inf
    """The best validation score so far; higher is better."""
    previous: Annotated[float, Field(strict=True, le=MOST)] = -math.inf
    """The score of the previous validation; -inf before the first one."""
    settled: bool = True
    """Whether the best model was settled (`Model.unsettled`)."""
    since_best: Count = 0
    """Validations since the best one."""
    since_halved: Count = 0
    """Validations in a row without improvement (``decay_rule``) since the learning rate was last lowered."""
    seconds: Amount = 0.0
    """Time spent on training, including validations."""
    loss_sum: Sum = 0.0
    """Sum of the loss over the target tokens since the last row of the log."""
    tokens: Count = 0
    """Target tokens since the last row of the log."""
    update_seconds: Amount = 0.0
    """Time spent on updates since the last row of the log."""
    rewards: Sum = 0.0
    """Sum of each source's mean reward since the last row of the log (expected reward)."""
    sources: Count = 0
    """Sources whose outputs were sampled since the last row of the log."""
    ceiling: Amount = 0.0
    """The largest cost of a batch that is not split; 0 = no batch ran out of memory."""
    unfit: list[Count] = field(default_factory=list)
    """Line numbers of examples that do not fit in memory on their own."""
    skipped: list[Count] = field(default_factory=list)
    """Steps without an update, because none of their examples fit in memory."""

    @classmethod
    def read(cls, file: Path) -> TrainingProgress:
        """Raises `SgdecError` for a file that cannot be read, is damaged, or was written by another version."""
        try:
            return TypeAdapter(cls).validate_python(files.read_json(file))
        except ValidationError as error:
            (first, *_) = error.errors()
            what = complaint(".".join(map(str, first["loc"])), first)
            raise SgdecError(f"{file}: {what}. It is damaged, or another version of sgdec wrote it.") from None

    def require_fit(self, file: Path, *, step: int, batches: int, examples: int) -> None:
        """Raises `SgdecError` if a run at this step cannot have this progress.

        ``file`` is where it was read, ``step`` that of config.json beside it, ``batches`` the number in an epoch, and
        ``examples`` that of the training text.
        """
        most = {
            "step": (self.step, step), "epoch": (self.epoch, step), "batch": (self.batch, batches),
            "plateaus": (self.plateaus, step + 1), "since_best": (self.since_best, step + 1),
            "since_halved": (self.since_halved, step + 1), "number of unfit": (len(self.unfit), examples),
            "number of skipped": (len(self.skipped), step),
        }  # fmt: skip
        for name, (value, limit) in most.items():
            if value > limit or (name == "step" and value != limit):
                raise SgdecError(
                    f"{file}: the {name} is {value}, but this run, at step {step} with {batches} batches in an "
                    f"epoch, has {'' if name == 'step' else 'at most '}{limit}. The file is damaged: copy the "
                    f"checkpoint again, or begin a new run with --start-from {file.parent}."
                )
