"""Runs cases and records their outcomes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fuzz.case import Case, Content, write_files

ROOT = Path(__file__).parent.parent
MEMORY_FOLDER = Path("/dev/shm")


@dataclass(frozen=True)
class Outcome:
    """The outcome of one command."""

    status: int
    """The exit status; negative = the signal that ended the command."""
    waited: bool
    """Whether the command was stopped because it did not end."""
    cpu: float
    """Seconds of processor time."""
    seconds: float
    """Seconds of wall-clock time."""
    rss: int
    """The peak of its memory in bytes."""
    out: bytes
    err: str
    changed: tuple[str, ...]
    """The files of the case that changed."""


class Runner:
    """A process that forks one for each case (`fuzz.zygote`). To be used in a ``with``."""

    def __enter__(self) -> Runner:
        place = MEMORY_FOLDER if os.access(MEMORY_FOLDER, os.W_OK) else None
        self._folder = Path(tempfile.mkdtemp(prefix="sgdec-fuzz-", dir=place))
        paths = [str(ROOT / part) for part in ("", "predictors", "decoders")]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONIOENCODING": "utf-8:strict",
            "OMP_NUM_THREADS": "1",
            "MPLBACKEND": "agg",
            "TMPDIR": str(self._folder),
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "fuzz.zygote"], cwd=ROOT, env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self._answer()
        return self

    def __exit__(self, *error: object) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def run(self, case: Case) -> Outcome:
        folder = self._folder / "case" / "here"  # what is written to .. stays inside, too
        out = self._folder / "stdout"
        try:
            folder.mkdir(parents=True)
            write_files(case.files, folder)
            request = {
                "args": case.args,
                "folder": str(folder),
                "stdin": str(folder / case.stdin) if case.stdin else os.devnull,
                "stdout": str(out),
                "file_size": case.file_size,
            }
            assert self._process.stdin is not None
            print(json.dumps(request), file=self._process.stdin, flush=True)
            answer = self._answer()
            changed = tuple(name for name, content in case.files.items() if _now(folder / name) != content)
            return Outcome(**answer, out=out.read_bytes(), changed=changed)
        finally:
            out.unlink(missing_ok=True)
            shutil.rmtree(folder.parent, ignore_errors=True)

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process that runs the cases ended, status {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def _now(path: Path) -> Content | None:
    try:
        return path.readlink() if path.is_symlink() else path.read_bytes()
    except OSError:
        return None
