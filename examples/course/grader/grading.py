"""Runs the checks of an assignment in this process, on a submission that runs in another one.

All judging is done here. A submission that ends, or is too slow, loses the current check, and gets a new process for
the next one.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import sgdec
import sgdec.testing
from grader import inbox
from grader.assignment import COURSE, Assignment, Check
from grader.boundary import Boundary, open_boundary
from grader.child import Broken, Child, Gone
from grader.remote import maker
from sgdec.errors import SgdecError
from sgdec.testing import breach


@dataclass(frozen=True)
class Outcome:
    """What became of one check."""

    check: Check
    failure: str | None
    """In one line; None = the promise holds."""
    seconds: float

    @property
    def points(self) -> float:
        return 0.0 if self.failure else float(self.check.points)


@dataclass
class Graded:
    """A graded submission."""

    outcomes: list[Outcome]
    boundary: str
    unprotected: str
    """Why there are no marks; empty if there are."""
    printed: str = ""
    """The end of what the submission has printed."""
    lost: str | None = field(default=None)
    """Why it could not be tested at all."""
    seconds: float = 0.0

    @property
    def points(self) -> float:
        return sum(outcome.points for outcome in self.outcomes)


def grade(assignment: Assignment, file: Path, seed: int, seconds: float, total: float, kind: str) -> Graded:
    """Run all checks. ``seconds``: for the answers to one check; ``total``: for all; ``kind``: of boundary.

    Raises UsageError if this boundary does not work here.
    """
    begun = time.monotonic()
    boundary, unprotected = open_boundary(kind)
    try:
        if boundary.protects and (holes := _holes(boundary)):
            unprotected = f"the boundary ({boundary.name}) does not hold: a submission can {', '.join(holes)}"
        with inbox.delivers_to(boundary.view):
            graded = _checked(assignment, boundary, file, seed, seconds, begun + total)
    finally:
        boundary.close()
    graded.boundary, graded.unprotected = boundary.name, unprotected
    graded.seconds = time.monotonic() - begun
    return graded


def _checked(
    assignment: Assignment, boundary: Boundary, file: Path, seed: int, seconds: float, until: float
) -> Graded:
    place = boundary.view.submit(file)
    graded = Graded([], boundary.name, "")
    child: Child | None = None
    try:
        for check in assignment.checks:
            began = time.monotonic()
            failure = graded.lost
            if failure is None:
                if child is None or not child.alive:
                    child = Child(boundary, seconds, until)
                    graded.lost = failure = _load(child, assignment, place, seconds)
            if failure is None and child is not None:
                child.begin_check()
                make = maker(child, assignment.kind)
                failure = breach(lambda test=check.test: test(make, np.random.default_rng(seed)))  # type: ignore[misc]
                graded.printed = child.printed() or graded.printed
                if failure:  # a search may be under way that nobody waits for
                    child.end()
            graded.outcomes.append(Outcome(check, failure, time.monotonic() - began))
    finally:
        if child is not None:
            child.end()
    return graded


def _load(child: Child, assignment: Assignment, place: str, seconds: float) -> str | None:
    """Load the submission; why that is impossible, or None."""
    child.begin_check()
    try:
        child.ask("load", file=place, kind=assignment.kind, plugin=assignment.plugin)
    except Broken as error:
        return str(error)
    return None


def _holes(boundary: Boundary) -> list[str]:
    """What a process inside of the boundary can do although it must not (``inside/probing.py``)."""
    forbidden = [COURSE, Path(sgdec.__file__).parent, Path(sgdec.testing.__file__), Path(__file__)]
    with _listening() as port:
        child = Child(boundary, 20.0, time.monotonic() + 60.0)
        try:
            answer = child.ask("probe", paths=list(map(str, forbidden)), process=os.getpid(), port=port)
        except Gone as error:
            raise SgdecError(f"the boundary ({boundary.name}) does not start: {error}. {child.printed()}") from None
        finally:
            child.end()
    return [str(each) for each in answer["possible"]]


@contextmanager
def _listening() -> Iterator[int]:
    """A port of this machine that answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]
