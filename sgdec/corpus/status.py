"""The progress of a corpus, from its folder alone: results, leases, records, and the pulses of its starters.

Nothing here compares clocks of two machines, or asks a file for its time. A pulse is a counter, so one look cannot
tell whether a starter lives; two looks can. The speed of a starter is measured by its own clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from sgdec.corpus.checking import Results
from sgdec.corpus.engine import Task
from sgdec.corpus.leases import Leases, chunks_in
from sgdec.corpus.manifest import Manifest
from sgdec.corpus.results import PARTS, chunks_with, name_of, results_of_some
from sgdec.corpus.stores import Store
from sgdec.corpus.undecided import undecided

FEW = 10_000
"""The most results that are read although nobody asked for details."""
SLOWEST = 20
MOST = 10**15
"""The highest number of lines or seconds that is believed."""
State: TypeAlias = Literal["ended", "lives", "silent", "unknown"]


@dataclass(frozen=True)
class StarterStatus:
    """A start of ``sgdec corpus``, by its last pulse."""

    name: str
    pulse: int
    every: float
    """Seconds between its pulses; 0 if it does not say."""
    state: State
    """``lives``: its pulse changed between two looks. ``silent``: it did not, in twice the time between its pulses or
    longer. ``unknown``: there was one look, or too little time between two."""
    lines: int
    """Those of the results that it has published."""
    underway: int
    """Lines that its workers are done with, and that are not published yet."""
    failed: int
    deaths: int
    """The workers that have died."""
    rate: float | None
    """Lines per second: between the looks, otherwise since its start. None if it has ended or is silent."""
    leased: int
    """The chunks that it has now."""
    workers: Mapping[str, int]
    """Published lines by worker."""


@dataclass(frozen=True)
class Records:
    """A summary of all results and their records."""

    failed: int
    unusable: list[str]
    """The errors about results that are damaged, of another run, or made from files that have changed."""
    gone: int
    """Files of patterns that lines have read and that are no longer there, so that they could not be compared."""
    unrecorded: list[int]
    """Chunks with a result whose record is missing; a later start or the merge writes it."""
    slowest: list[tuple[int, dict[str, Any]]]
    """The chunks with the most seconds per line, and their records."""


@dataclass(frozen=True)
class Status:
    """The state of a corpus."""

    folder: str
    lines: int
    chunks: int
    lines_done: int
    """Those of chunks that have a result."""
    chunks_done: int
    leased: Mapping[int, str]
    """The starters of the chunks that are claimed and have no result."""
    split: Mapping[int, int]
    """Chunks in which workers have died and that are done in parts: the lines of the parts that are done."""
    lost: list[int]
    """Chunks whose record names a result that is not there."""
    starters: list[StarterStatus]
    records: Records | None
    """None if they were not read."""
    undecided: int = 0
    """Lines whose workers were killed from outside, and that have no result yet."""

    @property
    def failed(self) -> int:
        """Failed lines; without `records` by the pulses, which lag behind."""
        return sum(each.failed for each in self.starters) if self.records is None else self.records.failed

    @property
    def rate(self) -> float:
        """Lines per second of all starters that have not ended and are not silent."""
        return sum(each.rate or 0.0 for each in self.starters)

    @property
    def seconds_left(self) -> float | None:
        """At this rate; None if nobody works now."""
        underway = sum(each.underway for each in self.starters if each.rate is not None)
        left = max(0, self.lines - self.lines_done - underway)
        return left / self.rate if self.rate else None

    def to_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        derived = {"failed": self.failed, "lines_per_second": self.rate, "seconds_left": self.seconds_left}
        return {**asdict(self), **derived}


def look(
    store: Store,
    manifest: Manifest,
    *,
    seconds: float | None = None,
    details: bool = False,
    wait: Callable[[float], None] = time.sleep,
) -> Status:
    """The state of a corpus, which may change meanwhile.

    ``seconds``: the time between two looks at the pulses; None for one look. ``details``: read the records of all
    results, however many there are. Raises SgdecError if the store fails.
    """
    leases = Leases(store)
    before: Mapping[str, Mapping[str, Any]] = {}
    if seconds is not None:
        before = _pulses(leases)
        wait(seconds)
    pulses = _pulses(leases)
    claimed = [chunk for chunk in chunks_in(store, "leases") if chunk < len(manifest.chunks)]
    # after the leases: a chunk that is claimed and has no result here is not done
    done = {chunk for chunk in chunks_in(store, "results") if chunk < len(manifest.chunks)}
    leased, lost = _claims(store, leases, [chunk for chunk in claimed if chunk not in done])
    held = list(leased.values())
    return Status(
        str(store), manifest.lines, len(manifest.chunks), sum(manifest.chunks[chunk].lines for chunk in done),
        len(done), leased, _split(store, done), lost,
        [_starter(pulse, before.get(name), seconds or 0.0, held.count(name)) for name, pulse in pulses.items()],
        _records(store, leases, manifest, sorted(done)) if details or len(done) <= FEW else None,
        len(undecided(store, done)),
    )  # fmt: skip


def _pulses(leases: Leases) -> dict[str, dict[str, Any]]:
    return {pulse["starter"]: pulse for pulse in leases.others()}


def _claims(store: Store, leases: Leases, chunks: Sequence[int]) -> tuple[dict[int, str], list[int]]:
    """The owners of leases, and the chunks that have a record and no result."""
    leased: dict[int, str] = {}
    lost: list[int] = []
    for chunk in chunks:
        if (owner := leases.owner(chunk)) is not None:
            leased[chunk] = owner
        elif leases.record(chunk) is not None and not store.exists(name_of(Task(chunk))):
            lost.append(chunk)
    return leased, lost


def _split(store: Store, done: set[int]) -> dict[int, int]:
    open_ = [chunk for chunk in chunks_with(store, PARTS) if chunk not in done]
    return {chunk: sum(part.lines or 0 for part in results_of_some(store, PARTS, chunk)) for chunk in open_}


def _starter(
    pulse: Mapping[str, Any], before: Mapping[str, Any] | None, seconds: float, leased: int
) -> StarterStatus:
    """``before``: its pulse so many seconds earlier."""
    moved = before is None or before["counter"] != pulse["counter"]
    every = _number(pulse, "every")
    state: State = "unknown"
    if pulse.get("ended"):
        state = "ended"
    elif seconds and moved:
        state = "lives"
    elif seconds > 2 * every:
        state = "silent"
    works = state in ("lives", "unknown")
    workers = pulse.get("workers")
    return StarterStatus(
        pulse["starter"], pulse["counter"], every, state, int(_number(pulse, "lines")),
        int(_number(pulse, "underway")), int(_number(pulse, "failed")), int(_number(pulse, "deaths")),
        _rate(pulse, before if moved else None) if works else None, leased,
        {place: int(_number(workers, place)) for place in workers} if isinstance(workers, dict) else {},
    )  # fmt: skip


def _rate(now: Mapping[str, Any], then: Mapping[str, Any] | None) -> float | None:
    """Lines per second between two pulses, or since the start."""
    earlier: Mapping[str, Any] = then or {}
    lines, seconds = (
        sum(_number(now, name) - _number(earlier, name) for name in names)
        for names in (("lines", "underway"), ("seconds",))
    )
    return max(lines, 0.0) / seconds if seconds > 0 else None


def _number(pulse: Mapping[str, Any], name: str) -> float:
    """A number of a file that may be damaged: 0 for what no pulse or record has, such as NaN."""
    value = pulse.get(name)
    return value if isinstance(value, int | float) and 0 <= value <= MOST else 0


def _records(store: Store, leases: Leases, manifest: Manifest, done: Sequence[int]) -> Records:
    results = Results(store, manifest)
    failed = gone = 0
    unusable, unrecorded = list(results.unusable_parts(set(done))), list[int]()
    timed: list[tuple[float, int, dict[str, Any]]] = []
    for each in results.examine(done):
        failed += each.failed
        gone += each.gone
        if each.unusable:
            unusable.append(each.unusable)
        record = leases.record(each.chunk) if each.recorded else None
        if record is None:
            unrecorded += [] if each.unusable else [each.chunk]
            continue
        seconds = _number(record, "seconds") / manifest.chunks[each.chunk].lines
        timed.append((seconds, each.chunk, record))
        if len(timed) > 100 * SLOWEST:
            timed = _most(timed)
    return Records(failed, unusable, gone, unrecorded, [(chunk, record) for _, chunk, record in _most(timed)])


def _most(timed: list[tuple[float, int, dict[str, Any]]]) -> list[tuple[float, int, dict[str, Any]]]:
    return sorted(timed, key=lambda each: each[:2], reverse=True)[:SLOWEST]
