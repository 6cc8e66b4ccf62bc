"""The bookkeeping of one start of ``sgdec corpus``: which chunks to claim, to hand out, and to give up.

The folder decides what is done; all that is in memory here can be lost. A chunk whose worker dies is tried again.
After the second death it is split in two, and so is each part whose worker dies, until single lines are left. A line
that kills its workers by itself (`sgdec.corpus.deaths`) is given up: it has no output, and the reason is in the list
of failed lines. A line that may be innocent stays undecided: its chunk is not done, and the next start tries again.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any
from zlib import crc32

from sgdec.corpus import undecided
from sgdec.corpus.checking import Results, lines_of, usable_result
from sgdec.corpus.deaths import OWN, Deaths
from sgdec.corpus.engine import Advanced, Died, Done, Engine, Event, Ready, Receipt, Refused, Task
from sgdec.corpus.given_up import rows_of_given_up
from sgdec.corpus.leases import Leases, chunks_beside, chunks_in
from sgdec.corpus.manifest import Chunk, Manifest, refuse_other_signature
from sgdec.corpus.results import (
    PARTS,
    ChunkResult,
    Failure,
    chunks_with,
    name_of,
    publish_result,
    results_of_some,
)
from sgdec.corpus.stores import Store
from sgdec.errors import SgdecError, counted

log = logging.getLogger(__name__)

DEATHS = OWN
"""The deaths after which a chunk is split."""
IN_A_ROW = 50
"""The number of deaths without a finished task between them that stop the run, because lines cannot be the reason.
Bisecting a chunk to one bad line takes more deaths, which are added. The death of a worker that is loading does not
count as long as others have tasks."""
AGAIN = 2.0
"""Seconds between two looks at the chunks of other starters."""


@dataclass
class CorpusProgress:
    """The work of this start, and what it has seen."""

    lines: int = 0
    """Lines of results that this start published."""
    failed: int = 0
    chunks: int = 0
    """Chunks that are done, by whomever."""
    deaths: int = 0
    by_worker: dict[str, int] = field(default_factory=dict)
    """Finished lines by the place of the worker."""
    pending: dict[str, int] = field(default_factory=dict)
    """Lines of its current task by worker."""

    @property
    def underway(self) -> int:
        """Lines that workers are done with, and that are not published yet."""
        return sum(self.pending.values())


class Starter:
    """Hands out the chunks of a manifest to an engine that has started, until all are done."""

    def __init__(
        self,
        store: Store,
        manifest: Manifest,
        engine: Engine,
        leases: Leases,
        *,
        retry: Iterable[Task] = (),
        names: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``retry``: lines of chunks that are done, which have failed and are tried again. ``names``: those of the
        predictors."""
        self.progress = CorpusProgress()
        self.stopping = False
        """Whether to hand out nothing more."""
        self._store, self._manifest, self._engine, self._leases = store, manifest, engine, leases
        self._clock, self._names = clock, names
        self._parts: dict[int, list[Task]] = {chunk: [] for chunk in chunks_with(store, PARTS)}
        """The tasks of chunks that were split, in order."""
        done = set(chunks_in(store, "results")).intersection(range(len(manifest.chunks)))
        self.progress.chunks = len(done)
        self._waiting = deque(chunk for chunk in range(len(manifest.chunks)) if chunk not in done)
        if self._waiting and any(not other.get("ended") for other in leases.others()):  # to meet few chunks of theirs
            self._waiting.rotate(crc32(leases.name.encode()) % len(self._waiting))
        self._done_by_others: set[int] = set()
        """Chunks of one folder, as it was when we last met a chunk that another starter has done."""
        self._taken: deque[int] = deque()
        """Chunks that other starters had when we last looked."""
        self._looked = clock()
        self._retry: deque[Task] = deque(retry)
        """Tasks that need no claim and wait for a worker, after a death or a split."""
        self._flying: set[Task] = set()
        self._deaths = Deaths(clock)
        self._accused: dict[Task, str] = {}
        """Single lines whose last death was a moment ago, and its reason."""
        self._undecided: set[Task] = set()
        self._in_a_row = self._most_flying = 0

    @property
    def flying(self) -> int:
        """The tasks that workers have."""
        return len(self._flying)

    @property
    def finished(self) -> bool:
        """Whether all chunks are done; or, if it is stopping, whether no worker has a task."""
        if self.stopping:
            return not self._flying
        return not (self._waiting or self._taken or self._retry or self._flying or self._accused)

    def step(self, seconds: float) -> None:
        """Hand out what can be handed out, and react to what happens within this time.

        Raises SgdecError if the run cannot continue.
        """
        if not self.stopping:
            self._hand_out()
        for event in self._engine.events(seconds):
            self.react(event)
        for task, reason in list(self._accused.items()):
            self._judge(task, reason)

    def react(self, event: Event) -> None:
        """Take note of one event."""
        if isinstance(event, Ready):
            refuse_other_signature(self._manifest.signature, event.hello.signature, self._store)
        elif isinstance(event, Advanced):
            self.progress.pending[event.worker] = event.lines
        elif isinstance(event, Refused):
            raise event.error
        elif isinstance(event, Done):
            self._in_a_row = 0
            self.progress.pending.pop(event.worker, None)
            self._flying.discard(event.task)
            self._finish(event.task, event.receipt, event.worker)
        else:
            self._bury(event)

    def give_back(self) -> None:
        """Give up the leases of everything that is not done."""
        for chunk in {task.chunk for task in (*self._flying, *self._retry, *self._accused, *self._undecided)}:
            self._leases.release(chunk)

    def _hand_out(self) -> None:
        for _ in range(self._engine.wanted()):
            task = self._next()
            if task is None:
                return
            self._flying.add(task)
            self._most_flying = max(self._most_flying, len(self._flying))
            self._engine.submit(task)

    def _next(self) -> Task | None:
        while True:
            if self._retry:
                return self._retry.popleft()
            if not self._waiting:
                if not self._taken or self._clock() - self._looked < AGAIN:
                    return None
                self._looked = self._clock()
                self._waiting, self._taken = self._taken, deque()
            chunk = self._waiting.popleft()
            if chunk in self._done_by_others:
                self.progress.chunks += 1
                continue
            claim = self._leases.claim(chunk)
            if claim == "taken":
                self._taken.append(chunk)
            elif self._published(chunk, recorded=claim == "done"):
                self.progress.chunks += 1
                self._done_by_others = set(chunks_beside(self._store, "results", chunk))
            elif chunk in self._parts:
                self._resume_parts(chunk)
            else:
                return Task(chunk)

    def _published(self, chunk: int, *, recorded: bool = False) -> bool:
        """Whether a chunk has a result. A missing record is written: its starter died before it could.

        Raises SgdecError if the result cannot be used.
        """
        if recorded and (self._leases.record(chunk) or {}).get("run") == self._manifest.run:
            return self._store.exists(name_of(Task(chunk)))
        found = usable_result(self._store, self._manifest, Task(chunk))
        if found is None:
            return False
        self._leases.settle(chunk, asdict(found[1]))
        return True

    def _finish(self, task: Task, receipt: Receipt | None, worker: str) -> None:
        if receipt is not None:
            self.progress.lines += receipt.lines
            self.progress.failed += receipt.failed
            place = worker.partition(".")[0]
            self.progress.by_worker[place] = self.progress.by_worker.get(place, 0) + receipt.lines
        if task.again:
            return
        if task.lines is not None:
            self._join(task.chunk)
            return
        self._settle(task.chunk, receipt)
        self._parts.pop(task.chunk, None)

    def _settle(self, chunk: int, receipt: Receipt | None) -> None:
        """Note that a chunk is done. ``receipt``: that of its result; None: another result was there first."""
        if receipt is not None:
            self._leases.settle(chunk, asdict(receipt))
        elif not self._published(chunk):
            name = name_of(Task(chunk))
            raise SgdecError(f"{self._store}/{name}: in the way of a result. Remove it, and start again.")
        self.progress.chunks += 1

    def _bury(self, died: Died) -> None:
        """React to a death: try again, split, or give a line up."""
        self.progress.pending.pop(died.worker, None)
        self.progress.deaths += 1
        self._deaths.add(died.task, outside=died.outside)
        about = f", working on {died.task}" if died.task else " while it was loading"
        log.warning(f"worker {died.worker} {died.reason or 'has died'}{about}.")
        for task in died.waiting:
            self._flying.discard(task)
            self._retry.append(task)
        if died.task is None and self._flying:
            return  # others work, and this one may find room later
        self._in_a_row += 1
        most = IN_A_ROW + self._manifest.chunk.bit_length() + 2 * self._most_flying  # a machine has many workers
        if self._in_a_row >= most:
            raise SgdecError(
                f"{self._in_a_row} workers have died one after the other, and none finished anything; the last one "
                f"{died.reason}. Run `sgdec {self._manifest.command}` with the same options on a few lines to see "
                "why."
            )
        if died.task is None:
            return
        task = died.task
        self._flying.discard(task)
        lines = len(lines_of(self._manifest, task))
        if lines == 1:
            self._judge(task, died.reason)
        elif self._deaths.of(task) >= DEATHS or task.lines is not None:
            self._split(task, lines)
        else:
            self._retry.appendleft(task)

    def _split(self, task: Task, lines: int) -> None:
        half = lines // 2
        pieces = [
            Task(task.chunk, task.first, half, task.again),
            Task(task.chunk, task.first + half, lines - half, task.again),
        ]
        if not task.again:
            listed = self._parts.setdefault(task.chunk, [task])
            at = listed.index(task)
            listed[at : at + 1] = pieces
        self._retry.extendleft(reversed(pieces))

    def _judge(self, task: Task, reason: str) -> None:
        """Decide about a line whose worker has died, if it can be decided now."""
        self._accused.pop(task, None)
        verdict = self._deaths.verdict(task)
        if verdict == "later":
            self._accused[task] = reason
        elif verdict == "again":
            self._retry.appendleft(task)
        elif verdict == "guilty":
            self._give_up(task, reason)
        else:
            self._leave_undecided(task, reason)

    def _give_up(self, task: Task, reason: str) -> None:
        """Publish an empty result for one line."""
        chunk = self._manifest.chunks[task.chunk]
        path, line = self._place_of(task)
        why = f"{path}, line {line}: its worker {reason}, {counted(self._deaths.of(task), 'time')}"
        failure = Failure(chunk.id + task.first, path, line, why)
        log.warning(f"{failure.reason}; it has no output.")
        if task.again:
            return
        rows, files = rows_of_given_up(self._manifest, task, failure, self._names)
        result = ChunkResult(1, rows, files, (failure,), run=self._manifest.run, id=failure.id)
        self._finish(task, publish_result(self._store, task, result), "")

    def _leave_undecided(self, task: Task, reason: str) -> None:
        path, line = self._place_of(task)
        log.warning(
            f"{path}, line {line}: its worker {reason}, {counted(self._deaths.of(task), 'time')}, and others were "
            "lost then; it is undecided."
        )
        if not task.again:  # it stays failed
            self._undecided.add(task)
            undecided.note(self._store, task, reason)

    def _place_of(self, task: Task) -> tuple[str, int]:
        """The input and the number in it of the first line of a task."""
        chunk = self._manifest.chunks[task.chunk]
        return self._manifest.inputs[chunk.file].path, chunk.line + task.first

    def _join(self, chunk: int) -> None:
        """Publish the result of a chunk whose parts are all done."""
        if any(
            task in self._flying or task in self._retry or task in self._accused or task in self._undecided
            for task in self._parts[chunk]
        ):
            return
        found = {task: self._part(task) for task in self._parts[chunk]}
        parts = [part for part in found.values() if part is not None]
        if len(parts) < len(found):  # another starter has joined and removed them, or somebody removed them
            if self._published(chunk):
                self.progress.chunks += 1
                del self._parts[chunk]
            else:
                self._retry.extend(task for task, part in found.items() if part is None)
            return
        self._settle(chunk, publish_result(self._store, Task(chunk), ChunkResult.joined(parts)))
        for task in self._parts.pop(chunk):
            self._store.remove(name_of(task))

    def _part(self, task: Task) -> ChunkResult | None:
        found = usable_result(self._store, self._manifest, task)
        return None if found is None else found[0]

    def _resume_parts(self, chunk: int) -> None:
        """Continue a chunk that an earlier start has split."""
        about = self._manifest.chunks[chunk]
        kept = _kept(about, results_of_some(self._store, PARTS, chunk))
        tasks = _filled(chunk, about, kept)
        self._parts[chunk] = tasks
        self._retry.extend(task for task in tasks if task not in kept)
        self._join(chunk)


def failed_before(results: Results, chunks: Iterable[int]) -> Iterator[Task]:
    """Tasks for the lines of these chunks that have failed, neighbours together."""
    for chunk in chunks:
        found = results.checked(chunk) if results.failed(chunk) else None
        if found is None:
            continue
        stretch: list[int] = []
        for line in sorted(failure.id - found.result.id for failure in found.result.failed):
            if stretch and line > stretch[-1] + 1:
                yield Task(chunk, stretch[0], len(stretch), again=True)
                stretch = []
            stretch.append(line)
        if stretch:
            yield Task(chunk, stretch[0], len(stretch), again=True)


def _kept(about: Chunk, parts: Iterable[Task]) -> list[Task]:
    """The parts that are done, in order, without those that overlap others or the end of the chunk."""
    kept: list[Task] = []
    end = 0
    for part in parts:
        lines = part.lines or 0
        if lines and end <= part.first <= about.lines - lines:
            kept.append(part)
            end = part.first + lines
    return kept


def _filled(chunk: int, about: Chunk, kept: Sequence[Task]) -> list[Task]:
    """The parts that are done, and parts for the lines between them."""
    tasks: list[Task] = []
    at = 0
    for task in (*kept, Task(chunk, about.lines, 0)):
        if task.first > at:
            tasks.append(Task(chunk, at, task.first - at))
        if task.lines:
            tasks.append(task)
        at = task.first + (task.lines or 0)
    return tasks


def about(progress: CorpusProgress) -> dict[str, Any]:
    """A starter as its pulse describes it."""
    return {
        "lines": progress.lines, "underway": progress.underway, "failed": progress.failed, "chunks": progress.chunks,
        "deaths": progress.deaths, "workers": dict(progress.by_worker),
    }  # fmt: skip
