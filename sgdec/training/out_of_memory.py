"""No run ends for want of memory: a batch that is too large is split, and its update is made again.

An update's loss is a sum over target tokens, divided by their number in all its batches; so with an example here or
there in another batch it is the same update (but for rounding, and other draws of dropout). After a failure the
*ceiling* is below the cost of the batch that failed, and all batches that cost more are halved, in this update and
from then on. An example that is too large all by itself is left out, and counted; an update of which nothing is left
is skipped, and counted as well. What is only scored (`in_halves`) is split for the moment.

What cannot be split ends the run in one line (`told`), and so do `IN_A_ROW` updates with nothing left: then memory is
too small for the model, or another program has it, and to go on would be to leave out the whole text bit by bit.

This takes an allocator that says no, as that of a GPU does. A Linux machine may promise more than it has and end the
process instead (see ``ulimit -v``).
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
from sgdec.training.data.batch import Batch, take
from sgdec.training.data.budget import Budget
from sgdec.training.log import LOG
from sgdec.training.run.resuming import last_good

Item = TypeVar("Item")
Result = TypeVar("Result")

SIGNS = ("DefaultCPUAllocator", "not enough memory", "bad_alloc", "out of memory", "STATUS_ALLOC_FAILED")
"""What the errors of allocators say that have no class of their own."""
SHARE = 0.9
"""Of the cost of what did not fit: the most that may still."""
IN_A_ROW = 10
"""Updates of which nothing fits: so many in a row are no accident of long lines, and end the run."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocator, of a GPU or the CPU, said no.

    >>> is_out_of_memory(RuntimeError("... DefaultCPUAllocator: can't allocate memory")), is_out_of_memory(OSError())
    (True, False)
    """
    if isinstance(error, (torch.cuda.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in SIGNS)


def in_halves(compute: Callable[[Sequence[Item]], list[Result]], items: Sequence[Item]) -> list[Result]:
    """``compute(items)``; where memory is out, what it gives for one half of the items, then for the other."""
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
    """Have what is out of memory in the block end the ``run``, a folder, in one `SgdecError`; ``when`` begins it."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        less = way_out(run, "smaller --batch-tokens or --workspace, or a smaller model")
        raise SgdecError(f"{when()}: out of memory where no batch can be split; {less}") from None


def way_out(run: Path, smaller: str) -> str:
    """What is left of a ``run``, a folder, and how to go on, for an error."""
    more = "Go on with --resume where there is more memory, or train again" if (run / "last").exists() else "Train"
    return f"{last_good(run)}. {more} with {smaller}."


@dataclass
class Splitter:
    """What a run knows of the memory it has."""

    budget: Budget
    ceiling: float = math.inf
    """The largest cost of a batch that is not split."""
    unfit: list[int] = field(default_factory=list)
    """Line numbers of examples that are left out."""
    log: Logger = LOG
    skipped: list[int] = field(default_factory=list)
    """Steps that were no updates, for nothing was left of them."""

    def split(self, batches: Sequence[Batch]) -> list[Batch]:
        """The same examples, without those that are unfit, in batches below the ceiling or of one example."""
        return [part for batch in batches for part in self._split(batch)]

    def _split(self, batch: Batch) -> list[Batch]:
        if not self.unfit and self._cost(batch) <= self.ceiling:
            return [batch]
        fit = [row for row, line in enumerate(batch.lines) if line not in self.unfit]
        if len(fit) < len(batch.lines):
            return self._split(take(batch, fit)) if fit else []
        if self._cost(batch) <= self.ceiling or len(fit) == 1:
            return [batch]
        half = len(fit) // 2
        return [*self._split(take(batch, fit[:half])), *self._split(take(batch, fit[half:]))]

    def shrink(self, batch: Batch, step: int) -> None:
        """Memory did not hold this batch: lower the ceiling, or leave an example out."""
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
        """Nothing is left of this update."""
        self.skipped.append(step)
        so_far = f"{len(self.skipped)} so far"
        self.log.warning(f"step {step}: memory holds nothing of this update; it is skipped ({so_far})")

    def _cost(self, batch: Batch) -> float:
        return self.budget.cost(len(batch.lines), _longest(batch))


def _longest(batch: Batch) -> list[int]:
    """Tokens of the longest target, and of the longest source, if any."""
    sources = [] if batch.source is None else [batch.source.size(1)]
    return [batch.mask.size(1) - 1, *sources]
