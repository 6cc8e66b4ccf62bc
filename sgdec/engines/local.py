"""Workers on this machine: processes that share the pages of memory-mapped weights."""

from __future__ import annotations

from typing import Any

from sgdec.corpus.engine import Engine, Event, Job, Limits, Task
from sgdec.engines.processes import Ahead, Processes
from sgdec.plugins.hookspecs import hookimpl
from sgdec.threads import free_cores, usable_cores, whole_cores


class Local(Engine):
    """Processes of this machine.

    The free cores are divided among the workers, unless ``--threads`` is given. With ``--device cuda`` the workers
    are divided among the GPUs that ``CUDA_VISIBLE_DEVICES`` names.
    """

    def __init__(self, ahead: Ahead = 1) -> None:
        self._ahead = ahead
        self._processes: Processes | None = None

    def start(self, job: Job, workers: int, limits: Limits) -> None:
        cores = usable_cores() if job.settings.get("deterministic") else free_cores()
        threaded = job.with_threads(whole_cores(cores, workers))
        self._processes = Processes(threaded, range(workers), limits, self._ahead)

    def wanted(self) -> int:
        return self._started.wanted()

    def submit(self, task: Task) -> None:
        self._started.submit(task)

    def events(self, seconds: float) -> list[Event]:
        return self._started.events(seconds)

    def close(self) -> None:
        if self._processes is not None:
            self._processes.close()

    @property
    def _started(self) -> Processes:
        assert self._processes is not None, "start comes first"
        return self._processes


@hookimpl
def sgdec_engines() -> dict[str, type[Any]]:
    return {"local": Local}
