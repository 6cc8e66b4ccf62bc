"""What becomes of submissions that attack the grader, behind each boundary that works here, and without one."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from grader import child as children
from grader.assignment import COURSE, Assignment, Make
from grader.boundary import Boundary, OtherUser, open_boundary
from grader.grading import Graded, _check_all, grade

from sgdec import EOS, Constellation, Source
from sgdec.testing import Lattice, TinySpace
from tests.course_solutions.attacks import ATTACKS, Attack
from tests.helpers.places import ROOT

pytestmark = pytest.mark.slow

SECONDS = 2.0
SPACE = TinySpace(
    "one way",
    partial(Constellation.of, {"lattice": Lattice({0: {3: (-1.0, 1), 4: (-2.0, 1)}, 1: {EOS: (-0.5, 2)}})}),
    Source(1, (3,)),
)


def assignment() -> Assignment:
    """Two checks that an attack has to deceive, with a decoder that finds the best of two paths."""
    asked = Assignment("decoder", "mybeam")

    def finds_the_best(make: Make, rng: np.random.Generator) -> None:
        found = make().decode(SPACE.open(most=100)).hypotheses
        said = ", ".join(f"{h.tokens} with {h.score:.3f}" for h in found) or "nothing"
        assert [(h.tokens, h.score) for h in found] == [((3,), -1.5)], f"found {said}"

    for name in ("first", "second"):
        asked.check(name, points=10)(finds_the_best)
    return asked


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def submitted(attack: Attack, folder: Path, port: int, grader: int) -> Path:
    """The attack as a file, which knows all that a student could find out."""
    known = {"GRADER": grader, "COURSE": str(COURSE), "DECODERS": str(ROOT / "decoders"), "PORT": port}
    path = folder / "my_beam.py"
    path.write_text("\n".join(f"{name} = {value!r}" for name, value in known.items()) + attack.text)
    return path


def graded_behind(boundary: Boundary, path: Path) -> Graded:
    graded = Graded(boundary.name, "")
    _check_all(graded, assignment(), boundary, path, 1, SECONDS, time.monotonic() + 60)
    return graded


@pytest.fixture(scope="module")
def boundary() -> Iterator[Boundary]:
    """For root another user, for others bubblewrap. Attacks do real harm without one."""
    opened, unprotected = open_boundary("auto")
    yield opened if opened.protects else pytest.skip(f"there is no boundary here: {unprotected}")
    opened.close()


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name.replace(" ", "-"))
def test_an_attack_gains_nothing_and_leaves_nothing(
    attack: Attack, tmp_path: Path, boundary: Boundary, port: int
) -> None:
    graded = graded_behind(boundary, submitted(attack, tmp_path, port, os.getpid()))
    assert graded.points == 0
    assert all(attack.outcome in outcome.said for outcome in graded.outcomes), graded.outcomes
    if isinstance(boundary, OtherUser):  # with bubblewrap the kernel ends a process with its namespace
        assert boundary.processes(cast(subprocess.Popen[bytes], None)) == []
    assert not Path("/tmp/pickled").exists()


def test_many_processes_may_not_take_more_memory_together_than_one(
    tmp_path: Path, boundary: Boundary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "MEMORY", 300 << 20)
    body = "import os, time\nfor _ in range(4):\n    os.fork()\nheld = b'x' * (50 << 20)\ntime.sleep(1000)"
    path = submitted(Attack("", body, ""), tmp_path, 1, 1)
    assert [outcome.said for outcome in graded_behind(boundary, path).outcomes] == ["more than 0 GiB of memory"] * 2


def test_without_a_boundary_the_report_says_so_whatever_the_points(tmp_path: Path) -> None:
    path = tmp_path / "my_beam.py"
    shutil.copy(ROOT / "tests" / "course_solutions" / "my_beam.py", path)
    graded = grade(assignment(), path, 1, SECONDS, 60.0, "none")
    assert (graded.points, graded.boundary) == (20, "none")
    assert graded.unprotected


def test_a_boundary_that_does_not_work_here_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho bwrap: no namespaces >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    boundary, unprotected = open_boundary("auto")
    boundary.close()
    assert not boundary.protects
    assert unprotected.endswith("; bubblewrap does not work here (bwrap: no namespaces)")


def test_a_time_for_all_checks_together_ends_a_submission(tmp_path: Path) -> None:
    asked = assignment()
    asked.checks *= 10
    (waits,) = (attack for attack in ATTACKS if attack.name == "waits without end")
    path = submitted(waits, tmp_path, 1, 1)
    begun = time.monotonic()
    graded = grade(asked, path, 1, SECONDS, 6.0, "none")
    assert time.monotonic() - begun < 15
    assert [outcome.said for outcome in graded.outcomes][-10:] == [children.NO_TIME] * 10
