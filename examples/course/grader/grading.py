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
from grader.assignment import COURSE, Assignment, Check, Share
from grader.boundary import Boundary, open_boundary
from grader.child import NO_TIME, Broken, Child, Late
from grader.remote import maker
from sgdec.search.blame import PredictorFault
from sgdec.testing import breach

LONGEST_LINE = 600
"""The most characters of what is said about a check."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of one check."""

    check: Check
    failure: str | None
    """In one line; None = the promise holds."""
    share: Share | None = None
    """The outcome of a check that gives shares of its points."""

    @property
    def points(self) -> float:
        return 0.0 if self.failure else self.check.points * (1.0 if self.share is None else self.share.share)

    @property
    def said(self) -> str:
        """One line for the student; empty if there is nothing to say."""
        return self.failure or ("" if self.share is None else self.share.why)


@dataclass
class Graded:
    """A graded submission."""

    boundary: str
    unprotected: str
    """The reason for no marks; empty if there are marks."""
    outcomes: list[Outcome] = field(default_factory=list)
    lost: str | None = None
    """The reason for which it could not be tested at all."""
    seconds: float = 0.0

    @property
    def points(self) -> float:
        return round(sum(outcome.points for outcome in self.outcomes), 2)

    @property
    def possible(self) -> int:
        return sum(outcome.check.points for outcome in self.outcomes)

    @property
    def values(self) -> dict[str, float]:
        """For a leaderboard."""
        shares = (outcome.share for outcome in self.outcomes if outcome.share is not None)
        return {name: value for share in shares for name, value in share.values.items()}


def grade(assignment: Assignment, file: Path, seed: int, seconds: float, total: float, kind: str) -> Graded:
    """Run all checks. ``seconds``: for the answers to one check; ``total``: for all; ``kind``: of boundary.

    Raises UsageError if this boundary does not work here.
    """
    begun = time.monotonic()
    boundary, unprotected = open_boundary(kind)
    try:
        if boundary.protects and (holes := _holes(boundary)):
            unprotected = f"the boundary ({boundary.name}) does not hold: a submission can {', '.join(holes)}"
        graded = Graded(boundary.name, unprotected)
        with inbox.delivers_to(boundary.view):
            _check_all(graded, assignment, boundary, file, seed, seconds, begun + total)
    finally:
        boundary.close()
    graded.seconds = time.monotonic() - begun
    return graded


def _check_all(
    graded: Graded, assignment: Assignment, boundary: Boundary, file: Path, seed: int, seconds: float, until: float
) -> None:
    place = boundary.view.submit(file)
    child: Child | None = None
    try:
        for check in assignment.checks:
            if time.monotonic() > until:
                graded.outcomes.append(Outcome(check, NO_TIME))
                continue
            try:
                if graded.lost is None and (child is None or not child.alive):
                    child = Child(boundary, seconds, until)
                    graded.lost = _load(child, assignment, place)
            except Late:
                graded.outcomes.append(Outcome(check, NO_TIME))
                continue
            if graded.lost is not None or child is None:
                graded.outcomes.append(Outcome(check, graded.lost))
                continue
            graded.outcomes.append(_check(check, child, assignment.kind, seed))
    finally:
        if child is not None:
            child.end()


def _check(check: Check, child: Child, kind: str, seed: int) -> Outcome:
    child.begin_check()
    shares: list[Share | None] = []

    def run() -> None:
        try:
            shares.append(check.test(maker(child, kind), np.random.default_rng(seed)))
        except PredictorFault as error:  # which says where the grader was
            if isinstance(error.__cause__, Broken):
                raise error.__cause__ from None
            raise

    broken = breach(run)
    return Outcome(check, None if broken is None else _line(broken), shares[0] if shares else None)


def _load(child: Child, assignment: Assignment, place: str) -> str | None:
    """Load the submission; why that is impossible, or None. Raises Late."""
    child.begin_check()
    try:
        child.ask("load", file=place, kind=assignment.kind, plugin=assignment.plugin)
    except Late:
        raise
    except Broken as error:
        return _line(str(error))
    return None


def _line(said: str) -> str:
    """One short line. A submission chooses some of its words, which must not pass for a report or move a cursor."""
    words = " ".join("".join(character if character.isprintable() else " " for character in said).split())
    return words if len(words) <= LONGEST_LINE else f"{words[: LONGEST_LINE - 3]}..."


def _holes(boundary: Boundary) -> list[str]:
    """All that a process inside of the boundary can do although it must not (``inside/probing.py``)."""
    forbidden = [COURSE, Path(sgdec.__file__).parent, Path(sgdec.testing.__file__), Path(__file__)]
    with _listening() as port:
        child = Child(boundary, 60.0, time.monotonic() + 120.0)
        try:
            answer = child.ask("probe", paths=list(map(str, forbidden)), process=os.getpid(), port=port)
        finally:
            child.end()
    return [str(each) for each in answer["possible"]]


@contextmanager
def _listening() -> Iterator[int]:
    """A port of this machine that answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]
