"""Where a run is: all that its checkpoints keep besides weights and optimiser."""

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
    """Counts and sums; plain numbers, so that JSON holds them."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    step: int = 0
    """Updates made."""
    epoch: int = 0
    batch: int = 0
    """The next batch of this epoch."""
    plateaus: int = 0
    """How often the rate was lowered for want of gain."""
    best: float = -math.inf
    """The best validation so far; higher is better."""
    settled: bool = True
    """Whether the best model was settled (`Model.unsettled`)."""
    since_best: int = 0
    """Validations since then."""
    since_halved: int = 0
    seconds: float = 0.0
    """Of training, validations included."""
    loss_sum: float = 0.0
    """Over the target tokens since the last row of the log."""
    tokens: int = 0
    update_seconds: float = 0.0
    """Of the updates since then."""
    rewards: float = 0.0
    """Of samples since then, the mean of each source's (expected reward)."""
    sources: int = 0
    """Of which samples were drawn since then."""
    ceiling: float = 0.0
    """The largest cost of a batch that memory holds, learnt by failure; 0 = none failed."""
    unfit: list[int] = field(default_factory=list)
    """Line numbers of examples that memory does not hold at all."""
    skipped: list[int] = field(default_factory=list)
    """Steps that were no updates: memory held none of their examples."""

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
