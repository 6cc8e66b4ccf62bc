"""Workers on a cluster of Ray: one actor for each, which hosts its process and passes its events on.

The process does the work, as with the engine ``local``. So a line that kills or hangs it does not touch the actor,
which notices, tells, and starts another one. An actor is only lost with its node; then it is replaced as soon as the
cluster has room. Between starter and actors travel the job, numbers of chunks and receipts, all as JSON. Text and
results go through the folder.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

from pydantic import Field

from sgdec.corpus.engine import Advanced, Died, Done, Engine, Event, Job, Limits, Ready, Task
from sgdec.engines.messages import event_of, line_of
from sgdec.engines.processes import Ahead, Processes, died_with
from sgdec.engines.ray_clusters import Head, cluster_at, import_ray, reason_of
from sgdec.plugins.hookspecs import hookimpl

log = logging.getLogger(__name__)

REPORT = 2.0
"""Seconds between two reports of an actor whose worker only advances."""
ROOM = 10.0
"""Seconds after which the user is told that actors wait for room in the cluster."""
UNREACHED = 0.1
"""Seconds before actors are asked again that cannot be reached, as the answer comes at once."""
ENDING = 15.0
"""Seconds that actors may take to stop their workers."""


class Ray(Engine):
    """Actors of Ray.

    Without an address, a cluster of this machine is started for the run. On all nodes sgdec has to be installed, and
    the folder of the corpus, the inputs and the models have to be at the same paths. Each worker takes ``num_cpus``
    threads, unless ``--threads`` is given.
    """

    def __init__(
        self,
        address: Annotated[
            str | None,
            Field(
                description="HOST:PORT of a cluster, ray://HOST:PORT, or auto: the one of this machine or of "
                "RAY_ADDRESS; default: a cluster of this machine, started for the run"
            ),
        ] = None,
        num_cpus: Annotated[float, Field(gt=0, description="CPUs that a worker takes in the cluster")] = 1.0,
        num_gpus: Annotated[
            float | None,
            Field(ge=0, description="GPUs that a worker takes; default: 1 with --device cuda, otherwise 0"),
        ] = None,
        ahead: Ahead = 1,
    ) -> None:
        self._address, self._num_cpus, self._num_gpus, self._ahead = address, num_cpus, num_gpus, ahead
        self._actors: list[_Actor] = []
        self._cluster = contextlib.ExitStack()
        self._head: Head | None = None
        self._waits_since: float | None = None

    def start(self, job: Job, workers: int, limits: Limits) -> None:
        threaded = job.with_threads(max(1, int(self._num_cpus)))
        cuda = str(job.settings.get("device", "")).startswith("cuda")
        gpus = float(cuda) if self._num_gpus is None else self._num_gpus
        self._cluster = cluster_at(self._address, math.ceil(workers * self._num_cpus), gpus)
        if head := import_ray().get_runtime_context().gcs_address:
            self._head = Head(head)
        self._room = {"num_cpus": self._num_cpus, "num_gpus": gpus}
        given = threaded.to_json(), asdict(limits), self._ahead
        self._actors = [_Actor(place, given, self._room) for place in range(workers)]
        self._waits_since = time.monotonic()

    def wanted(self) -> int:
        return sum(max(0, 1 + self._ahead - len(each.tasks)) for each in self._actors if each.ready)

    def submit(self, task: Task) -> None:
        min(self._actors, key=lambda each: (not each.ready, len(each.tasks))).give(task)

    def events(self, seconds: float) -> list[Event]:
        if self._head is not None:
            self._head.check()
        ray = import_ray()
        actors = {each.report: each for each in self._actors}
        found: list[Event] = []
        if ray.wait(list(actors), timeout=seconds)[0]:
            for report in ray.wait(list(actors), num_returns=len(actors), timeout=0)[0]:
                found += self._heard(actors[report])
        if not found and any(each.missed for each in self._actors):
            time.sleep(min(seconds, UNREACHED))
        self._warn_of_waiting()
        return found

    def close(self) -> None:
        with self._cluster:
            stopped = [each.stop() for each in self._actors if each.placed and not each.missed]
            if stopped:
                import_ray().wait(stopped, num_returns=len(stopped), timeout=ENDING)
            for each in self._actors:
                each.kill()
            self._actors = []

    def _heard(self, actor: _Actor) -> list[Event]:
        from ray.exceptions import ActorUnavailableError, RayError

        try:
            return actor.hear()
        except ActorUnavailableError:  # the next report, or its failure, tells whether the actor has died
            actor.miss()
            return []
        except RayError as error:
            died = actor.died(f"was lost with its Ray actor: {reason_of(error)}")
            actor.kill()
            self._actors[self._actors.index(actor)] = actor.successor()
            self._waits_since = time.monotonic()
            return [died]

    def _warn_of_waiting(self) -> None:
        """Say once after each start or loss that actors wait for room."""
        waiting = sum(not each.placed for each in self._actors)
        if self._waits_since is None or not waiting:
            self._waits_since = None
        elif time.monotonic() - self._waits_since > ROOM:
            self._waits_since = None
            has = import_ray().cluster_resources()
            cpus, gpus = self._room.values()
            log.warning(
                f"{waiting} of {len(self._actors)} workers wait for room: each takes {cpus:g} CPUs and {gpus:g} "
                f"GPUs, and the cluster has {has.get('CPU', 0):g} CPUs and {has.get('GPU', 0):g} GPUs in all."
            )


class _Actor:
    """The starter's view of one actor, and of the worker that it hosts."""

    def __init__(
        self, place: int, given: tuple[Any, ...], room: dict[str, float], generation: int = 1
    ) -> None:
        ray = import_ray()
        self.tasks: list[Task] = []
        """Those of the worker, in its order."""
        self.placed = self._loaded = self.missed = False
        self._place, self._given, self._room, self._generation = place, given, room, generation
        hosts = ray.remote(concurrency_groups={"reports": 1})(_Host)  # each group has a thread of its own
        self._handle = hosts.options(**room, max_restarts=0, scheduling_strategy="SPREAD").remote(
            *given, place, generation
        )
        self._ask()

    @property
    def ready(self) -> bool:
        """Whether its worker can work on tasks."""
        return self._loaded and not self.missed

    def died(self, reason: str) -> Died:
        """The death of its worker."""
        return died_with(self.tasks, self._loaded, self.name, reason, outside=True)

    @property
    def name(self) -> str:
        """The name of its worker."""
        return f"{self._place + 1}.{self._generation}"

    def give(self, task: Task) -> None:
        self.tasks.append(task)
        self._handle.submit.remote(list(task))

    def hear(self) -> list[Event]:
        """The events of a report that has come, while the next one is asked for. Raises RayError if it is lost."""
        from ray.exceptions import RayError

        events = [event_of(line) for line in import_ray().get(self.report)]
        if self.missed:
            raise RayError("it could not be reached for some time")
        self._ask()
        self.placed = True
        for event in events:
            self._note(event)
        return events

    def miss(self) -> None:
        """Give no more tasks: a report was lost, and with it perhaps the end of a task. Ask once more."""
        self.missed = True
        self._ask()

    def stop(self) -> Any:
        """Ask the actor to stop its worker; what to wait for."""
        return self._handle.close.remote()

    def kill(self) -> None:
        import_ray().kill(self._handle)

    def successor(self) -> _Actor:
        """A new actor in the place of this one, which has died."""
        return _Actor(self._place, self._given, self._room, self._generation + 1)

    def _ask(self) -> None:
        self.report = self._handle.events.remote()

    def _note(self, event: Event) -> None:
        if isinstance(event, Ready):
            self._loaded = True
        elif isinstance(event, Done):
            self.tasks.remove(event.task)
        elif isinstance(event, Died):
            self._loaded = False
            self._generation += 1
            self.tasks = [task for task in self.tasks if task != event.task and task not in event.waiting]


class _Host:
    """The actor: a process, and what it has said since the last report."""

    def __init__(
        self, job: str, limits: dict[str, Any], ahead: int, place: int, generation: int
    ) -> None:
        self._processes = Processes(Job.of_json(job), [place], Limits(**limits), ahead, generation=generation)

    def submit(self, task: Sequence[Any]) -> None:
        self._processes.submit(Task(*task))

    def events(self) -> list[str]:
        """Events as lines, as soon as there is one that the starter has to react to."""
        end = time.monotonic() + REPORT
        advanced: list[Event] = []
        while (left := end - time.monotonic()) > 0:
            found = self._processes.events(left)
            advanced = [*advanced, *(each for each in found if isinstance(each, Advanced))][-1:]
            if told := [each for each in found if not isinstance(each, Advanced)]:
                return list(map(line_of, told))
        return list(map(line_of, advanced))

    def close(self) -> None:
        self._processes.close()


# as ray.method does, without an import of Ray; a call's own option concurrency_group is unknown to ray:// addresses
_Host.events.__ray_concurrency_group__ = "reports"  # type: ignore[attr-defined]


@hookimpl
def sgdec_engines() -> dict[str, type[Any]]:
    return {"ray": Ray}
