"""Two folders made from the course: ``student``, and ``lecturer`` with hidden checks and solutions.

Paths and links in the copied texts are those of the new folder. A link to a file that is not in it becomes the name
of the file in the repository of sgdec.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from grader.assignment import COURSE, assignments

from lecturer.notebooks import notebook
from sgdec.errors import UsageError

ROOT = COURSE.parents[1]
SOLUTIONS = ROOT / "tests" / "course_solutions"
STUDENT_PAGES = {COURSE / "students.md": "README.md"}
LECTURER_PAGES = {
    **STUDENT_PAGES, COURSE / "README.md": "COURSE.md", ROOT / "docs" / "howto" / "teaching.md": "TEACHING.md",
}  # fmt: skip
"""Pages that have other names in a distribution."""
LEFT_OUT = {"README.md", "students.md", "lecturer"}
"""Files of the course that no distribution has under their own names."""
PARTS = "a handout.md, a starter.py and a checks.py"
TEXTS = {".md", ".py"}
LINK = re.compile(r"\[([^\]]*)\]\((?![a-z]+:|[/#])([^)#\s]+)(?:#[^)\s]*)?\)")
MOVED = {
    "examples/course/": "",
    "predictors/sgdec_predictors/": "sgdec_predictors/",
    "decoders/sgdec_decoders/": "sgdec_decoders/",
    "from tests.course_solutions.": "from ",
}
"""Paths of a clone, and what they are beside an installed sgdec."""


def export(folder: Path) -> None:
    """Write both distributions to a folder that must be new or empty. Raises UsageError for an incomplete assignment.
    """
    require_new(folder)
    for name in assignments():
        for part in ("handout.md", "starter.py"):
            if not (COURSE / name / part).is_file():
                raise UsageError(f"{COURSE / name / part}: no such file. An assignment has {PARTS}.")
    partial = folder.resolve().with_name(f".{folder.resolve().name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # of an export that was killed
    partial.mkdir(parents=True, mode=stat.S_IMODE(folder.stat().st_mode) if folder.exists() else 0o777)
    try:
        Distribution(partial / "student", hidden=False).write()
        Distribution(partial / "lecturer", hidden=True).write()
        partial.rename(folder.resolve())
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def require_new(folder: Path, option: str = "") -> None:
    """Raises UsageError if the folder is neither new nor empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{option}{folder}: not an empty folder. Remove it, or name another one.")


def shared_files(*, hidden: bool) -> Iterator[Path]:
    """The files of the course. Names that begin with ``hidden`` are for lecturers only."""
    for place, folders, files in os.walk(COURSE):
        here = Path(place)
        left_out = LEFT_OUT if here == COURSE else set()
        folders[:] = sorted(each for each in folders if each not in left_out | {"__pycache__"} and each[0] != ".")
        for name in sorted(files):
            if name in left_out or name.endswith(".pyc") or (name.startswith("hidden") and not hidden):
                continue
            yield here / name


class Distribution:
    """A folder with files of the repository, and their places there."""

    def __init__(self, folder: Path, *, hidden: bool) -> None:
        self._folder = folder
        self._places = {path: folder / path.relative_to(COURSE) for path in shared_files(hidden=hidden)}
        if hidden:
            self._places |= {path: folder / "solutions" / path.name for path in sorted(SOLUTIONS.glob("*.py"))}
        pages = LECTURER_PAGES if hidden else STUDENT_PAGES
        self._places |= {path: folder / name for path, name in pages.items()}

    def write(self) -> None:
        """Copy all files, and make the notebooks."""
        for source, target in self._places.items():
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.suffix in TEXTS:
                target.write_text(self.rewritten(source, target), encoding="utf-8")
            else:
                shutil.copyfile(source, target)
        for name in assignments():
            target = self._folder / f"{name}.ipynb"
            parts = (self.rewritten(COURSE / name / part, target) for part in ("handout.md", "starter.py"))
            target.write_text(notebook(name, *parts), encoding="utf-8")

    def rewritten(self, source: Path, target: Path) -> str:
        """A text of the repository for a place in the folder."""
        text = source.read_text(encoding="utf-8")
        if source.suffix != ".md":
            return _moved(text)
        parts, end = [], 0
        for found in LINK.finditer(text):
            parts += [_moved(text[end : found.start()]), self.link(found, source, target)]
            end = found.end()
        return "".join([*parts, _moved(text[end:])])

    def link(self, found: re.Match[str], source: Path, target: Path) -> str:
        """A link in a text, or what it becomes if it leads out of the folder."""
        page = (source.parent / found[2]).resolve()
        if page in self._places:
            return f"[{found[1]}]({os.path.relpath(self._places[page], target.parent)})"
        return f"{found[1]} (`{page.relative_to(ROOT).as_posix()}` in the repository of sgdec)"


def _moved(text: str) -> str:
    for old, new in MOVED.items():
        text = text.replace(old, new)
    return text
