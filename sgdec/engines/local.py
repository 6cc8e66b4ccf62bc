"""Workers on this machine: processes that share the pages of memory-mapped weights."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import IO, Annotated, Any

from annotated_types import Ge

from sgdec.corpus.engine import Died, Done, Engine, Event, Job, Limits, Ready, Refused, Task
from sgdec.engines.process import event_of
from sgdec.errors import one_line
from sgdec.plugins.hookspecs import hookimpl

POLL = 0.25
"""Seconds between two looks at the workers."""
ENDING = 10.0
"""Seconds that a killed process may take to end."""


class Local(Engine):
    """Processes of this machine.

    The cores are divided among the workers, unless ``--threads`` is given. With ``--device cuda`` the workers are
    divided among the GPUs that ``CUDA_VISIBLE_DEVICES`` names.
    """

    def __init__(self, ahead: Annotated[int, Ge(0)] = 1) -> None:
        """
        Args:
            ahead: number of tasks that wait at each worker, so that it need not wait for the starter
        """
        self._ahead = ahead
        self._workers: list[_Process] = []
        self._said: queue.Queue[tuple[_Process, Event | None]] = queue.Queue()
        self._job: Job | None = None
        self._limits = Limits()
        self._started = 0

    def start(self, job: Job, workers: int, limits: Limits) -> None:
        """Start the processes. Those that die are started again under other names."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        settings = {"threads": max(1, cores // workers), **{k: v for k, v in job.settings.items() if v is not None}}
        self._job, self._limits = replace(job, settings=settings), limits
        self._workers = [self._new(place) for place in range(workers)]

    def wanted(self) -> int:
        return sum(max(0, 1 + self._ahead - len(each.tasks)) for each in self._workers if each.ready)

    def submit(self, task: Task) -> None:
        min((each for each in self._workers if each.ready), key=lambda each: len(each.tasks)).give(task)

    def events(self, seconds: float) -> list[Event]:
        found: list[Event] = []
        end = time.monotonic() + seconds
        while not found and (left := end - time.monotonic()) > -POLL:
            with contextlib.suppress(queue.Empty):
                found += self._heard(*self._said.get(timeout=max(min(left, POLL), 0.001)))
                while True:
                    found += self._heard(*self._said.get_nowait())
            for each in self._workers:
                each.watch(self._limits)
        return found

    def close(self) -> None:
        for each in self._workers:
            each.kill("")
        for each in self._workers:
            each.end()
        self._workers = []

    def _new(self, place: int) -> _Process:
        assert self._job is not None
        self._started += 1
        return _Process(f"{place + 1}.{self._started}", place, self._job, self._said)

    def _heard(self, process: _Process, event: Event | None) -> list[Event]:
        """Events for the starter; None = the process has ended."""
        if process not in self._workers:
            return []
        if event is not None:
            process.heard(event)
            return [event]
        place = self._workers.index(process)
        task = process.tasks[0] if process.tasks else None
        died = Died(process.name, task, process.end(), tuple(process.tasks[1:]))
        self._workers[place] = self._new(place)
        return [] if process.refused else [died]


class _Process:
    """One worker."""

    def __init__(self, name: str, place: int, job: Job, said: queue.Queue[tuple[_Process, Event | None]]) -> None:
        self.name, self.place = name, place
        self.tasks: list[Task] = []
        self.ready = self.refused = False
        self._reason = ""
        self._since = time.monotonic()
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by end()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "sgdec.engines.process", name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True, encoding="utf-8",
            env=_environment(job, place), start_new_session=True,
        )  # fmt: skip
        self._said = said
        self._tell(job.to_json())
        threading.Thread(target=self._listen, daemon=True).start()

    def give(self, task: Task) -> None:
        if not self.tasks:
            self._since = time.monotonic()
        self.tasks.append(task)
        self._tell(json.dumps(task))

    def heard(self, event: Event) -> None:
        self._since = time.monotonic()
        self.ready |= isinstance(event, Ready)
        self.refused |= isinstance(event, Refused)
        if isinstance(event, Done):
            self.tasks.pop(0)

    def watch(self, limits: Limits) -> None:
        """Kill the process if it exceeds a limit."""
        if self._reason:
            return
        still = time.monotonic() - self._since
        if limits.line_seconds is not None and self.tasks and still > limits.line_seconds:
            self.kill(f"finished no line in {limits.line_seconds:g} s (--line-seconds)")
        if limits.memory is not None and (used := own_memory(self._process.pid)) > limits.memory:
            self.kill(f"used {used >> 20:,} MiB of memory, more than {limits.memory >> 20:,} (--worker-memory)")

    def kill(self, reason: str) -> None:
        """Kill the process and its children."""
        self._reason = self._reason or reason
        self.ready = False
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def end(self) -> str:
        """Wait for the end of the process; the reason why it ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(ENDING)
        with contextlib.suppress(OSError):
            self._process.stdin.close()  # type: ignore[union-attr]
        self.kill("")  # what it has started and left
        reason = self._reason or self._why()
        self._errors.close()
        return reason

    def _why(self) -> str:
        status = self._process.returncode
        if status is not None and status < 0:
            name = signal.Signals(-status).name if -status in set(signal.Signals) else str(-status)
            return f"killed by {name}"
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return f"ended with status {status}" + (f": {one_line(lines[-1])}" if lines else "")

    def _tell(self, line: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # it has died, which _listen says
            assert self._process.stdin is not None
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(ValueError):  # a line that was cut short by death
            for line in self._process.stdout:
                self._said.put((self, event_of(json.loads(line))))
        self._process.stdout.close()
        self._said.put((self, None))


def own_memory(pid: int) -> int:
    """The bytes that a process holds, without mapped files, which are shared; 0 if that cannot be known."""
    kinds: dict[str, int] = {}
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name in ("RssAnon", "RssShmem"):
                kinds[name] = int(value.split()[0]) << 10
    except (OSError, ValueError):
        return 0
    return sum(kinds.values())


def _environment(job: Job, place: int) -> dict[str, str]:
    """The threads of numeric libraries, and the GPU of a worker."""
    chosen = {name: str(job.settings["threads"]) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    if str(job.settings.get("device", "")).startswith("cuda"):
        gpus = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(_gpus())))
        listed = gpus.split(",")
        chosen["CUDA_VISIBLE_DEVICES"] = listed[place % len(listed)]
    return {**os.environ, **chosen}


def _gpus() -> int:
    return max(1, len(list(Path("/proc/driver/nvidia/gpus").glob("*"))))


@hookimpl
def sgdec_engines() -> dict[str, type[Any]]:
    return {"local": Local}
