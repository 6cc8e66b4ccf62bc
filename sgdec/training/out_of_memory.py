"""Recovery from running out of memory: a batch that is too large is split, and its update is repeated.

The loss of an update is a sum over target tokens, divided by their number in all its batches. So the update does not
depend on how examples are divided into batches, except for rounding and the draws of dropout. After a failure the
*ceiling* is set below the cost of the batch that failed. From then on, all batches that cost more are halved. An
example that is too large on its own is left out and counted. An update without any remaining example is skipped and
counted. A batch that is only scored is split for that one call (`in_halves`).

If a computation that cannot be split runs out of memory, the run ends with a one-line error (`told`). It also ends
after `IN_A_ROW` skipped updates in a row: then memory is too small for the model, or another program uses it, and
continuing would leave out the whole text bit by bit.

This works if the allocator raises an error, as that of a GPU does. Linux may grant more memory than there is, and end
the process later instead; ``ulimit -v`` sets a limit that is reported.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from logging import Logger
from pathlib import Path
from typing import TypeVar

import torch

from sgdec.errors import SgdecError
from sgdec.search.memory import is_out_of_memory
from sgdec.training.data.batch import TrainingBatch, take
from sgdec.training.data.budget import BatchBudget
from sgdec.training.log import LOG
from sgdec.training.run.resuming import last_good

Item = TypeVar("Item")
Result = TypeVar("Result")

SHARE = 0.9
"""The new ceiling, as a share of the cost of the batch that did not fit."""
IN_A_ROW = 10
"""The run ends after this many skipped updates in a row: long lines alone do not explain them."""


def in_halves(compute: Callable[[Sequence[Item]], list[Result]], items: Sequence[Item]) -> list[Result]:
    """``compute(items)``; if that runs out of memory, the results of the first half, then those of the second."""
    try:
        return compute(items)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error) or len(items) == 1:
            raise
    torch.cuda.empty_cache()  # does nothing without a GPU
    half = len(items) // 2
    return in_halves(compute, items[:half]) + in_halves(compute, items[half:])


@contextmanager
def told(run: Path, when: Callable[[], str]) -> Iterator[None]:
    """Turn an out-of-memory error in the block into an `SgdecError` that begins with ``when()``.

    ``run``: the folder of the run, for the way out.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        less = way_out(run, "smaller --batch-tokens, --batch-pairs or --workspace, or a smaller model")
        raise SgdecError(f"{when()}: out of memory, and there is no batch to split; {less}") from None


def way_out(run: Path, smaller: str) -> str:
    """The last good checkpoint in the folder ``run`` and how to continue, for an error message."""
    more = "Use --resume on a machine with more memory, or train again" if (run / "last").exists() else "Train"
    return f"{last_good(run)}. {more} with {smaller}."


@dataclass
class Splitter:
    """Splits batches that do not fit in memory, and records what had to be left out."""

    budget: BatchBudget
    ceiling: float = math.inf
    """The largest cost of a batch that is not split."""
    unfit: list[int] = field(default_factory=list)
    """Line numbers of the examples that are left out because one alone does not fit."""
    log: Logger = LOG
    skipped: list[int] = field(default_factory=list)
    """Steps without an update, because no example was left."""

    def split(self, batches: Sequence[TrainingBatch]) -> list[TrainingBatch]:
        """The same examples without unfit ones, in batches within the ceiling or of one example."""
        return [part for batch in batches for part in self._split(batch)]

    def _split(self, batch: TrainingBatch) -> list[TrainingBatch]:
        if not self.unfit and self._cost(batch) <= self.ceiling:
            return [batch]
        fit = [row for row, line in enumerate(batch.lines) if line not in self.unfit]
        if len(fit) < len(batch.lines):
            return self._split(take(batch, fit)) if fit else []
        if self._cost(batch) <= self.ceiling or len(fit) == 1:
            return [batch]
        half = len(fit) // 2
        return [*self._split(take(batch, fit[:half])), *self._split(take(batch, fit[half:]))]

    def shrink(self, batch: TrainingBatch, step: int) -> None:
        """Lower the ceiling after this batch did not fit, or leave out its only example."""
        if len(batch.lines) > 1:
            self.ceiling = min(self.ceiling, SHARE * self._cost(batch))
            size = f"{len(batch.lines)} examples of up to {max(_longest(batch))} tokens"
            self.log.warning(f"step {step}: out of memory with {size}; batches of this size are split from now on")
        else:
            line = batch.lines[0]
            self.unfit.append(line)
            so_far = f"{len(self.unfit)} so far"
            self.log.warning(f"step {step}: out of memory with line {line} alone; it is left out ({so_far})")

    def skip(self, step: int) -> None:
        """Record a step that has no example left."""
        self.skipped.append(step)
        so_far = f"{len(self.skipped)} so far"
        self.log.warning(f"step {step}: no example of this update fits in memory; it is skipped ({so_far})")

    def _cost(self, batch: TrainingBatch) -> float:
        return self.budget.cost(len(batch.lines), _longest(batch))


def _longest(batch: TrainingBatch) -> list[int]:
    """Tokens of the longest target, and of the longest source, if any."""
    sources = [] if batch.source is None else [batch.source.size(1)]
    return [batch.mask.size(1) - 1, *sources]
