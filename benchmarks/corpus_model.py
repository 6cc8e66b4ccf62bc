"""A corpus that is decoded by workers that die, starters that die, and storage that is slow, as simulated events.

The rules are those of `sgdec.corpus.starter`: a starter is one thread that claims, hands out and notes chunks in
turn; each worker has one chunk and ``ahead`` more that wait; a chunk whose worker dies is tried again, and split
after the second death. The storage serves as many operations at a time as its speed and its latency give, in their
order.

The number of chunks only changes how long the middle of a run lasts, in which failures, queues and speeds are
stationary. So of a run with more chunks than ``most`` only that many are simulated, and the second half of them,
until the last one is claimed, stands for all that are left out: its time and its losses are multiplied.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
import simpy
from corpus_costs import CLAIM, FAST, MERGE, PUBLISH, RESCAN, SETTLE, SKIP, Costs

from sgdec.corpus.starter import DEATHS, IN_A_ROW

HOUR = 3600.0
REPEATS = 5
"""The most runs of one case."""


@dataclass(frozen=True)
class Case:
    """A run. Times are in seconds."""

    lines: int = 1_000_000_000
    chunk: int = 10_000
    workers: int = 1000
    starters: int = 1
    costs: Costs = FAST
    ahead: int = 1
    failures: float = 0.01 / HOUR
    """The rate at which each machine dies."""
    starter_failures: float = 0.01 / HOUR
    machine: int = 1
    """The workers that die together."""
    spread: float = 0.2
    """The standard deviation of the logarithm of a worker's speed."""
    slow: float = 0.01
    """The share of workers that are five times slower."""
    patience: float = 60.0
    """Until the leases of a dead starter are taken over."""
    restart: float = 300.0
    """Until somebody starts a dead starter again."""
    leapfrog: bool = False
    """Whether all starters try all chunks in the same order, so each finds those of the others one by one. Those of
    sgdec begin at different places, and list a folder of 1,000 chunks when they meet one; that is neglected."""
    splitting: bool = True
    seed: int = 1

    @property
    def chunks(self) -> int:
        return math.ceil(self.lines / self.chunk)


@dataclass(frozen=True)
class Ran:
    """The figures of a run."""

    seconds: float
    """Until all starters have ended."""
    ideal: float
    """All workers decode from the start to the end, and nothing else happens."""
    wasted: float
    """Lines that were decoded in vain, by those of the corpus."""
    busy: float
    """The share of the time in which the starters' threads worked."""
    storage: float
    """The share of the storage's operations that were used."""
    in_a_row: float
    """The most deaths of workers of one starter between two results, by the number at which it stops."""
    tail: float
    """The seconds from the last chunk that is claimed for the first time to the end of the last one."""

    @property
    def relative(self) -> float:
        return self.seconds / self.ideal


def run(case: Case, most: int = 20_000) -> Ran:
    """Simulate a case, of its chunks at most this number. Small cases are repeated with other seeds, and averaged."""
    times = max(1, min(REPEATS, most // case.chunks))
    ran = [Simulation(replace(case, seed=case.seed + number), most).run() for number in range(times)]
    return Ran(*(float(np.mean([getattr(each, field.name) for each in ran])) for field in fields(Ran)))


def around(case: Case) -> Mapping[str, float]:
    """Before and after the work, by formulas: seconds of reading the input, of reading the manifest and of the merge,
    and bytes of the manifest in each process."""
    costs = case.costs
    return {
        "survey": costs.survey_byte * costs.bytes * case.lines,
        "manifest": costs.manifest * case.chunks,
        "manifest bytes": costs.manifest_bytes * case.chunks,
        "merge": case.chunks * (costs.merge_chunk + costs.seconds(MERGE))
        + costs.merge_byte * costs.bytes * case.lines,
    }


@dataclass
class Task:
    """Lines of a chunk."""

    lines: int
    deaths: int = 0
    part: bool = False


class Failures:
    """The times at which a machine dies, drawn when they are needed."""

    def __init__(self, rate: float, rng: np.random.Generator) -> None:
        self._rate, self._rng = rate, rng
        self._next = self._draw()

    def after(self, now: float) -> float:
        """The first one after a time; calls come in the order of time."""
        while self._next <= now:
            self._next += self._draw()
        return self._next

    def _draw(self) -> float:
        return float(self._rng.exponential(1 / self._rate)) if self._rate else math.inf


class Starter:
    """One start, until it dies or all is done."""

    def __init__(self, env: simpy.Environment, dies: float, cursor: int) -> None:
        self.thread = simpy.Resource(env, 1)
        self.dies, self.cursor = dies, cursor
        self.retry: deque[Task] = deque()
        self.hungry: deque[Worker] = deque()
        self.workers: list[Worker] = []
        self.in_a_row = 0
        self.dead = False


class Worker:
    """A place of a starter where a process works, and another one if that dies."""

    def __init__(self, env: simpy.Environment, speed: float, machine: Failures) -> None:
        self.speed, self.machine = speed, machine
        self.tasks: deque[Task] = deque()
        self.asked = 0
        """Tasks that it has or that are on their way."""
        self._env = env
        self._called: simpy.Event | None = None

    def give(self, *tasks: Task) -> None:
        """Tasks; none: it shall look whether its starter lives."""
        self.tasks.extend(tasks)
        if self._called is not None:
            self._called.succeed()
            self._called = None

    def waits(self) -> simpy.Event:
        """Until something is given."""
        self._called = self._env.event()
        return self._called


class Storage:
    """Serves some operations at a time, in the order in which they come. Each says at once when it will be done."""

    def __init__(self, env: simpy.Environment, places: int) -> None:
        self.places, self.busy = places, 0.0
        self._env, self._free = env, [0.0] * places

    def serve(self, seconds: float) -> simpy.Event:
        begins = max(self._env.now, self._free[0])
        heapq.heapreplace(self._free, begins + seconds)
        self.busy += seconds
        return self._env.timeout(begins + seconds - self._env.now)


class Mark(NamedTuple):
    """A moment of a run."""

    seconds: float
    wasted: float
    thread_busy: float
    storage_busy: float
    skipped: float


class Simulation:
    """One run of a case, from the first worker that starts to the last chunk that is done."""

    def __init__(self, case: Case, most: int) -> None:
        self._case, self._costs = case, case.costs
        self._env = simpy.Environment()
        self._rng = np.random.default_rng(case.seed)
        self._storage = Storage(self._env, max(1, round(self._costs.operations * self._costs.operation)))
        self._chunks = min(case.chunks, most)
        self._fresh = self._chunks
        """Chunks that nobody has claimed; the next one is number ``chunks - fresh``."""
        self._last = case.lines - (case.chunks - 1) * case.chunk
        self._left = (self._chunks - 1) * case.chunk + self._last
        self._more = (case.chunks - self._chunks) / (self._chunks - self._chunks // 2)
        """The chunks that are left out, by those of the second half."""
        self._middle = self._claimed = Mark(0.0, 0.0, 0.0, 0.0, 0.0)
        self._orphans: deque[Task] = deque()
        self._alive: list[Starter] = []
        self._wasted = self._thread_busy = self._skipped = 0.0
        self._in_a_row = 0
        self._done = self._env.event()
        speeds = np.exp(self._rng.normal(0, case.spread, case.workers))
        speeds[: round(case.slow * case.workers)] /= 5
        self._speeds = self._rng.permutation(speeds).tolist()

    def run(self) -> Ran:
        case = self._case
        machines = [Failures(case.failures, self._rng) for _ in range(math.ceil(case.workers / case.machine))]
        of_workers = [machines[place // case.machine] for place in range(case.workers)]
        for number in range(case.starters):
            mine = range(number, case.workers, case.starters)
            self._env.process(self._starts(mine, of_workers, Failures(case.starter_failures, self._rng)))
        self._env.run(until=self._done)
        middle, claimed = self._middle, self._claimed
        seconds, wasted, thread, storage, _ = (
            now + self._more * (last - half) for now, last, half in zip(self._mark(), claimed, middle, strict=True)
        )
        tail = self._env.now - claimed.seconds
        seconds = max(seconds, seconds - tail + self._rescanning(middle, claimed))
        limit = IN_A_ROW + case.chunk.bit_length()
        return Ran(
            seconds, case.lines * self._costs.line / sum(self._speeds), wasted / case.lines,
            thread / case.starters / seconds, storage / self._storage.places / seconds, self._in_a_row / limit, tail,
        )  # fmt: skip

    def _mark(self) -> Mark:
        return Mark(self._env.now, self._wasted, self._thread_busy, self._storage.busy, self._skipped)

    def _rescanning(self, middle: Mark, claimed: Mark) -> float:
        """The seconds in which a starter finds done, one by one, what it found taken."""
        skipped = claimed.skipped + self._more * (claimed.skipped - middle.skipped)
        return self._costs.seconds(RESCAN, skipped / self._case.starters)

    def _starts(self, mine: range, machines: list[Failures], failures: Failures) -> Iterator[Any]:
        """One starter after the other, each with new workers."""
        case, env = self._case, self._env
        while True:
            starter = Starter(env, failures.after(env.now), self._chunks - self._fresh)
            starter.workers = [Worker(env, self._speeds[place], machines[place]) for place in mine]
            self._alive.append(starter)
            for worker in starter.workers:
                env.process(self._works(starter, worker))
            if math.isinf(starter.dies):
                return
            yield env.timeout(starter.dies - env.now)
            self._bury(starter)
            yield env.timeout(case.restart)

    def _bury(self, starter: Starter) -> None:
        starter.dead = True
        self._alive.remove(starter)
        for task in starter.retry:
            self._orphan(task)
        for worker in starter.workers:
            for task in worker.tasks:
                self._orphan(task)
            worker.tasks.clear()
            worker.give()

    def _orphan(self, task: Task) -> None:
        """A task whose starter is dead; others take it over when they have waited."""

        def later() -> Iterator[Any]:
            yield self._env.timeout(self._case.patience)
            self._orphans.append(task)
            for starter in self._alive:
                if starter.hungry:
                    self._ask(starter, starter.hungry.popleft())
                    return

        self._env.process(later())

    def _works(self, starter: Starter, worker: Worker) -> Iterator[Any]:
        """All processes at one place."""
        env = self._env
        while not starter.dead:
            yield env.timeout(self._costs.load)
            while worker.asked < 1 + self._case.ahead:
                self._ask(starter, worker)
            while True:
                if not worker.tasks:
                    yield worker.waits()
                if starter.dead:
                    return
                task = worker.tasks.popleft()
                seconds = task.lines * self._costs.line / worker.speed
                ends = min(env.now + seconds, worker.machine.after(env.now), starter.dies)
                lived = ends == env.now + seconds
                begun = env.now
                yield env.timeout(ends - env.now)
                if not lived:
                    self._wasted += task.lines * (env.now - begun) / seconds
                    if starter.dies <= env.now:
                        self._orphan(task)
                        return
                    self._died(starter, worker, task)
                    break
                yield self._storage.serve(self._costs.seconds(PUBLISH))
                self._left -= task.lines
                if self._left <= 0:
                    self._done.succeed()
                    return
                worker.asked -= 1
                if not starter.dead:
                    self._ask(starter, worker, settle=True)

    def _died(self, starter: Starter, worker: Worker, task: Task) -> None:
        starter.in_a_row += 1
        self._in_a_row = max(self._in_a_row, starter.in_a_row)
        worker.asked -= 1 + len(worker.tasks)
        starter.retry.extend(worker.tasks)
        worker.tasks.clear()
        task.deaths += 1
        if self._case.splitting and task.lines > 1 and (task.part or task.deaths >= DEATHS):
            half = task.lines // 2
            starter.retry.extendleft([Task(task.lines - half, part=True), Task(half, part=True)])
        else:
            starter.retry.appendleft(task)
        for _ in range(min(len(starter.hungry), len(starter.retry))):
            self._ask(starter, starter.hungry.popleft())

    def _ask(self, starter: Starter, worker: Worker, settle: bool = False) -> None:
        worker.asked += 1
        self._env.process(self._serves(starter, worker, settle))

    def _serves(self, starter: Starter, worker: Worker, settle: bool) -> Iterator[Any]:
        """The thread of a starter notes a result, and hands out the next task."""
        with starter.thread.request() as turn:
            yield turn
            begun, seconds = self._env.now, 0.0
            if settle:
                starter.in_a_row = 0
                seconds += self._costs.seconds(SETTLE)
            task, skipped = (None, 0) if starter.dead else self._next(starter)
            if task is None:
                worker.asked -= 1
                starter.hungry.append(worker)
            else:
                seconds += self._costs.seconds(SKIP, skipped) + self._costs.seconds(CLAIM)
            if seconds:
                yield self._storage.serve(seconds)
                yield self._env.timeout(self._costs.message)
            self._thread_busy += self._env.now - begun
        if task is not None:
            if starter.dead:
                self._orphan(task)
            else:
                worker.give(task)

    def _next(self, starter: Starter) -> tuple[Task | None, int]:
        """A task, and the number of chunks of other starters that are tried before it."""
        if starter.retry:
            return starter.retry.popleft(), 0
        if not self._fresh:
            return (self._orphans.popleft() if self._orphans else None), 0
        if self._fresh == self._chunks - self._chunks // 2:
            self._middle = self._mark()
        if self._fresh == 1:
            self._claimed = self._mark()
        number = self._chunks - self._fresh
        skipped = number - starter.cursor if self._case.leapfrog else 0
        starter.cursor = number + 1
        self._skipped += skipped
        self._fresh -= 1
        return Task(self._case.chunk if self._fresh else self._last), skipped


def young(overhead: float, failures: float) -> float:
    """The seconds of a chunk with the least overhead plus expected loss, to first order: J. W. Young, A first order
    approximation to the optimum checkpoint interval, Communications of the ACM 17(9), 1974."""
    return math.sqrt(2 * overhead / failures)


def lost(seconds: float, failures: float) -> float:
    """The expected seconds that are decoded in vain until a chunk is done without a death in it: deaths are a Poisson
    process, and each loses the time since the start of the attempt."""
    return math.expm1(failures * seconds) / failures - seconds
