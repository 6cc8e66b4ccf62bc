"""The zip file from which Gradescope makes an autograder (Gradescope, "Autograder Specifications").

It has the two scripts of ``gradescope/``, the assignment with its hidden checks, the grader, and wheels or a list of
requirements. The seed is in the script ``run_autograder``.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from grader.assignment import COURSE, assignments, load_assignment

import sgdec
from lecturer.export import shared_files
from sgdec.errors import UsageError

SCRIPTS = Path(__file__).resolve().parent / "gradescope"
TOTAL = 180
"""Seconds for all checks of a submission."""
EXTRA = 60
"""Seconds for the rest, after which the grader is ended."""
SEEDS = range(2, 2**31)
"""The seeds that nobody knows; 1 is the default of ``grade.py``."""


def write_zip(output: BinaryIO, assignment: str, wheels: Path | None, seed: int | None) -> None:
    """Write the file. ``seed``: None = a random one. Raises UsageError for an unknown assignment, and if there is no
    wheel of sgdec in the folder ``wheels``."""
    load_assignment(assignment)
    found = [] if wheels is None else sorted(wheels.glob("*.whl"))
    if wheels is not None and not any(path.name.startswith("sgdec-") for path in found):
        raise UsageError(f"--wheels {wheels}: no wheel of sgdec. Make it with pip wheel --wheel-dir {wheels} CLONE.")
    values = {
        "assignment": assignment, "seed": seed if seed is not None else secrets.choice(SEEDS), "total": TOTAL,
        "limit": TOTAL + EXTRA,
    }  # fmt: skip
    with ZipFile(output, "w", ZIP_DEFLATED) as archive:
        for script in ("setup.sh", "run_autograder"):
            text = (SCRIPTS / script).read_text(encoding="utf-8")
            _add(archive, script, (_filled(text, values) if script == "run_autograder" else text).encode(), 0o755)
        for path in _course(assignment):
            _add(archive, f"course/{path.relative_to(COURSE).as_posix()}", path.read_bytes())
        for path in found:
            _add(archive, f"wheels/{path.name}", path.read_bytes())
        if wheels is None:
            _add(archive, "requirements.txt", f"sgdec=={sgdec.__version__}\n".encode())


def _course(assignment: str) -> Iterator[Path]:
    """The files of the course that one assignment needs."""
    others = set(assignments()) - {assignment}
    for path in shared_files(hidden=True):
        if path.relative_to(COURSE).parts[0] not in others:
            yield path


def _filled(script: str, values: dict[str, object]) -> str:
    for name, value in values.items():
        script = script.replace(f"@{name}@", str(value))
    return script


def _add(archive: ZipFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = ZipInfo(name)  # of 1980, so that equal contents give equal files
    entry.compress_type = ZIP_DEFLATED
    entry.external_attr = mode << 16
    archive.writestr(entry, content)
