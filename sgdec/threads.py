"""CPU threads: PyTorch starts with as many as there are free cores, and continues with fewer if others need them.

PyTorch's threads meet after each operation, and those that are ready first spin. A thread that has to share its core
with another process therefore delays all others: beside one busy process, two threads on two cores are slower than
one (docs/results/speed.md has the measurements).

The number is one setting of the whole process. A user's setting wins: ``--threads``, ``OMP_NUM_THREADS``, or whatever
PyTorch has where it was imported before sgdec's first run. Free cores are known on Linux; elsewhere the number is
PyTorch's own.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, Protocol
from weakref import WeakSet

USERS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""The variables with which users set the number of threads."""
NEARLY = 0.75
"""This share of a core counts as a free one."""
SHORTEST = 0.1
"""The shortest time in seconds that tells how busy the machine is."""
SECONDS = 1.0
"""The length of the periods in which a run looks for free cores; two in a row have to agree."""


class Pool(NamedTuple):
    """Cores that processes share: those of the machine, or of a control group with a limit."""

    cores: float
    busy: float
    """Seconds that they have worked, for whatever process."""


@dataclass(frozen=True)
class Load:
    """The processor time that the machine and this process have used, at a moment."""

    wall: float
    used: float
    """Seconds of processor time that this process has used."""
    pools: tuple[Pool, ...]
    """Empty where the system does not tell."""

    @classmethod
    def now(cls) -> Load:
        return cls(time.monotonic(), time.process_time(), (*_machine(), *_groups()))

    def free_since(self, earlier: Load) -> float:
        """The number of cores, on average, that this process has used or could have used.

        All that it may use (`usable_cores`) where the system does not tell.
        """
        seconds, used = self.wall - earlier.wall, self.used - earlier.used
        free = [
            pool.cores - max(0.0, pool.busy - before.busy - used) / seconds
            for pool, before in zip(self.pools, earlier.pools, strict=False)
        ]
        return min([usable_cores(), *free])


def whole_cores(free: float, processes: int = 1) -> int:
    """The number of threads for each of several processes that share free cores.

    >>> whole_cores(1.8), whole_cores(1.3), whole_cores(0.2), whole_cores(3.9, processes=2), whole_cores(15, 4)
    (2, 1, 1, 2, 3)
    """
    return max(1, int((free + 1 - NEARLY) / processes))


def free_cores() -> float:
    """The number of cores that no other process uses; the answer takes `SHORTEST` seconds."""
    earlier = Load.now()
    time.sleep(SHORTEST)
    return Load.now().free_since(earlier)


def usable_cores() -> int:
    """The number of cores that this process may use, whether they are free or not."""
    most = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min([most, *(max(1, int(pool.cores)) for pool in _groups())])


def set_by_user() -> bool:
    """Whether the environment says the number of threads."""
    return any(name in os.environ for name in USERS)


class NumericRun(Protocol):
    """A run whose scores the number of threads may change."""

    def agrees(self, numbers: Collection[int]) -> bool:
        """Whether its scores are the same, bit for bit, with each of these numbers of threads."""


class Threads:
    """The number of PyTorch's threads in this process, for all of its runs."""

    def __init__(self) -> None:
        self._start: Load | None = None
        """The load before a run was loaded that imports PyTorch; None = the number is the user's."""
        self._automatic = False
        self._runs: WeakSet[NumericRun] = WeakSet()
        self._lock = threading.Lock()
        """Held to read or change the runs, which can be loaded in several threads."""
        self._period: Load | None = None
        """The load at the beginning of the present period."""
        self._short: list[float] = []
        """The free cores of the last periods, which were too few for the threads."""
        self._waited = 0.0
        """The seconds of all such periods."""
        self._note: str | None = None

    def begin(self) -> None:
        """Remember the load before anything is loaded."""
        if self._start is not None or "torch" in sys.modules:
            return
        if not set_by_user():
            self._start = Load.now()

    def choose(
        self, setting: int | Literal["auto"], *, by_load: bool = True, fixed: bool = False
    ) -> int | None:
        """Set and return the number for a new run: ``setting``; for auto, that of the free cores, unless the user has
        set another one.

        Without ``by_load`` all cores count as free. ``fixed``: the number must not change later. Returns None if
        PyTorch is not loaded.
        """
        start, self._start = self._start, None
        self._period, self._note, self._waited = None, None, 0.0  # those of an earlier run
        self._short.clear()
        if "torch" not in sys.modules:
            return None
        import torch

        number = torch.get_num_threads()
        if setting == "auto" and start is not None:
            number = min(number, usable_cores())
            time.sleep(max(0.0, SHORTEST - (time.monotonic() - start.wall)))
            free = Load.now().free_since(start)
            if by_load and (fewer := whole_cores(free)) < number:
                self._note = f"{fewer}, because other processes work: {free:.1f} of {number} cores were free"
                number = fewer
        elif setting != "auto":
            number = setting
        self._automatic = (start is not None or self._automatic) and setting == "auto" and by_load and not fixed
        if number != torch.get_num_threads():
            torch.set_num_threads(number)
        return number

    def join(self, run: NumericRun) -> None:
        """From now on the number changes only if this run agrees, until it is forgotten."""
        with self._lock:
            self._runs.add(run)

    def watch(self) -> None:
        """Look for free cores, once in a period; continue with fewer threads if there were too few in two periods."""
        if "torch" not in sys.modules or (self._period and time.monotonic() - self._period.wall < SECONDS):
            return
        import torch

        number, (before, self._period) = torch.get_num_threads(), (self._period, Load.now())
        if before is None or number == 1:
            return
        free = self._period.free_since(before)
        if (fewer := whole_cores(free)) >= number:
            self._short.clear()
            return
        self._short.append(free)
        self._waited += self._period.wall - before.wall
        if len(self._short) < 2:
            return
        had = f"{number} threads had {sum(self._short) / len(self._short):.1f} cores"
        with self._lock:
            runs = list(self._runs)
        if self._automatic and all(run.agrees((number, fewer)) for run in runs):
            torch.set_num_threads(fewer)
            self._short.clear()
            self._waited, self._note = 0.0, f"{had}; continued with {fewer}"
        else:
            self._note = f"{had} for {self._waited:.0f} s; --threads {fewer} is faster while other processes work"

    def summary(self) -> str | None:
        """A line for the end of a run if threads had to wait for cores, or if there are fewer for that reason."""
        return self._note


THREADS = Threads()


def _machine() -> Iterator[Pool]:
    """The cores that this process may use, if the system tells how long each has worked (Linux)."""
    try:
        lines = Path("/proc/stat").read_text("ascii").splitlines()
        usable = os.sched_getaffinity(0)
        tick = os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, ValueError):
        return
    busy = 0
    for line in lines:
        name, *ticks = line.split()
        if name[:3] == "cpu" and name[3:].isdigit() and int(name[3:]) in usable:
            idle = slice(3, 5)  # idle, and waiting for a disk
            busy += sum(map(int, ticks[:8])) - sum(map(int, ticks[idle]))
    yield Pool(len(usable), busy / tick)


def _groups() -> Iterator[Pool]:
    """The control groups of this process that have a limit of processor time, as containers do (Linux)."""
    try:
        entries = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text("utf-8").splitlines()]
    except (OSError, ValueError):
        return
    for _, controllers, path in entries:
        if not controllers or "cpu" in controllers.split(","):
            root = Path("/sys/fs/cgroup", controllers)
            inside = root / path.lstrip("/")
            for group in (inside, *inside.parents):
                if group.is_relative_to(root):
                    with contextlib.suppress(OSError, ValueError):
                        yield _limited(group) if controllers else _limited_2(group)


def _limited_2(group: Path) -> Pool:
    """The pool of a group of version 2. Raises OSError or ValueError if it has no limit."""
    most, period = map(float, (group / "cpu.max").read_text("ascii").split())
    usage = dict(line.split() for line in (group / "cpu.stat").read_text("ascii").splitlines())
    return Pool(most / period, int(usage["usage_usec"]) / 1e6)


def _limited(group: Path) -> Pool:
    """The pool of a group of version 1. Raises OSError or ValueError if it has no limit."""
    most, period = (int((group / f"cpu.cfs_{name}_us").read_text("ascii")) for name in ("quota", "period"))
    if most <= 0:
        raise ValueError("no limit")
    return Pool(most / period, int((group / "cpuacct.usage").read_text("ascii")) / 1e9)
