"""Runs cases and records their outcomes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
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
    """The peak of its memory in bytes, with that of the processes that it started."""
    out: bytes
    err: str
    changed: tuple[str, ...]
    """The files of the case that changed."""


class Runner:
    """Processes that fork one for each case (`fuzz.zygote`). To be used in a ``with``."""

    def __enter__(self) -> Runner:
        place = MEMORY_FOLDER if os.access(MEMORY_FOLDER, os.W_OK) else None
        self._folder = Path(tempfile.mkdtemp(prefix="sgdec-fuzz-", dir=place))
        self._zygotes: dict[bool, _Zygote] = {}
        self._light = False
        return self

    def __exit__(self, *error: object) -> None:
        for zygote in self._zygotes.values():
            zygote.end()
        shutil.rmtree(self._folder, ignore_errors=True)

    def run(self, case: Case) -> Outcome:
        with self._in_folder(case) as (folder, request):
            answer = self._zygote.ask(request)
            changed = tuple(name for name, content in case.files.items() if _now(folder / name) != content)
            return Outcome(**answer, out=Path(request["stdout"]).read_bytes(), changed=changed)

    def written(self, case: Case) -> dict[str, Content]:
        """The files that the folder of a case has after its run."""
        with self._in_folder(case) as (folder, request):
            self._zygote.ask(request)
            inside = (path for path in sorted(folder.rglob("*")) if path.is_symlink() or path.is_file())
            return {str(path.relative_to(folder)): content for path in inside if (content := _now(path)) is not None}

    @contextmanager
    def station(self, case: Case, *, light: bool) -> Iterator[None]:
        """Within this context cases like this one, which does its work, run faster. ``light``: without torch."""
        self._light = light
        with self._in_folder(case) as (_, request):
            started = self._zygote.ask(request | {"station": True})["station"]
        try:
            yield
        finally:
            if started:
                self._zygote.ask("leave")
            self._light = False

    @property
    def _zygote(self) -> _Zygote:
        if self._light not in self._zygotes:
            self._zygotes[self._light] = _Zygote(self._light, self._folder)
        return self._zygotes[self._light]

    @contextmanager
    def _in_folder(self, case: Case) -> Iterator[tuple[Path, dict[str, Any]]]:
        """The folder of a case, and the request to run it there."""
        folder = self._folder / "case" / "here"  # what is written to .. stays inside, too
        out = self._folder / "stdout"
        request = {
            "station": False,
            "args": case.args,
            "folder": str(folder),
            "stdin": str(folder / case.stdin) if case.stdin else os.devnull,
            "stdout": str(out),
            "file_size": case.file_size,
            "closed": case.closed,
        }
        try:
            folder.mkdir(parents=True)
            write_files(case.files, folder)
            yield folder, request
        finally:
            out.unlink(missing_ok=True)
            shutil.rmtree(folder.parent, ignore_errors=True)


class _Zygote:
    """A process of `fuzz.zygote`."""

    def __init__(self, light: bool, folder: Path) -> None:
        paths = [str(ROOT / part) for part in ("", "predictors", "decoders")]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONIOENCODING": "utf-8:strict",
            "OMP_NUM_THREADS": "1",
            "TOKENIZERS_PARALLELISM": "false",  # its threads would not survive a fork
            "MPLBACKEND": "agg",
            "TMPDIR": str(folder),
        }
        command = [sys.executable, "-m", "fuzz.zygote", *(["light"] if light else [])]
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._answer()

    def ask(self, request: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        return self._answer()

    def end(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

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
