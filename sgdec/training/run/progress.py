"""The progress of a run: everything that its checkpoints store besides weights and optimiser."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from sgdec.checkpoints import files
from sgdec.errors import SgdecError

PROGRESS = "progress.json"


@dataclass
class Progress:
    """Counts and sums as plain numbers, which JSON can store."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    step: int = 0
    """Number of updates made."""
    epoch: int = 0
    batch: int = 0
    """The next batch of this epoch."""
    plateaus: int = 0
    """Number of times that the learning rate was lowered because validation did not improve."""
    best: float = -math.inf
    """The best validation score so far; higher is better."""
    settled: bool = True
    """Whether the best model was settled (`Model.unsettled`)."""
    since_best: int = 0
    """Validations since the best one."""
    since_halved: int = 0
    """Validations since the best one or since the learning rate was last lowered, whichever is later."""
    seconds: float = 0.0
    """Time spent on training, including validations."""
    loss_sum: float = 0.0
    """Sum of the loss over the target tokens since the last row of the log."""
    tokens: int = 0
    """Target tokens since the last row of the log."""
    update_seconds: float = 0.0
    """Time spent on updates since the last row of the log."""
    rewards: float = 0.0
    """Sum of each source's mean reward since the last row of the log (expected reward)."""
    sources: int = 0
    """Sources whose outputs were sampled since the last row of the log."""
    ceiling: float = 0.0
    """The largest cost of a batch that is not split; 0 = no batch ran out of memory."""
    unfit: list[int] = field(default_factory=list)
    """Line numbers of examples that do not fit in memory on their own."""
    skipped: list[int] = field(default_factory=list)
    """Steps without an update, because none of their examples fit in memory."""

    @classmethod
    def read(cls, file: Path) -> Progress:
        """Raises `SgdecError` for a file that cannot be read, or that another version wrote."""
        try:
            return TypeAdapter(cls).validate_python(files.read_json(file))
        except ValidationError as error:
            (first, *_) = error.errors()
            where = ".".join(map(str, first["loc"]))
            raise SgdecError(
                f"{file}: {where}: {first['msg']}. It is damaged, or another version of sgdec wrote it."
            ) from None
