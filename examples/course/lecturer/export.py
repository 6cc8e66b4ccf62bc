"""Two folders made from the course: ``student``, and ``lecturer`` with hidden checks and solutions.

Paths and links in the copied texts are those of the new folder. A link to a file that is not in it becomes the name
of the file in the repository of sgdec.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from grader.assignment import COURSE, assignments

from lecturer.notebooks import notebook
from sgdec.errors import UsageError

ROOT = COURSE.parents[1]
SOLUTIONS = ROOT / "tests" / "course_solutions"
GUIDE = ROOT / "docs" / "howto" / "teaching.md"
STUDENTS = COURSE / "students.md"
"""The first page for students."""
LECTURERS = {"README.md", "students.md", "lecturer"}
"""Files of the course that no copy has under their own names."""
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
    """Write both distributions to a folder that must be new or empty."""
    require_new(folder)
    partial = folder.resolve().with_name(f".{folder.resolve().name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # of an export that was killed
    try:
        write_student(partial / "student")
        write_lecturer(partial / "lecturer")
        partial.rename(folder.resolve())
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def require_new(folder: Path, option: str = "") -> None:
    """Raises UsageError if the folder is neither new nor empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{option}{folder}: not an empty folder. Remove it, or name another one.")


def write_student(folder: Path) -> None:
    """All that a student needs to work and to grade, and nothing hidden."""
    _copy_course(folder, hidden=False)


def write_lecturer(folder: Path) -> None:
    """The student's files, hidden checks, solutions with typical mistakes, and the guide to teaching."""
    _copy_course(folder, hidden=True)
    for path in sorted(SOLUTIONS.glob("*.py")):
        _copy(path, folder / "solutions" / path.name, folder)
    _copy(GUIDE, folder / "TEACHING.md", folder)


def shared_files(*, hidden: bool) -> Iterator[Path]:
    """The files of the course. Names that begin with ``hidden`` are for lecturers only."""
    for place, folders, files in os.walk(COURSE):
        here = Path(place)
        left_out = LECTURERS if here == COURSE else set()
        folders[:] = sorted(each for each in folders if each not in left_out | {"__pycache__"} and each[0] != ".")
        for name in sorted(files):
            if name in left_out or name.endswith(".pyc") or (name.startswith("hidden") and not hidden):
                continue
            yield here / name


def _copy_course(folder: Path, *, hidden: bool) -> None:
    for path in shared_files(hidden=hidden):
        _copy(path, folder / path.relative_to(COURSE), folder)
    _copy(STUDENTS, folder / "README.md", folder)
    for name in assignments():
        text = rewritten(COURSE / name / "handout.md", folder / f"{name}.ipynb", folder)
        starter = rewritten(COURSE / name / "starter.py", folder / f"{name}.ipynb", folder)
        (folder / f"{name}.ipynb").write_text(notebook(name, text, starter), encoding="utf-8")


def _copy(source: Path, target: Path, folder: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.suffix in TEXTS:
        target.write_text(rewritten(source, target, folder), encoding="utf-8")
    else:
        shutil.copyfile(source, target)


def rewritten(source: Path, target: Path, folder: Path) -> str:
    """A text of the repository as it is in a distribution, whose folder is ``folder``."""
    text = source.read_text(encoding="utf-8")
    if source.suffix != ".md":
        return _moved(text)
    parts, end = [], 0
    for found in LINK.finditer(text):
        parts += [_moved(text[end : found.start()]), _link(found, source, target, folder)]
        end = found.end()
    return "".join([*parts, _moved(text[end:])])


def _link(found: re.Match[str], source: Path, target: Path, folder: Path) -> str:
    place = (source.parent / found[2]).resolve()
    if place == STUDENTS:
        return f"[{found[1]}]({os.path.relpath(folder / 'README.md', target.parent)})"
    if place.is_relative_to(COURSE) and place.relative_to(COURSE).parts[0] not in LECTURERS:
        return f"[{found[1]}]({os.path.relpath(folder / place.relative_to(COURSE), target.parent)})"
    return f"{found[1]} (`{place.relative_to(ROOT).as_posix()}` in the repository of sgdec)"


def _moved(text: str) -> str:
    for old, new in MOVED.items():
        text = text.replace(old, new)
    return text
