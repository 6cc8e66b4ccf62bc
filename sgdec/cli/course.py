"""``sgdec course``: what a lecturer does with the course in ``examples/course``, which only a clone has."""

from __future__ import annotations

import json
import logging
import os
import sys
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any

import click

import sgdec
from sgdec.cli.paths import Group, Read, Written
from sgdec.errors import UsageError, one_line
from sgdec.io.writing import whole_file, write_whole

log = logging.getLogger(__name__)

COURSE = Path(sgdec.__file__).resolve().parents[1] / "examples" / "course"
PUBLIC_SEED = 1
"""The default of ``grade.py``, with which students grade."""
SEED = click.IntRange(PUBLIC_SEED + 1, 2**31 - 1)


def lecturer(module: str) -> Any:
    """A module of the course's package ``lecturer``. Raises UsageError if the course is not there."""
    if not (COURSE / "lecturer").is_dir():
        raise UsageError("the course is not in the installed package. Run sgdec from a clone: pip install -e CLONE.")
    if str(COURSE) not in sys.path:
        sys.path.insert(0, str(COURSE))
    return import_module(f"lecturer.{module}")


@click.group("course", cls=Group)
def command() -> None:
    """Export the course, make autograders, grade a class.

    \b
    sgdec course export handout
    sgdec course zip beam --output beam.zip
    sgdec course grade beam submissions --seed 4711 --csv marks.csv

    These commands need a clone of sgdec, because the course is not in the installed package.
    """


@command.command("export")
@click.argument("folder", type=Written(new=True))
def export(folder: str) -> None:
    """Write the course to FOLDER, which must be new or empty.

    FOLDER/student has the handouts, also as notebooks, the starter files, the public checks and the grader;
    FOLDER/lecturer has in addition the hidden checks, the solutions with typical mistakes, and the guide to teaching.
    """
    lecturer("export").export(Path(folder))
    click.echo(f"Wrote {os.path.join(folder, 'student')} and {os.path.join(folder, 'lecturer')}.")


@command.command("zip")
@click.argument("assignment")
@click.option("--output", type=Written(), required=True, metavar="FILE", help="The zip file.")
@click.option(
    "--wheels", type=Read(), metavar="FOLDER",
    help="Wheels of sgdec and all that it needs, to install without network. Default: a requirements file.",
)
@click.option("--seed", type=SEED, metavar="N", help="Secret seed of all random numbers. Default: a random one.")
def zip_(assignment: str, output: str, wheels: str | None, seed: int | None) -> None:
    """Write Gradescope's autograder for ASSIGNMENT.

    The file contains the hidden checks and the seed: give it to nobody.
    """
    made = lecturer("autograder")
    with whole_file(output) as file:
        made.write_zip(file, assignment, None if wheels is None else Path(wheels), seed)
    if wheels is None and ".dev" in sgdec.__version__:
        log.warning("No index has sgdec %s, so setup.sh will fail. Give --wheels.", sgdec.__version__)
    click.echo(f"Wrote {output}. It contains the hidden checks and the seed: give it to nobody.")


@command.command("grade", short_help="Grade the files of a class.")
@click.argument("assignment")
@click.argument("submissions", metavar="FOLDER", type=Read())
@click.option(
    "--seed", type=SEED, required=True, metavar="N",
    help="Secret seed of all random numbers, the same for the whole class; 1 is the public one.",
)
@click.option("--csv", "csv_", type=Written(), required=True, metavar="FILE", help="Write the marks as CSV.")
@click.option(
    "--records", type=Written(new=True), metavar="FOLDER",
    help="Write the report for each student (NAME.txt) and the whole record (NAME.json) to a new folder.",
)
@click.option(
    "--jobs", type=click.IntRange(min=1), default=2, show_default=True, metavar="N", help="Submissions side by side."
)
@click.option(
    "--total", type=click.FloatRange(min=1.0), default=180.0, show_default=True, metavar="SECONDS",
    help="Time for all checks of a submission.",
)
@click.option(
    "--boundary", type=click.Choice(["auto", "user", "bubblewrap", "none"]), default="auto", show_default=True,
    help="The boundary that submissions cannot cross. With none they run with your rights, there are no marks, and "
    "root is refused.",
)
def grade(
    assignment: str, submissions: str, seed: int, csv_: str, records: str | None, jobs: int, total: float,
    boundary: str,
) -> int:  # fmt: skip
    """Grade the files of a class: FOLDER/NAME.py, or FOLDER/NAME with one .py file.

    Each is graded in a process of its own. A grader that dies or hangs gives no mark: the points are then empty, and
    the reason is beside them. Exit status 0 if all are graded, 1 if not, 2 for a wrong call.
    """
    classes, results = lecturer("classes"), lecturer("results")
    if Path(submissions).is_file():
        raise UsageError(f"{submissions}: a file. Expected the folder of all submissions.")
    if not Path(submissions).is_dir():
        raise UsageError(f"{submissions}: no such folder.")
    if records is not None:
        lecturer("export").require_new(Path(records), "--records ")
    found = classes.find_submissions(Path(submissions))
    grading = classes.Grading(assignment, seed, total, jobs, boundary)
    if grading.unprotected:
        log.warning("submissions run with your rights: each can read and change your files. There are no marks.")
    outcomes = []
    with closing(grading.grade(found)) as graded:
        for outcome in graded:
            outcomes.append(outcome)
            said = f"{outcome.record['points']:g} points" if outcome.status == "graded" else outcome.status
            name = one_line(outcome.name)  # students choose it
            log.info(f"{len(outcomes)} of {len(found)}: {name}, {said} ({outcome.seconds:.0f} s)")
            if records is not None and outcome.record is not None:
                Path(records).mkdir(parents=True, exist_ok=True)
                write_whole(Path(records, f"{outcome.name}.txt"), outcome.report)
                write_whole(Path(records, f"{outcome.name}.json"), json.dumps(outcome.record, indent=1) + "\n")
    outcomes.sort(key=lambda outcome: str(outcome.name))
    write_whole(csv_, results.to_csv(grading.assignment, outcomes))
    click.echo("\n".join(results.lines(grading.assignment, outcomes)))
    return 0 if all(outcome.status == "graded" for outcome in outcomes) else 1
