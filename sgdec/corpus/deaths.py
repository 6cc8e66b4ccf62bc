"""The deaths of workers, and whether a line is to blame.

A fault of native code, an exception or an exceeded limit is the line's own: the second one decides. A worker can also
be killed from outside: by a person, by the system when memory is short, with its node. That only counts against a
line that was alone, and if no other worker was lost at about that time; the third one decides. Otherwise the line
stays undecided.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from sgdec.corpus.engine import Task

OWN, OUTSIDE = 2, 3
"""The deaths of each kind after which a line is given up."""
NEAR = 10.0
"""Seconds before and after a death from outside in which no other worker may be lost."""

Verdict: TypeAlias = Literal["again", "guilty", "undecided", "later"]


@dataclass
class _Of:
    """The deaths of a task."""

    own: int = 0
    outside: list[float] = field(default_factory=list)


class Deaths:
    """The deaths that one start has seen."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._all: list[tuple[float, Task | None]] = []
        self._by_task: dict[Task, _Of] = {}

    def add(self, task: Task | None, *, outside: bool) -> None:
        """A worker has died that had this task; None = none."""
        now = self._clock()
        self._all.append((now, task))
        if task is None:
            return
        of_task = self._by_task.setdefault(task, _Of())
        if outside:
            of_task.outside.append(now)
        else:
            of_task.own += 1

    def of(self, task: Task) -> int:
        """All deaths of a task."""
        found = self._by_task.get(task, _Of())
        return found.own + len(found.outside)

    def verdict(self, task: Task) -> Verdict:
        """The decision about a line that was alone in its task. ``later``: ask again when `NEAR` has passed."""
        found = self._by_task[task]
        if found.own >= OWN:
            return "guilty"
        if len(found.outside) < OUTSIDE:
            return "again"
        if any(self._is_near_another(then, task) for then in found.outside):
            return "undecided"
        return "guilty" if self._clock() - found.outside[-1] > NEAR else "later"

    def _is_near_another(self, then: float, line: Task) -> bool:
        return any(not _has(other, line) and abs(when - then) <= NEAR for when, other in self._all)


def _has(task: Task | None, line: Task) -> bool:
    """Whether the line is one of the task's: then its death may be by the same cause."""
    if task is None or task.chunk != line.chunk:
        return False
    return task.lines is None or task.first <= line.first < task.first + task.lines
