"""Joining the processes of a run, and reporting errors once when one of them fails.

torchrun starts the processes, watches them, and ends all when one ends with an error. With ``--max-restarts N`` it
then starts them again, up to N times, and the run continues after its last checkpoint. A death cannot damage a
checkpoint, because each is written under another name first.

Normally only rank 0 prints. An error is reported by the rank that encounters it first, and only by that rank: the
errors of the others are then the same, or only say that this rank is gone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch.distributed as dist

from sgdec.errors import SgdecError, UsageError
from sgdec.training.config import TrainConfig
from sgdec.training.parallel.farewell import farewell
from sgdec.training.parallel.group import TIMEOUT, ProcessGroup


@contextmanager
def joined(config: TrainConfig) -> Iterator[ProcessGroup]:
    """Make this process a rank of the run in the block; without torchrun the run is a group of one.

    Raises `UsageError` if ``--parallel`` does not fit the way in which the process was started, `SgdecError` if
    another rank dies, and `SystemExit` in place of an error that another rank reports.
    """
    started, size = "TORCHELASTIC_RUN_ID" in os.environ, int(os.environ.get("WORLD_SIZE", "1"))
    if config.parallel == "none" and not (started and size > 1):
        yield ProcessGroup()
        return
    if config.parallel == "none":
        raise UsageError(
            f"--parallel none: torchrun started {size} processes, which would all train the same model. "
            "Give --parallel data, model or hybrid, or start without torchrun."
        )
    if not started:
        raise UsageError(
            f"--parallel {config.parallel}: start the processes with torchrun: "
            f"torchrun --standalone --nproc-per-node 4 -m sgdec.cli train --parallel {config.parallel} ..."
        )
    group = ProcessGroup.join(config.device)
    with farewell(lambda: _told_once(group, _loss(config))):
        try:
            yield group
        except SgdecError as error:
            raise _told_once(group, error) from None
        except RuntimeError as error:
            if not _lost(error):
                raise
            raise _told_once(group, _loss(config)) from None
        group.leave()  # not after an error: the process ends then, and leaving could block forever


def is_first() -> bool:
    """Whether this process is rank 0, or was not started by torchrun."""
    return os.environ.get("RANK", "0") == "0"


def restarted(config: TrainConfig) -> bool:
    """Whether torchrun has restarted this run after a failure, and it has a checkpoint to resume from."""
    again = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
    return again and config.parallel != "none" and (Path(config.output) / "last").exists()


class LauncherWords(SgdecError):
    """An error that this process must report, although it is not the first of its machine."""


def said_by_another(error: SgdecError) -> bool:
    """Whether the first process of this machine reports the error.

    Errors before the ranks are connected are the same in all processes.
    """
    return os.environ.get("LOCAL_RANK", "0") != "0" and not isinstance(error, LauncherWords)


def _told_once(group: ProcessGroup, error: SgdecError) -> BaseException:
    """The error, or `SystemExit` if another rank reports an error."""
    if group.size == 1:
        return error
    if not group.claim("error"):
        return SystemExit(error.exit_status)
    told = LauncherWords(str(error))
    told.exit_status = error.exit_status
    return told


def _lost(error: RuntimeError) -> bool:
    """Whether torch.distributed raised this error because a rank is gone."""
    names = ("gloo", "NCCL", "Connection closed by peer", "Connection reset by peer")
    return isinstance(error, dist.DistError) or any(name in str(error) for name in names)


def _loss(config: TrainConfig) -> SgdecError:
    last = Path(config.output) / "last"
    good = f"continue after {last.resolve()} with --resume" if last.exists() else "there is no checkpoint yet"
    return SgdecError(
        "another process of this run has died, or the run was terminated, or a process could not be reached for "
        f"{TIMEOUT.seconds // 60} minutes; see the output of torchrun. No checkpoint is damaged: {good}. "
        "torchrun --max-restarts 1 restarts it automatically."
    )
