"""What becomes of submissions that attack the grader, behind each boundary that works here, and without one."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np
import pytest
from grader import child as children
from grader import inbox
from grader.assignment import COURSE, Assignment, Make
from grader.boundary import Boundary, OtherUser, open_boundary
from grader.grading import Graded, _check_all, grade

from sgdec import EOS, Constellation, Source
from sgdec.testing import Lattice, TinySpace
from tests.course_solutions.attacks import ATTACKS, NOTHING, Attack
from tests.helpers.places import ROOT

pytestmark = pytest.mark.slow

SECONDS = 2.0
RIGHT = ROOT / "tests" / "course_solutions" / "my_beam.py"
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


def graded_behind(boundary: Boundary, path: Path, seconds: float = SECONDS) -> Graded:
    graded = Graded(boundary.name, "")
    _check_all(graded, assignment(), boundary, path, 1, seconds, time.monotonic() + 60)
    return graded


@pytest.fixture(scope="module")
def boundary() -> Iterator[Boundary]:
    """For root another user, for others bubblewrap. Attacks do real harm without one."""
    opened, unprotected = open_boundary("auto")
    yield opened if opened.protects else pytest.skip(f"there is no boundary here: {unprotected}")
    opened.close()


def threads_of(user: int) -> Iterator[str]:
    """Threads of a user that have not ended; a process can have some although its first one has."""
    for entry in Path("/proc").glob("[0-9]*/task/[0-9]*"):
        with suppress(OSError):
            state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
            if entry.stat().st_uid == user and state not in "ZX":
                yield str(entry)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name.replace(" ", "-"))
def test_an_attack_gains_nothing_and_leaves_nothing(
    attack: Attack, tmp_path: Path, boundary: Boundary, port: int
) -> None:
    graded = graded_behind(boundary, submitted(attack, tmp_path, port, os.getpid()), attack.seconds)
    assert graded.points == 0
    assert all(attack.outcome in outcome.said for outcome in graded.outcomes), graded.outcomes
    if isinstance(boundary, OtherUser):  # with bubblewrap the kernel ends a process with its namespace
        assert not [*threads_of(boundary._user)]
    assert not Path("/tmp/pickled").exists()


HOLD = "held = b'x' * (150 << 20)\n    time.sleep(1000)"
END_FIRST = "ctypes.CDLL(None).syscall({'x86_64': 60, 'aarch64': 93}[os.uname().machine], 0)"


@pytest.mark.parametrize(
    "body",
    [
        f"for _ in range(2):\n    os.fork()\nif True:\n    {HOLD}",
        f"if os.fork() == 0:\n    os.fork()\n    {HOLD}\nwhile True:\n    space.keys([space.root])",
        f"def hold():\n    {HOLD}\nfor _ in range(2):\n    if os.fork() == 0:\n"
        f"        threading.Thread(target=hold).start()\n        {END_FIRST}\ntime.sleep(1000)",
    ],
    ids=["all wait", "one asks", "first threads have ended"],
)  # fmt: skip
def test_many_processes_may_not_take_more_memory_together_than_one(
    body: str, tmp_path: Path, boundary: Boundary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "MEMORY", 300 << 20)
    body = f"import ctypes, os, threading, time\n{body}"
    path = submitted(Attack("", body, ""), tmp_path, 1, 1)
    assert [outcome.said for outcome in graded_behind(boundary, path).outcomes] == ["more than 0 GiB of memory"] * 2


def test_without_a_boundary_the_report_says_so_whatever_the_points() -> None:
    graded = grade(assignment(), RIGHT, 1, SECONDS, 60.0, "none")
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


def test_a_system_without_proc_grades_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as macOS."""
    monkeypatch.setattr("grader.boundary.PROC", str(tmp_path / "none"))
    path = tmp_path / "my_beam.py"
    body = f"import os, time\nif os.fork() == 0:\n    open({str(tmp_path / 'left')!r}, 'w').write(str(os.getpid()))"
    path.write_text(Attack("", f"{body}\n    time.sleep(1000)\ntime.sleep(0.3)", "").text)
    graded = grade(assignment(), path, 1, SECONDS, 60.0, "none")
    assert all(NOTHING in outcome.said for outcome in graded.outcomes), graded.outcomes
    left = Path("/proc", (tmp_path / "left").read_text(), "stat")
    assert not left.exists() or left.read_text().rsplit(")", 1)[1].split()[0] == "Z"


@pytest.mark.parametrize("mask", [0o000, 0o077])
def test_the_rights_of_new_files_may_be_any(mask: int, tmp_path: Path, boundary: Boundary) -> None:
    before = os.umask(mask)
    try:
        graded = grade(assignment(), RIGHT, 1, SECONDS, 60.0, "auto")
        opened = type(boundary)()
        with inbox.delivers_to(opened.view), inbox.folder() as (folder, _):
            (folder / "1.txt").write_text("")
            rights = (folder / "1.txt").stat().st_mode & 0o777
        opened.close()
    finally:
        os.umask(before)
    assert (graded.points, graded.unprotected, rights) == (20, "", 0o644)


def test_a_time_for_all_checks_together_ends_a_submission(tmp_path: Path) -> None:
    asked = assignment()
    asked.checks *= 10
    (waits,) = (attack for attack in ATTACKS if attack.name == "waits without end")
    path = submitted(waits, tmp_path, 1, 1)
    begun = time.monotonic()
    graded = grade(asked, path, 1, 1.0, 3.0, "none")
    assert time.monotonic() - begun < 15
    assert [outcome.said for outcome in graded.outcomes][-10:] == [children.NO_TIME] * 10
    assert graded.lost is None


def test_the_time_of_all_checks_can_end_before_the_first_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a process starts, or while it loads the file: that is no error of the grader, and not one of loading."""
    opened, _ = open_boundary("none")
    start = opened.start

    def slowly(printed: IO[bytes]) -> subprocess.Popen[bytes]:
        time.sleep(0.3)
        return start(printed)

    path = tmp_path / "my_beam.py"
    path.write_text("import time\ntime.sleep(1000)\n")
    for seconds, started in ((0.2, slowly), (1.5, start)):
        monkeypatch.setattr(opened, "start", started)
        graded = Graded("", "")
        with inbox.delivers_to(opened.view):
            _check_all(graded, assignment(), opened, path, 1, 60.0, time.monotonic() + seconds)
        assert [outcome.said for outcome in graded.outcomes] == [children.NO_TIME] * 2
        assert graded.lost is None
    opened.close()
