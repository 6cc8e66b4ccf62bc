"""Many cases of one target: drawn, run and judged, and each kind of finding shrunk to a small case.

Hypothesis draws the cases and shrinks those that fail. The cases of a chunk depend only on the seed, the target and
the number of the chunk, so the same command draws the same cases with any number of processes.
"""

from __future__ import annotations

import hashlib
import time
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import hypothesis
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st
from hypothesis.errors import HypothesisException

from fuzz.case import Case
from fuzz.judge import Finding, judge, label
from fuzz.running import Runner

SHRINK_RUNS = 150
"""The number of cases that are tried to shrink one finding."""
SHRINK_SECONDS = 30.0
MANY = 10
"""For fewer cases the start of a station takes longer than it saves."""
ROUNDS = 4
"""The number of times that hypothesis is started for a chunk, because it ends early if it finds no new case."""

Key: TypeAlias = tuple[str, str]
"""The key of equal findings: kind and place."""


class Target(Protocol):
    """A source of cases."""

    @property
    def name(self) -> str: ...

    @property
    def light(self) -> bool:
        """Whether most of its cases run without torch."""

    def undamaged(self, runner: Runner) -> Case:
        """An undamaged case, which must run without an error."""

    def cases(self, base: Case, rows: Sequence[str]) -> st.SearchStrategy[Case]:
        """A strategy for cases. ``base``: the undamaged case; ``rows``: its output."""


@dataclass
class Chunk:
    """The outcomes of some cases."""

    target: str
    outcomes: Counter[str] = field(default_factory=Counter)
    """The number of inputs by outcome (`fuzz.judge.label`)."""
    found: Counter[str] = field(default_factory=Counter)
    """The number of inputs with a finding, by kind."""
    findings: dict[Key, tuple[Finding, Case]] = field(default_factory=dict)
    """The smallest case of each."""
    seconds: float = 0.0

    def add(self, other: Chunk) -> None:
        self.outcomes += other.outcomes
        self.found += other.found
        self.findings = other.findings | self.findings
        self.seconds += other.seconds


class _Found(AssertionError):
    """Tells hypothesis to shrink a case."""


def run_chunk(
    runner: Runner, target: Target, seed: int, number: int, size: int, known: Collection[Key] = ()
) -> Chunk:
    """Run ``size`` cases. Findings that are ``known`` are not shrunk; cases that shrinking tries are not counted."""
    started = time.monotonic()
    chunk = Chunk(target.name)
    base = target.undamaged(runner)
    with runner.station(base, light=target.light) if size >= MANY else nullcontext():
        cases = target.cases(base, _undamaged_rows(runner, base, chunk))
        _run(runner, cases, seed, number, size, known, chunk)
    chunk.seconds = time.monotonic() - started
    return chunk


def _run(
    runner: Runner, cases: st.SearchStrategy[Case], seed: int, number: int, size: int, known: Collection[Key],
    chunk: Chunk,
) -> None:  # fmt: skip
    words = f"{seed} {chunk.target} {number}".encode()
    begin = int.from_bytes(hashlib.sha256(words).digest()[:8], "big")
    verdicts: dict[int, Key | None] = {}  # by case; cases of earlier rounds are not run again
    left = size
    for round in range(ROUNDS):
        found: dict[Key, Case] = {}

        def attempt(case: Case, found: dict[Key, Case] = found) -> None:
            nonlocal left
            if left <= 0:
                return
            left -= 1
            outcome = runner.run(case)
            finding = judge(case, outcome)
            chunk.outcomes[label(outcome)] += 1
            verdicts[_digest(case)] = None
            if finding is not None:
                key = finding.kind, finding.where
                verdicts[_digest(case)] = key
                chunk.found[finding.kind] += 1
                if key not in chunk.findings:
                    chunk.findings[key] = finding, case
                    found[key] = case

        count = left
        _draw(cases, begin + round, count, attempt)
        for key in found.keys() - set(known):
            _draw(cases, begin + round, count, _Shrinking(runner, chunk, key, verdicts))
        if left <= 0:
            break


def _undamaged_rows(runner: Runner, base: Case, chunk: Chunk) -> list[str]:
    """The output of the undamaged run. If that run fails, it is a finding."""
    outcome = runner.run(base)
    finding = judge(base, outcome)
    if finding is None and outcome.status != 0:
        finding = Finding("status", base.target, f"the undamaged run failed: {outcome.err[-300:]!r}")
    if finding is not None:
        chunk.findings[finding.kind, finding.where] = finding, base
        chunk.found[finding.kind] += 1
    return outcome.out.decode("utf-8", "surrogateescape").split("\n")[:-1]


def _draw(cases: st.SearchStrategy[Case], seed: int, count: int, attempt: Callable[[Case], None]) -> None:
    """Run ``count`` cases, or until one raises `_Found`, which is then shrunk."""

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
        print_blob=False,
        report_multiple_bugs=False,
        verbosity=hypothesis.Verbosity.quiet,
    )
    @hypothesis.given(cases)
    def test(case: Case) -> None:
        attempt(case)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            test()
        except (_Found, HypothesisException):
            pass  # `attempt` has recorded it
        except BaseExceptionGroup as group:
            if group.split(_Found)[1] is not None:
                raise


class _Shrinking:
    """Raises `_Found` for cases with one finding, and keeps the smallest."""

    def __init__(self, runner: Runner, chunk: Chunk, key: Key, verdicts: dict[int, Key | None]) -> None:
        self._runner, self._chunk, self._key, self._verdicts = runner, chunk, key, dict(verdicts)
        self._left = SHRINK_RUNS
        self._until = time.monotonic() + SHRINK_SECONDS

    def __call__(self, case: Case) -> None:
        digest = _digest(case)
        if digest not in self._verdicts:
            self._verdicts[digest] = self._tried(case)
        if self._verdicts[digest] == self._key:
            raise _Found

    def _tried(self, case: Case) -> Key | None:
        if self._left <= 0 or time.monotonic() > self._until:
            return None
        self._left -= 1
        finding = judge(case, self._runner.run(case))
        if finding is None:
            return None
        _, smallest = self._chunk.findings[self._key]
        if (finding.kind, finding.where) == self._key and _size(case) <= _size(smallest):
            self._chunk.findings[self._key] = finding, case
        return finding.kind, finding.where


def _digest(case: Case) -> int:
    """A key that is equal for equal cases."""
    return hash((case.args, case.stdin, case.file_size, case.closed, tuple(case.files.items())))


def _size(case: Case) -> int:
    files = sum(len(content) for content in case.files.values() if isinstance(content, bytes))
    return files + sum(len(arg) + 1 for arg in case.args)
