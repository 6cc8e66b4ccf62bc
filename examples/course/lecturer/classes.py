"""Grades the files of a class: each in a grader process of its own, with a time limit of its own.

A grader that dies or hangs gives no mark. The marks are those of the record that it writes when it has ended, in a
folder that submissions cannot reach.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grader.assignment import COURSE, Assignment, load_assignment
from grader.boundary import KINDS, open_boundary, require_posix

from sgdec.errors import UsageError, one_line

GRADER = COURSE / "grade.py"
EXTRA = 60.0
"""Seconds that a grader has in addition to those of its checks."""
GRACE = 10.0
"""Seconds in which a grader that is stopped ends the processes of its submission."""
OTHERS = {"__MACOSX", "__pycache__"}
"""Folders that programs make beside submissions."""
LONGEST = 200
"""Bytes of a name, so that files can be named after it."""


@dataclass(frozen=True)
class Submission:
    """The file of one student."""

    name: str
    file: Path | None
    flaw: str = ""
    """The reason for which there is no file to grade."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of one submission."""

    name: str
    record: dict[str, Any] | None
    """The file that ``grade.py --record`` wrote; None if the submission is not graded."""
    reason: str = ""
    """The reason for which it is not graded, has no marks, or could not be loaded."""
    report: str = ""
    """The text for the student."""
    seconds: float = 0.0

    @property
    def status(self) -> str:
        if self.record is None:
            return "not graded"
        return "UNPROTECTED" if self.record["unprotected"] else "graded"


@dataclass
class Grading:
    """How a class is graded."""

    name: str
    """The assignment's."""
    seed: int
    total: float
    """Seconds for all checks of a submission."""
    jobs: int = 2
    boundary: str = "auto"
    assignment: Assignment = field(init=False)
    unprotected: str = field(init=False)
    """The reason for no marks; empty if there are marks."""

    def __post_init__(self) -> None:
        """Raises UsageError for an unknown assignment, if the boundary does not work, for root without one, and on
        Windows."""
        require_posix()
        self.assignment = load_assignment(self.name)
        if self.boundary == "none" and os.geteuid() == 0:
            raise UsageError(
                "--boundary none: submissions would run as root, with all files of this machine in reach. Leave it "
                "out, or grade as another user."
            )
        opened, why = open_boundary(self.boundary)
        opened.close()
        if self.boundary == "auto" and why:
            way_out = "Grade as another user" if os.geteuid() == 0 else "See --boundary none"
            raise UsageError(f"no boundary works here, so there are no marks: {why}. {way_out}.")
        self.boundary = next(kind for kind, cls in KINDS.items() if type(opened) is cls)
        self.unprotected = why

    def grade(self, submissions: list[Submission]) -> Generator[Outcome]:
        """Grade all of them side by side, and yield each outcome as soon as it is known."""
        running: set[subprocess.Popen[bytes]] = set()
        pool = ThreadPoolExecutor(self.jobs)
        try:
            for future in as_completed([pool.submit(self._grade_one, each, running) for each in submissions]):
                yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            _stop([*running])
            pool.shutdown()

    def _grade_one(self, submission: Submission, running: set[subprocess.Popen[bytes]]) -> Outcome:
        if submission.file is None:
            return Outcome(submission.name, None, submission.flaw)
        begun = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="sgdec-class-", ignore_cleanup_errors=True) as place:
            record, report, reason = self._run(submission.file, Path(place), running)
        return Outcome(submission.name, record, _shown(reason), report, time.monotonic() - begun)

    def _run(
        self, file: Path, place: Path, running: set[subprocess.Popen[bytes]]
    ) -> tuple[dict[str, Any] | None, str, str]:
        """The record, the text for the student, and a reason."""
        command = [
            sys.executable, str(GRADER), self.name, str(file), "--seed", str(self.seed), "--total",
            str(self.total), "--boundary", self.boundary, "--record", str(place / "record.json"),
        ]  # fmt: skip
        with open(place / "out", "wb") as out, open(place / "err", "wb") as err:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True,
                env={**os.environ, "TMPDIR": str(place)},
            )  # fmt: skip
        running.add(process)
        try:
            late = not _ends(process, self.total + EXTRA)
        finally:
            running.discard(process)
            _end_all(place)
        if late:
            return None, "", f"the grader had not ended after {self.total + EXTRA:g} seconds"
        said = (place / "err").read_text("utf-8", errors="replace").strip().splitlines()
        try:
            record = json.loads((place / "record.json").read_text("utf-8"))
            points = [float(check["points"]) for check in record["checks"]]
        except (OSError, ValueError, KeyError, TypeError):
            return None, "", " ".join([f"the grader ended with status {process.returncode}.", *said[-1:]])
        if process.returncode not in (0, 1) or len(points) != len(self.assignment.checks):
            return None, "", f"the grader ended with status {process.returncode} and another record"
        if self.unprotected:
            record["unprotected"] = record["unprotected"] or self.unprotected
        reason = record["unprotected"] or record["lost"] or ""
        return record, (place / "out").read_text("utf-8", errors="replace"), reason


def find_submissions(folder: Path) -> list[Submission]:
    """The files ``FOLDER/NAME.py`` and ``FOLDER/NAME/*.py``. Raises UsageError if there is none, or a name twice."""
    found: dict[str, Submission] = {}
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.name in OTHERS or not (path.is_dir() or path.suffix == ".py"):
            continue
        name = os.fsencode(path.name if path.is_dir() else path.stem).decode(errors="replace")
        submission = _in_folder(name, path) if path.is_dir() else _checked(name, path)
        if submission.name in found:
            raise UsageError(f"{folder}: two submissions are named {submission.name!r}. Rename one of them.")
        found[submission.name] = submission
    if not found:
        raise UsageError(f"{folder}: no submissions. Expected files NAME.py, or folders NAME with one .py file.")
    return list(found.values())


def _in_folder(name: str, folder: Path) -> Submission:
    if folder.is_symlink():
        return Submission(name, None, f"{folder.name} is a link to another folder")
    files = sorted(path for path in folder.rglob("*.py") if not path.name.startswith("."))
    if len(files) != 1:
        return Submission(name, None, f"expected one .py file, found {len(files)}")
    return _checked(name, files[0])


def _checked(name: str, file: Path) -> Submission:
    """A link could name any file of the lecturer."""
    if len(name.encode()) > LONGEST:
        return Submission(f"{name[:100]}...", None, f"its name has more than {LONGEST} bytes")
    if file.is_symlink() or not file.is_file():
        return Submission(name, None, f"{file.name} is not a regular file")
    return Submission(name, file.resolve())


def _shown(reason: str) -> str:
    """A reason in one line that any file can hold; submissions choose its words."""
    return one_line(reason.encode(errors="backslashreplace").decode())


def _ends(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait for a process, and end it if it takes longer; whether it ended by itself."""
    for limit, then in ((seconds, signal.SIGINT), (GRACE, signal.SIGKILL)):
        try:
            process.wait(limit)
            return then == signal.SIGINT
        except subprocess.TimeoutExpired:
            process.send_signal(then)
    process.wait()
    return False


def _stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Interrupt graders, and kill those that do not end: what a shell starts with ``&`` ignores interrupts."""
    for process in processes:
        process.send_signal(signal.SIGINT)
    until = time.monotonic() + GRACE
    for process in processes:
        try:
            process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()


def _end_all(place: Path) -> None:
    """End the processes that a grader which was killed has left: those whose root folder is in its folder."""
    while left := list(_rooted(place)):
        for number in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(number, signal.SIGKILL)


def _rooted(place: Path) -> Iterator[int]:
    for entry in Path("/proc").glob("[0-9]*/task/[0-9]*/root"):  # the first thread of a process may have ended
        with contextlib.suppress(OSError):
            if Path(os.readlink(entry)).is_relative_to(place):
                yield int(entry.parts[2])
