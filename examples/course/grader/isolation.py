"""Checks in a separate process: a crash or an endless loop of a submission fails only the current check.

A worker goes through the checks and writes a line about each. If it dies, or if a check exceeds its time limit, that
check fails, and a new worker continues with the next one. Each check begins with its own random generator, so that
its outcome depends only on the file and the seed.

This is not a sandbox: it protects from mistakes, not from files that want to cheat.
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
"""The limit on the address space of a worker in bytes, on systems that can limit it."""


def failures(name: str, path: Path, seed: int, seconds: float) -> list[str | None]:
    """For each check of an assignment the failure in one line, or None; ``seconds`` is the time limit of a check."""
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
    """The work of a worker: report that the file is loaded, or the error; then report one line per check, from
    ``first`` on."""
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
    """End this process after ``seconds``, and report the stack at that time."""
    faulthandler.dump_traceback_later(seconds, exit=True, file=report)


def _say(report: TextIO, what: dict[str, Any]) -> None:
    report.write(json.dumps(what) + "\n")


def _last_words(lines: Sequence[str], path: Path, seconds: float) -> str:
    """The reason why a worker ended early."""
    if not any(line.startswith("Timeout") for line in lines):
        return f"the process died ({lines[-1]})"
    place = re.compile(rf'File "{re.escape(str(path.resolve()))}", line \d+ in (\S+)')
    inside = [found[1] for line in lines if (found := place.search(line))]
    return f"no end after {seconds:g} seconds{f' (in {inside[0]})' if inside else ''}"


def _limit_memory() -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):  # Windows and macOS go without
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
