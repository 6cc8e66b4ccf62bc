"""A corpus whose workers cost nothing and fail in every way, under a clock of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from sgdec.corpus.checking import lines_of
from sgdec.corpus.engine import Advanced, Died, Done, Engine, Event, Job, Limits, Receipt, Refused, Task
from sgdec.corpus.leases import Leases
from sgdec.corpus.manifest import Chunk, ChunkTable, Input, Manifest
from sgdec.corpus.results import ChunkResult, name_of, publish_result
from sgdec.corpus.starter import Starter
from sgdec.corpus.stores import FolderStore, Store

KILLED = "killed by SIGKILL"
PATIENCE = 60.0
FAULTS = (
    "dies", "dies after publishing", "dies late", "machine dies", "disk full", "starter dies", "starter sleeps",
    "other run",
)  # fmt: skip


class StarterKilled(Exception):
    """Instead of kill -9."""


def manifest_of(lines: Iterable[int]) -> Manifest:
    """One input with chunks of these numbers of lines."""
    chunks: list[Chunk] = []
    first = 1
    for count in lines:
        chunks.append(Chunk(0, first, count, 0, 0, 0, first))
        first += count
    source = Input("in.txt", "/in.txt", 0, 0, "", first - 1)
    return Manifest([], "/", {}, "text", False, max(lines, default=1), [source], first - 1, ChunkTable.of(chunks))


@dataclass
class World:
    """What all starters and workers share."""

    store: Store
    manifest: Manifest
    rng: np.random.Generator
    poison: frozenset[int] = frozenset()
    """Lines that kill their worker."""
    by: str = "SIGSEGV"
    """The signal with which they do so; SIGKILL: as when memory is short."""
    chance: float = 0.2
    """The probability of a fault at each event."""
    of: tuple[str, ...] = FAULTS
    """The faults that happen."""
    now: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    zombies: list[tuple[Task, str]] = field(default_factory=list)
    """Work that goes on although nobody waits for it any longer."""
    published: dict[str, bytes] = field(default_factory=dict)
    """The first content of each result."""

    def decode(self, task: Task, worker: str) -> Receipt | None:
        assert not self.is_deadly(task)
        ids = lines_of(self.manifest, task)
        rows = "".join(f"{id}\n" for id in ids).encode()
        result = ChunkResult(len(ids), rows, worker=worker, run=self.manifest.run, id=ids.start)
        return publish_result(self.store, task, result)

    def plant_other_run(self, task: Task) -> None:
        """Somebody copies a result of another corpus into the folder, if there is none of this chunk."""
        ids = lines_of(self.manifest, Task(task.chunk))
        result = ChunkResult(len(ids), b"wrong\n" * len(ids), run="other", id=ids.start)
        FolderStore(self.store.place).create(name_of(Task(task.chunk)), result.packed())

    def is_deadly(self, task: Task) -> bool:
        return any(line in self.poison for line in lines_of(self.manifest, task))

    def starter(self, name: str, workers: int = 2, retry: Iterable[Task] = ()) -> Starter:
        leases = Leases(self.store, patience=PATIENCE, clock=lambda: self.now)
        leases.name = name
        leases.pulse()
        engine = FakeEngine(self, name, workers)
        return Starter(self.store, self.manifest, engine, leases, retry=retry, clock=lambda: self.now)


class FakeEngine(Engine):
    """Tasks end at random, or as a list of faults says."""

    def __init__(self, world: World, name: str, workers: int) -> None:
        self._world, self._name = world, name
        self._workers = workers
        self.tasks: list[Task] = []
        self._born = 0

    def start(self, job: Job, workers: int, limits: Limits) -> None:
        raise AssertionError("starters of these tests have an engine that runs")

    def wanted(self) -> int:
        return 2 * self._workers - len(self.tasks)

    def submit(self, task: Task) -> None:
        assert self.wanted() > 0 and task not in self.tasks
        self.tasks.append(task)

    def events(self, seconds: float) -> list[Event]:
        world = self._world
        world.now += world.rng.uniform(0.1, 2 * seconds)
        for task, worker in world.zombies:
            if world.rng.random() < 0.1:
                world.zombies.remove((task, worker))
                world.decode(task, worker)
                break
        if not self.tasks:
            return []
        self._born += 1
        worker = f"{1 + int(world.rng.integers(self._workers))}.{self._born}@{self._name}"
        task = self.tasks[int(world.rng.integers(min(self._workers, len(self.tasks))))]
        if world.rng.random() < 0.2:
            return [Advanced(worker, int(world.rng.integers(10)))]
        self.tasks.remove(task)
        if world.is_deadly(task):
            world.faults["poison"] += 1
            return [Died(worker, task, f"killed by {world.by}", outside=world.by == "SIGKILL")]
        fault = str(world.rng.choice(world.of)) if world.rng.random() < world.chance else ""
        world.faults[fault] += bool(fault)
        if fault == "starter dies":
            left = [each for each in (task, *self.tasks) if not world.is_deadly(each)]
            world.zombies += [(each, worker) for each in left if world.rng.random() < 0.5]
            raise StarterKilled
        if fault == "disk full":
            return [Refused(worker, "in the folder: No space left on device.")]
        if fault == "machine dies":
            others, self.tasks = self.tasks[: self._workers - 1], self.tasks[self._workers - 1 :]
            died = [task, *others, *[None] * (self._workers - 1 - len(others))]  # those without a task, too
            return [Died(f"{n}.{self._born}@{self._name}", each, KILLED, outside=True) for n, each in enumerate(died)]
        if fault == "other run":
            world.plant_other_run(task)
        if fault == "starter sleeps":
            world.now += 2 * PATIENCE
        if fault == "dies late":
            world.zombies.append((task, worker))
        if fault == "dies after publishing":
            world.decode(task, worker)
        if fault.startswith("dies"):
            waiting = tuple(self.tasks[self._workers :])
            self.tasks = self.tasks[: self._workers]
            return [Died(worker, task, KILLED, waiting, outside=True)]
        return [Done(worker, task, world.decode(task, worker))]

    def close(self) -> None:
        self.tasks = []


class WatchedStore(FolderStore):
    """A folder in which every result has to stay as it was published first."""

    def __init__(self, place: str | Path) -> None:
        super().__init__(str(place))
        self.first: dict[str, bytes] = {}

    def create(self, name: str, data: bytes) -> bool:
        created = super().create(name, data)
        if created and name.startswith("results/"):
            assert name not in self.first
            self.first[name] = data
        return created

    def write(self, name: str, data: bytes) -> None:
        assert not name.startswith(("results/", "parts/"))
        super().write(name, data)
