"""The files that a submission sees: a Python interpreter, the core of sgdec, and its own file. Nothing else.

They form a folder that can be the root of a file system. It lacks the course, the bundled predictors and decoders,
and `sgdec.testing`. Files are links to the installed ones where that is possible, so building it takes a second.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath

import sgdec
from sgdec.errors import SgdecError

INSIDE = Path(__file__).resolve().parent / "inside"
PYTHON = PurePosixPath("/python/bin/python3")
LAUNCHER, PROGRAM = PurePosixPath("/inside/launch.py"), PurePosixPath("/inside/main.py")
SUBMISSION, INBOX = PurePosixPath("/submission"), PurePosixPath("/inbox")
"""The folders of the submitted file, and of files for it that checks make."""
LEFT_OUT = ("dist-packages", "ensurepip", "idlelib", "lib2to3", "site-packages", "test", "tests", "tkinter")
"""Folders of Python's library that nobody needs here."""
CLOSED = ("testing",)
"""Packages of sgdec's core that contain solutions or checks."""
_LIBRARY = re.compile(r"(?:=> )?(/\S+) \(0x")


@contextmanager
def readable() -> Iterator[None]:
    """Within this context all users can read new files and folders, and only their owner can change them."""
    before = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(before)


class View:
    """The folder, which belongs to this process alone."""

    def __init__(self, root: Path, *, whole: bool) -> None:
        """Make it; ``whole``: with the interpreter and its libraries, for boundaries that make it the root.

        Raises SgdecError if a file cannot be read or a library cannot be found.
        """
        self.root = root
        self.whole = whole
        root.chmod(0o755)
        for folder in (SUBMISSION, INBOX, PurePosixPath("/site"), PurePosixPath("/proc"), PurePosixPath("/dev")):
            self.at(folder).mkdir()
        try:
            _link_tree(INSIDE, self.at(PROGRAM).parent)
            _link_tree(Path(sgdec.__file__).parent, self.at("/site/sgdec"), CLOSED)
            for source, place in _dependencies("sgdec"):
                _link(source, self.at("/site") / place)
            if whole:
                self._link_python()
        except OSError as error:
            raise SgdecError(f"{error.filename}: {error.strerror}; it has to be readable for the grader") from None

    def at(self, path: str | PurePosixPath) -> Path:
        """The path in this file system of a path inside of the view."""
        return self.root / str(path).lstrip("/")

    def seen(self, path: Path) -> str:
        """The name that a path of this file system has for the submission."""
        return f"/{path.relative_to(self.root)}" if self.whole else str(path)

    def submit(self, file: Path) -> str:
        """Put the submitted file into the view; its name there."""
        place = self.at(SUBMISSION) / file.name
        shutil.copyfile(file, place)
        place.chmod(0o644)
        return self.seen(place)

    def _link_python(self) -> None:
        executable = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
        library = Path(sysconfig.get_path("stdlib"))
        _link(executable, self.at(PYTHON))
        _link_tree(library, self.at("/python/lib") / library.name, LEFT_OUT)
        for path in _libraries(executable, list(self.root.rglob("*.so"))):
            if not path.is_relative_to(self.root):
                _link(path, self.at(str(path)))


def _dependencies(name: str, seen: set[str] | None = None) -> Iterator[tuple[Path, str]]:
    """The files of all distributions that the core of a distribution needs, with their places."""
    seen = {name} if seen is None else seen
    for requirement in distribution(name).requires or ():
        found = re.match(r"[A-Za-z0-9._-]+", requirement)
        needed = found[0].lower().replace("_", "-") if found else ""
        if "extra ==" in requirement or not needed or needed in seen:
            continue
        seen.add(needed)
        try:
            files = distribution(needed).files or ()
        except PackageNotFoundError:  # needed by another Python or system only
            continue
        for file in files:
            if not {"..", "__pycache__", "tests"} & set(file.parts):
                yield Path(str(file.locate())), str(file)
        yield from _dependencies(needed, seen)


def _libraries(executable: Path, extensions: list[Path]) -> set[Path]:
    """The shared libraries that these files load, with the loader itself, which lists them (man 8 ld.so)."""
    environment = {"LD_TRACE_LOADED_OBJECTS": "1", "LD_PRELOAD": ":".join(map(str, extensions))}
    found = subprocess.run([executable], env=environment, capture_output=True, encoding="utf-8", check=False)
    paths = {Path(path) for path in _LIBRARY.findall(found.stdout)}
    if not paths:
        raise SgdecError(f"{executable}: the loader of this system does not say which libraries it needs.")
    return paths


def _link_tree(source: Path, target: Path, left_out: tuple[str, ...] = ()) -> None:
    for folder, folders, files in os.walk(source):
        folders[:] = [name for name in folders if name not in left_out and name != "__pycache__"]
        place = os.path.normpath(target / os.path.relpath(folder, source))
        for name in files:
            _link(os.path.join(folder, name), os.path.join(place, name))


def _link(source: str | Path, target: str | Path) -> None:
    """A link to a file, and to its compiled form if it is a module that has one, which starts a process sooner.

    Paths are texts here: there are thousands of them, and a `Path` takes longer than a link.
    """
    source, target = os.path.realpath(source), str(target)
    _link_one(source, target)
    if source.endswith(".py"):
        compiled, there = map(importlib.util.cache_from_source, (source, target))
        if os.path.exists(compiled):
            _link_one(compiled, there)


def _link_one(source: str, target: str) -> None:
    """A link, or a copy of a file that is on another disk or that only its owner can read."""
    folder = os.path.dirname(target)
    if not os.path.isdir(folder):
        os.makedirs(folder)
    if os.path.exists(target):
        return
    mode = os.stat(source).st_mode
    if mode & 0o444 == 0o444:
        try:
            os.link(source, target)
        except OSError:
            shutil.copy2(source, target)
            os.chmod(target, mode & 0o755)
    else:
        shutil.copy2(source, target)  # with its time, which the compiled form names
        os.chmod(target, 0o755 if mode & 0o100 else 0o644)
