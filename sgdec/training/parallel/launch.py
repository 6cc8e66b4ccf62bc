"""Who starts the processes of a run, and what becomes of it when one of them dies.

torchrun starts them, watches them, and ends all when one ends with an error; with ``--max-restarts N`` it then starts
them again, up to N times, and the run goes on after its last checkpoint. No checkpoint is harmed by that, since each
is written under another name first.

Only rank 0 talks; but of an error the rank that meets it first, and no other: what others meet then is the same, or
that this one has gone.
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
from sgdec.training.parallel.group import TIMEOUT, Group


@contextmanager
def joined(config: TrainConfig) -> Iterator[Group]:
    """In the block this process is a rank of the run that ``config`` asks for; a group of one without torchrun.

    Raises `UsageError` if `--parallel` and the way in which this process was started do not fit each other, and
    `SgdecError` if another rank dies. `SystemExit` stands for an error that another rank reports.
    """
    started, size = "TORCHELASTIC_RUN_ID" in os.environ, int(os.environ.get("WORLD_SIZE", "1"))
    if config.parallel == "none" and not (started and size > 1):
        yield Group()
        return
    if config.parallel == "none":
        raise UsageError(
            f"--parallel none: torchrun started {size} processes, and each would train the same model. "
            "Give --parallel data, model or hybrid, or start without torchrun."
        )
    if not started:
        raise UsageError(
            f"--parallel {config.parallel}: torchrun starts its processes: "
            f"torchrun --standalone --nproc-per-node 4 -m sgdec.cli train --parallel {config.parallel} ..."
        )
    group = Group.join(config.device)
    with farewell(lambda: _told_once(group, _loss(config))):
        try:
            yield group
        except SgdecError as error:
            raise _told_once(group, error) from None
        except RuntimeError as error:
            if not _lost(error):
                raise
            raise _told_once(group, _loss(config)) from None
        group.leave()  # after an error the process ends, and to part in good order could take forever


def is_first() -> bool:
    """Whether this process is rank 0, or was not started by torchrun."""
    return os.environ.get("RANK", "0") == "0"


def restarted(config: TrainConfig) -> bool:
    """Whether torchrun has started this run again after a failure, and there is a checkpoint to go on from."""
    again = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
    return again and config.parallel != "none" and (Path(config.output) / "last").exists()


class Told(SgdecError):
    """An error that this process is to tell, although it is not the first of its machine."""


def said_by_another(error: SgdecError) -> bool:
    """Whether the first process of this machine says it: what went wrong before the ranks met is the same for all."""
    return os.environ.get("LOCAL_RANK", "0") != "0" and not isinstance(error, Told)


def _told_once(group: Group, error: SgdecError) -> BaseException:
    """The error, or a quiet end if another rank tells one."""
    if group.size == 1:
        return error
    if not group.claim("error"):
        return SystemExit(error.exit_status)
    told = Told(str(error))
    told.exit_status = error.exit_status
    return told


def _lost(error: RuntimeError) -> bool:
    """Whether this is what torch.distributed raises where a rank has gone."""
    names = ("gloo", "NCCL", "Connection closed by peer", "Connection reset by peer")
    return isinstance(error, dist.DistError) or any(name in str(error) for name in names)


def _loss(config: TrainConfig) -> SgdecError:
    last = Path(config.output) / "last"
    good = f"go on after {last.resolve()} with --resume" if last.exists() else "there is no checkpoint yet"
    return SgdecError(
        "another process of this run has died, or the run was told to end, or a process could not be reached for "
        f"{TIMEOUT.seconds // 60} minutes; torchrun says more. No checkpoint is damaged: {good}. "
        "torchrun --max-restarts 1 does so by itself."
    )
