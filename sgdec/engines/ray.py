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
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any
from urllib.parse import urlsplit

from annotated_types import Ge, Gt

from sgdec.corpus.engine import Advanced, Died, Done, Engine, Event, Job, Limits, Ready, Task
from sgdec.engines.messages import event_of, line_of
from sgdec.engines.processes import Processes, died_with
from sgdec.errors import UsageError, one_line
from sgdec.plugins.hookspecs import hookimpl
from sgdec.plugins.host import install_hint

log = logging.getLogger(__name__)

ANSWER = 10.0
"""Seconds in which an address has to answer."""
REPORT = 2.0
"""Seconds between two reports of an actor whose worker only advances."""
ROOM = 10.0
"""Seconds after which the user is told that actors wait for room in the cluster."""
ENDING = 15.0
"""Seconds that actors may take to stop their workers."""
OBJECTS = 80 << 20
"""Bytes of the object store of a cluster of our own, about the least that Ray takes: nothing large travels."""
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""How HTTP/2 begins (RFC 9113, section 3.4), which Ray speaks: a preface, and a frame of settings, here none."""
SETTINGS = 4
"""The type of a frame of settings, with which a server begins its answer."""


class Ray(Engine):
    """Actors of Ray.

    Without an address, a cluster of this machine is started for the run. On all nodes sgdec has to be installed, and
    the folder of the corpus, the inputs and the models have to be at the same paths. Each worker takes ``num_cpus``
    threads, unless ``--threads`` is given.
    """

    def __init__(
        self,
        address: str | None = None,
        num_cpus: Annotated[float, Gt(0)] = 1.0,
        num_gpus: Annotated[float, Ge(0)] | None = None,
        ahead: Annotated[int, Ge(0)] = 1,
    ) -> None:
        """
        Args:
            address: HOST:PORT of a cluster, ray://HOST:PORT, or auto = the one of this machine or of RAY_ADDRESS
            num_cpus: CPUs that a worker takes in the cluster
            num_gpus: GPUs that a worker takes; by default 1 with --device cuda, otherwise 0
            ahead: number of tasks that wait at each worker, so that it need not wait for the starter
        """
        self._address, self._num_cpus, self._num_gpus, self._ahead = address, num_cpus, num_gpus, ahead
        self._actors: list[_Actor] = []
        self._connected = False
        self._folder: str | None = None
        self._waits_since: float | None = None

    def start(self, job: Job, workers: int, limits: Limits) -> None:
        import_ray()
        threaded = replace(job, settings={"threads": max(1, int(self._num_cpus)), **job.settings})
        cuda = str(job.settings.get("device", "")).startswith("cuda")
        gpus = float(cuda) if self._num_gpus is None else self._num_gpus
        self._connect(workers, gpus)
        self._room = {"num_cpus": self._num_cpus, "num_gpus": gpus}
        given = threaded.to_json(), limits.line_seconds, limits.memory, self._ahead
        self._actors = [_Actor(place, given, self._room) for place in range(workers)]
        self._waits_since = time.monotonic()

    def wanted(self) -> int:
        return sum(max(0, 1 + self._ahead - len(each.tasks)) for each in self._actors if each.ready)

    def submit(self, task: Task) -> None:
        min(self._actors, key=lambda each: (not each.ready, len(each.tasks))).give(task)

    def events(self, seconds: float) -> list[Event]:
        ray = import_ray()
        actors = {each.report: each for each in self._actors}
        found: list[Event] = []
        if ray.wait(list(actors), timeout=seconds)[0]:
            for report in ray.wait(list(actors), num_returns=len(actors), timeout=0)[0]:
                found += self._heard(actors[report])
        self._warn_of_waiting()
        return found

    def close(self) -> None:
        ray = import_ray()
        if not ray.is_initialized():
            return
        stopped = [each.stop() for each in self._actors if each.placed]
        if stopped:
            ray.wait(stopped, num_returns=len(stopped), timeout=ENDING)
        for each in self._actors:
            each.kill()
        self._actors = []
        if self._connected:
            ray.shutdown()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _heard(self, actor: _Actor) -> list[Event]:
        from ray.exceptions import RayError

        try:
            return actor.hear()
        except RayError as error:
            died = died_with(actor.tasks, actor.ready, actor.name, f"was lost with its Ray actor: {reason_of(error)}")
            actor.kill()
            self._actors[self._actors.index(actor)] = actor.successor()
            self._waits_since = time.monotonic()
            return [died]

    def _connect(self, workers: int, gpus: float) -> None:
        ray = import_ray()
        if ray.is_initialized():
            return
        logging.getLogger("ray").setLevel(logging.ERROR)
        quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
        if self._address is not None:
            address = find_cluster(self._address)
            check_answer(address)
            try:
                ray.init(address=address, **quiet)
            except Exception as error:  # of other versions, without its token: each has a type of its own
                raise UsageError(f"--ray.address {self._address}: {reason_of(error)}") from None
            self._connected = True
            return
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        self._folder = tempfile.mkdtemp(prefix="sgdec-ray-")
        self._connected = True
        ray.init(
            address="local", num_cpus=math.ceil(workers * self._num_cpus), include_dashboard=False,
            object_store_memory=OBJECTS, _temp_dir=self._folder, **quiet,
        )  # fmt: skip
        if gpus > (found := ray.cluster_resources().get("GPU", 0)):
            raise UsageError(
                f"a worker takes {gpus:g} GPUs, and Ray finds {found:g} here. Give --device cpu, or the --ray.address "
                "of a cluster that has them."
            )

    def _warn_of_waiting(self) -> None:
        """Say once after each start or loss that actors wait for room."""
        waiting = sum(not each.placed for each in self._actors)
        if self._waits_since is None or not waiting:
            self._waits_since = None
        elif time.monotonic() - self._waits_since > ROOM:
            self._waits_since = None
            has = import_ray().cluster_resources()
            log.warning(
                f"{waiting} of {len(self._actors)} workers wait for room: each takes {self._room['num_cpus']:g} CPUs and "
                f"{self._room['num_gpus']:g} GPUs, and the cluster has {has.get('CPU', 0):g} CPUs and "
                f"{has.get('GPU', 0):g} GPUs in all."
            )


class _Actor:
    """The starter's view of one actor, and of the worker that it hosts."""

    def __init__(
        self, place: int, given: tuple[Any, ...], room: dict[str, float], generation: int = 1
    ) -> None:
        ray = import_ray()
        self.tasks: list[Task] = []
        """Those of the worker, in its order."""
        self.placed = self.ready = False
        self._place, self._given, self._room, self._generation = place, given, room, generation
        hosts = ray.remote(concurrency_groups={"reports": 1})(_Host)  # each group has a thread of its own
        self._handle = hosts.options(**room, max_restarts=0, scheduling_strategy="SPREAD").remote(
            *given, place, generation
        )
        self._ask()

    @property
    def name(self) -> str:
        """The name of its worker."""
        return f"{self._place + 1}.{self._generation}"

    def give(self, task: Task) -> None:
        self.tasks.append(task)
        self._handle.submit.remote(list(task))

    def hear(self) -> list[Event]:
        """The events of a report that has come, while the next one is asked for. Raises RayError if it is lost."""
        events = [event_of(line) for line in import_ray().get(self.report)]
        self._ask()
        self.placed = True
        for event in events:
            self._note(event)
        return events

    def stop(self) -> Any:
        """Ask the actor to stop its worker; what to wait for."""
        return self._handle.close.remote()

    def kill(self) -> None:
        import_ray().kill(self._handle)

    def successor(self) -> _Actor:
        """A new actor in the place of this one, which has died."""
        return _Actor(self._place, self._given, self._room, self._generation + 1)

    def _ask(self) -> None:
        self.report = self._handle.events.options(concurrency_group="reports").remote()

    def _note(self, event: Event) -> None:
        if isinstance(event, Ready):
            self.ready = True
        elif isinstance(event, Done):
            self.tasks.remove(event.task)
        elif isinstance(event, Died):
            self.ready = False
            self._generation += 1
            self.tasks = [task for task in self.tasks if task != event.task and task not in event.waiting]


class _Host:
    """The actor: a process, and what it has said since the last report."""

    def __init__(
        self, job: str, line_seconds: float | None, memory: int | None, ahead: int, place: int, generation: int
    ) -> None:
        limits = Limits(line_seconds, memory)
        self._processes = Processes(Job.of_json(job), [place], limits, ahead, generation=generation)

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


def import_ray() -> Any:
    """Ray, which takes a second to import. Raises UsageError if it is not installed."""
    try:
        import ray
    except ModuleNotFoundError as error:
        hint = install_hint(error.name or "")
        raise UsageError(f"the engine ray takes Ray, which is not installed{hint}.") from None
    return ray


def find_cluster(address: str) -> str:
    """The address itself; for ``auto`` that of RAY_ADDRESS or of a cluster that runs on this machine.

    Raises UsageError if there is none.
    """
    if address != "auto":
        return address
    if given := os.environ.get("RAY_ADDRESS"):
        return given
    from ray._private.services import canonicalize_bootstrap_address  # ray.init would wait for one that has ended

    found = None
    with contextlib.suppress(ConnectionError):
        found = canonicalize_bootstrap_address("auto")
    if found is None:
        raise UsageError(
            "--ray.address auto: no Ray cluster runs on this machine. Start one with `ray start --head`, give HOST:PORT, "
            "or leave the address out for a cluster that lasts as long as the run."
        )
    return str(found)


def check_answer(address: str) -> None:
    """Raises UsageError if no server answers at an address within `ANSWER` seconds; Ray itself would wait for long."""
    parts = urlsplit(address if "://" in address else f"//{address}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if host is None or port is None or parts.scheme not in ("", "ray"):
        raise UsageError(f"--ray.address {address}: expected HOST:PORT, ray://HOST:PORT or auto.")
    end = time.monotonic() + ANSWER
    try:
        with socket.create_connection((host, port), ANSWER) as connection:
            if os.environ.get("RAY_USE_TLS", "0") != "0":
                return
            connection.sendall(HELLO)
            answer = b""
            while len(answer) < 9:
                connection.settimeout(max(end - time.monotonic(), 0.001))
                got = connection.recv(9 - len(answer))
                if not got:
                    break
                answer += got
    except OSError as error:
        why = f"no answer in {ANSWER:g} s" if isinstance(error, TimeoutError) else error.strerror or str(error)
        raise UsageError(
            f"--ray.address {address}: {why}. Is the cluster running (`ray status` on its head), and is the port open?"
        ) from None
    if answer[3:4] != bytes((SETTINGS,)):
        raise UsageError(f"--ray.address {address}: another service than Ray answers there.")


def reason_of(error: BaseException) -> str:
    """The gist of an error of Ray, whose messages have many lines, as one.

    >>> reason_of(Exception("The actor died.\\n\\tpid: 7\\nIts node has died."))
    'The actor died. Its node has died.'
    """
    kept = [line for line in str(error).strip().splitlines() if not line.startswith("\t")]
    return one_line(" ".join(kept)) or type(error).__name__


@hookimpl
def sgdec_engines() -> dict[str, type[Any]]:
    return {"ray": Ray}
