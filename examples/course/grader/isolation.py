"""Checks in a process of their own: whatever a submission does, it costs only the check in which it does it.

A worker goes through the checks and writes a line about each. Where it dies, or where a check takes longer than it
may, that check is lost, and a fresh worker goes on with the next one. Each check begins with a generator of its own,
so that its outcome depends on nothing but the file and the seed.

This is no sandbox: a file that wants to cheat can. It protects from mistakes.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from grader.assignment import COURSE, Make, load_assignment
from grader.submission import load_submission
from sgdec.testing import breach

MEMORY = 4 << 30
"""Bytes of address space that a worker may take, where the system can limit that."""


def failures(name: str, path: Path, seed: int, seconds: float) -> list[str | None]:
    """For each check of an assignment what went wrong, in one line, or None; ``seconds``: what a check may take."""
    checks = load_assignment(name).checks
    found: list[str | None] = []
    while len(found) < len(checks):
        lines = _run_worker(name, path, seed, seconds, first=len(found))
        reported = [json.loads(line) for line in lines if line.startswith("{")]
        found += [line["failure"] for line in reported if "failure" in line]
        if len(found) == len(checks):
            break
        lost = next((line["lost"] for line in reported if "lost" in line), None)
        if lost is not None:  # it cannot even be loaded
            found += [lost] * (len(checks) - len(found))
        elif not reported:
            found += [_last_words(lines, path, seconds)] * (len(checks) - len(found))
        else:
            found.append(_last_words(lines, path, seconds))
    return found


def work(name: str, path: Path, seed: int, seconds: float, first: int) -> None:
    """What a worker does: says that the file is loaded, or why not; then a line a check, from the ``first`` on."""
    report = os.fdopen(os.dup(1), "w", buffering=1)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)  # what a submission prints is not part of the report
        os.dup2(nowhere.fileno(), 2)
    _limit_memory()
    assignment = load_assignment(name)
    made: list[Make] = []
    _watch(seconds, report)
    lost = breach(lambda: made.append(load_submission(path, assignment)), path)
    _say(report, {"lost": lost} if lost else {"loaded": True})
    for check in assignment.checks[first:] if made else ():
        _watch(seconds, report)
        failure = breach(lambda test=check.test: test(made[0], np.random.default_rng(seed)), path)  # type: ignore[misc]
        _say(report, {"failure": failure})
    os._exit(0)  # without what a submission may have left to run at the end


def _run_worker(name: str, path: Path, seed: int, seconds: float, first: int) -> list[str]:
    """The lines that a worker wrote; its exit status is the last."""
    command = [sys.executable, str(COURSE / "grade.py"), name, str(path), "--seed", str(seed)]
    done = subprocess.run(
        [*command, "--seconds", str(seconds), "--worker", str(first)],
        env={**os.environ, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    return [*done.stdout.splitlines(), f"exit status {done.returncode}"]


def _watch(seconds: float, report: TextIO) -> None:
    """Ends this process in so many seconds from now, wherever it is, and says where that was."""
    faulthandler.dump_traceback_later(seconds, exit=True, file=report)


def _say(report: TextIO, what: dict[str, Any]) -> None:
    report.write(json.dumps(what) + "\n")


def _last_words(lines: Sequence[str], path: Path, seconds: float) -> str:
    """Why a worker ended before its time."""
    if not any(line.startswith("Timeout") for line in lines):
        return f"the process died ({lines[-1]})"
    place = re.compile(rf'File "{re.escape(str(path.resolve()))}", line \d+ in (\S+)')
    inside = [found[1] for line in lines if (found := place.search(line))]
    return f"no end after {seconds:g} seconds{f' (in {inside[0]})' if inside else ''}"


def _limit_memory() -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):  # Windows and macOS go without
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
