"""Workers in processes of one machine: how they are started, watched, killed and replaced."""

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
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, Annotated

from pydantic import Field

from sgdec.corpus.engine import Died, Done, Event, Job, Limits, Ready, Refused, Task
from sgdec.engines.messages import event_of
from sgdec.errors import UsageError, one_line

POLL = 0.25
"""Seconds between two looks at the workers."""
TAIL = 1 << 14
"""The bytes at the end of what a process has printed in which its last words are looked for."""
ENDING = 10.0
"""Seconds that a killed process may take to end."""
_FAULTS = {f"SIG{name}" for name in ("ABRT", "BUS", "FPE", "ILL", "SEGV", "SYS", "TRAP")}
FAULTS = tuple(number for number in signal.Signals if number.name in _FAULTS)
"""The signals of faults of a process itself, those that this system has."""
AGAIN = 60.0
"""The most seconds before a worker is started again that has died several times while it was loading."""
OWN_GROUP = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)
"""The flag of Windows for a new process that Ctrl-C does not reach, as in a new session on POSIX."""
Ahead = Annotated[
    int, Field(ge=0, description="tasks that wait at each worker, so that it need not wait for the starter")
]
"""An option of engines."""


class Processes:
    """Workers in processes of this machine; those that die are started again, under another name.

    One that dies while it is loading, twice or more in a row, is started again after 1 s, 2 s, 4 s and so on, so that
    a worker that finds no memory or no GPU does not take the time of the others.

    Tasks can be submitted by one thread while another waits for events.
    """

    def __init__(self, job: Job, places: Iterable[int], limits: Limits, ahead: int, *, generation: int = 1) -> None:
        """``job``: its settings have the number of threads.
        ``places``: the numbers of these workers among all workers of the run, from 0.
        ``generation``: the second part of the first names of the workers.

        Raises UsageError for a limit on memory where this system does not say how much a process uses.
        """
        if limits.memory is not None and not own_memory(os.getpid()):
            raise UsageError(
                "--worker-memory: only Linux says how much memory a worker uses. Leave it out, or run on Linux."
            )
        self._job, self._limits, self._ahead = job, limits, ahead
        self._said: queue.Queue[tuple[_Process, Event | None]] = queue.Queue()
        self._lock = threading.Lock()
        self._all = [_Process(place, generation, job, self._said) for place in places]

    def wanted(self) -> int:
        """See `Engine.wanted`."""
        return sum(max(0, 1 + self._ahead - len(each.tasks)) for each in self._all if each.ready)

    def submit(self, task: Task) -> None:
        """See `Engine.submit`. A process that is still loading gets the task if no other is ready."""
        with self._lock:
            min(self._all, key=lambda each: (not each.ready, len(each.tasks))).give(task)

    def events(self, seconds: float) -> list[Event]:
        """See `Engine.events`."""
        found: list[Event] = []
        end = time.monotonic() + seconds
        while True:
            with contextlib.suppress(queue.Empty):
                found += self._heard(*self._said.get(timeout=min(max(end - time.monotonic(), 0.001), POLL)))
                while True:
                    found += self._heard(*self._said.get_nowait())
            with self._lock:
                for each in self._all:
                    each.watch(self._limits)
            if found or time.monotonic() >= end:
                return found

    def close(self) -> None:
        """See `Engine.close`."""
        with self._lock:
            for each in self._all:
                each.kill("")
            for each in self._all:
                each.end()
            self._all = []

    def _heard(self, process: _Process, event: Event | None) -> list[Event]:
        """Events for the starter; None = the process has ended."""
        with self._lock:
            if process not in self._all:
                return []
            if event is not None:
                process.heard(event)
                return [event]
            reason = process.end()
            died = died_with(process.tasks, process.loaded, process.name, reason, outside=process.killed_from_outside)
            self._all[self._all.index(process)] = process.successor()
            return [] if process.refused else [died]


class _Process:
    """One worker."""

    def __init__(
        self, place: int, generation: int, job: Job, said: queue.Queue[tuple[_Process, Event | None]],
        *, failures: int = 0,
    ) -> None:  # fmt: skip
        """``failures``: how many of its predecessors have died one after the other while they were loading."""
        self.name = f"{place + 1}.{generation}"
        self.tasks: list[Task] = []
        self.loaded = self.refused = self._killed = False
        self._place, self._generation, self._job, self._said = place, generation, job, said
        self._failures = failures
        self._reason = ""
        self._begins = self._since = time.monotonic() + pause_after(failures)
        self._process: subprocess.Popen[str] | None = None
        """None as long as it waits to begin."""
        self._begin_if_due()

    @property
    def ready(self) -> bool:
        """Whether it can work on tasks."""
        return self.loaded and not self._killed

    def successor(self) -> _Process:
        """A new process in the place of this one, which has died."""
        failures = 0 if self.loaded else self._failures + 1
        return _Process(self._place, self._generation + 1, self._job, self._said, failures=failures)

    @property
    def killed_from_outside(self) -> bool:
        """Whether it has ended by a signal that its own work does not raise, and that is not ours."""
        status = None if self._process is None else self._process.returncode
        return not self._reason and status is not None and status < 0 and -status not in FAULTS

    def give(self, task: Task) -> None:
        if not self.tasks:
            self._since = time.monotonic()
        self.tasks.append(task)
        if self._process is not None:
            self._tell(json.dumps(task))

    def heard(self, event: Event) -> None:
        self._since = time.monotonic()
        self.loaded |= isinstance(event, Ready)
        self.refused |= isinstance(event, Refused)
        if isinstance(event, Done):
            self.tasks.pop(0)

    def watch(self, limits: Limits) -> None:
        """Kill the process if it exceeds a limit, or begin it if it has waited long enough."""
        self._begin_if_due()
        if self._killed or self._process is None:
            return
        if limits.memory is not None and (used := own_memory(self._process.pid)) > limits.memory:
            self.kill(f"used {used >> 20:,} MiB of memory, more than {limits.memory >> 20:,} (--worker-memory)")
        still = time.monotonic() - self._since
        if limits.load_seconds is not None and not self.loaded and still > limits.load_seconds:
            self.kill(f"was not ready after {limits.load_seconds:g} s (--load-seconds)")
        if limits.line_seconds is not None and self.loaded and self.tasks and still > limits.line_seconds:
            self.kill(f"finished no line in {limits.line_seconds:g} s (--line-seconds)")

    def kill(self, reason: str) -> None:
        """Kill the process and its children; on Windows only the process."""
        self._reason = self._reason or reason
        self._killed = True
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if hasattr(os, "killpg"):
                    os.killpg(self._process.pid, signal.SIGKILL)
                else:  # Windows
                    self._process.kill()

    def end(self) -> str:
        """Wait for the end of the process; the reason why it ended."""
        if self._process is None:
            return self._reason
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(ENDING)
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self.kill("")  # what it has started and left
        reason = self._reason or self._why(self._process.returncode)
        self._errors.close()
        return reason

    def _begin_if_due(self) -> None:
        if self._process is not None or self._killed or time.monotonic() < self._begins:
            return
        try:
            with contextlib.ExitStack() as stack:
                self._errors: IO[bytes] = stack.enter_context(tempfile.TemporaryFile())
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "sgdec.engines.process", self.name],  # -P: not the user's random.py
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True, encoding="utf-8",
                    env=_environment(self._job, self._place), start_new_session=True, creationflags=OWN_GROUP,
                )  # fmt: skip
                stack.pop_all()  # end() closes it
        except OSError as error:  # no memory, no disk
            self.kill(f"cannot be started: {error.strerror or error}")
            self._said.put((self, None))
            return
        self._tell(self._job.to_json())
        for task in self.tasks:
            self._tell(json.dumps(task))
        threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True).start()

    def _why(self, status: int | None) -> str:
        if status is not None and status < 0:
            name = signal.Signals(-status).name if -status in set(signal.Signals) else str(-status)
            return f"killed by {name}"
        self._errors.seek(max(0, self._errors.seek(0, os.SEEK_END) - TAIL))
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return f"ended with status {status}" + (f": {one_line(lines[-1])}" if lines else "")

    def _tell(self, line: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # it has died, which _listen says
            assert self._process is not None and self._process.stdin is not None
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()

    def _listen(self, answers: IO[str]) -> None:
        with contextlib.suppress(ValueError):  # a line that was cut short by death
            for line in answers:
                self._said.put((self, event_of(line)))
        answers.close()
        self._said.put((self, None))


def pause_after(failures: int) -> float:
    """Seconds before a worker is started again whose predecessors died so many times while they were loading.

    >>> [pause_after(failures) for failures in (0, 1, 2, 3, 4, 99)]
    [0.0, 0.0, 1.0, 2.0, 4.0, 60.0]
    """
    return min(2.0 ** min(failures - 2, 10), AGAIN) if failures > 1 else 0.0


def died_with(tasks: Sequence[Task], loaded: bool, worker: str, reason: str, *, outside: bool) -> Died:
    """The death of a worker that had these tasks, of which it had begun the first one if it was loaded."""
    begun = bool(loaded and tasks)
    return Died(worker, tasks[0] if begun else None, reason, tuple(tasks[begun:]), outside)


def own_memory(pid: int) -> int:
    """The bytes that a process holds, without mapped files, which are shared; 0 if that cannot be known (only Linux
    says it)."""
    kinds: dict[str, int] = {}
    try:
        for line in Path(f"/proc/{pid}/status").read_text("utf-8").splitlines():
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
        listed = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(_gpus())))).split(",")  # "": none
        chosen["CUDA_VISIBLE_DEVICES"] = listed[place % len(listed)]
    return {**os.environ, **chosen}


def _gpus() -> int:
    return max(1, len(list(Path("/proc/driver/nvidia/gpus").glob("*"))))
