"""``grade.py ASSIGNMENT FILE`` prints each promise with its points, one more line for each broken promise, and the
sum."""

from __future__ import annotations

import json
import traceback
from collections.abc import Sequence
from pathlib import Path

import click
import numpy as np

from grader import report
from grader.assignment import Assignment, load_assignment
from grader.boundary import KINDS
from grader.grading import grade
from sgdec.errors import SgdecError, UsageError
from sgdec.io.writing import whole_file
from sgdec.plugins.host import Host


@click.command()
@click.argument("assignment")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Seed of all random numbers.")
@click.option(
    "--seconds", type=click.FloatRange(min=0.1), default=10.0, show_default=True,
    help="Time of the submission for each check.",
)
@click.option(
    "--total", type=click.FloatRange(min=1.0), default=180.0, show_default=True, metavar="SECONDS",
    help="Time for all checks together.",
)
@click.option(
    "--boundary", type=click.Choice(["auto", *KINDS]), default="auto", show_default=True,
    help="The boundary that the submission cannot cross; without one there are no marks.",
)
@click.option("--results", type=click.Path(path_type=Path), metavar="FILE", help="Write Gradescope's results.json.")
@click.option(
    "--record", type=click.Path(path_type=Path), metavar="FILE",
    help="Write everything as JSON, also the seed, which is then not printed.",
)
@click.option("--debug", metavar="TEXT", help="Run the checks that contain TEXT, up to the first traceback.")
def command(
    assignment: str, file: Path, seed: int, seconds: float, total: float, boundary: str, results: Path | None,
    record: Path | None, debug: str | None,
) -> int:  # fmt: skip
    """Grade FILE, which was written for ASSIGNMENT (a folder beside this program).

    FILE runs in a process of its own, behind a boundary that it cannot cross, and all judging happens in this one.
    With --debug it runs here, without a boundary, and what it prints is shown.

    The same file and seed give the same points. Exit status 0 for full marks, 1 for less, 2 for a wrong call.
    """
    asked = load_assignment(assignment)
    if file.is_dir():
        raise UsageError(f"{file}: a folder. Expected one file, such as {file / f'my_{assignment}.py'}.")
    if not file.is_file():
        raise UsageError(f"{file}: no such file.")
    if debug is not None:
        return _debug(asked, file, seed, debug)
    graded = grade(asked, file.resolve(), seed, seconds, total, boundary)
    for path, content in (
        (results, report.gradescope(assignment, graded)), (record, report.record(assignment, file, seed, graded))
    ):  # fmt: skip
        if path is not None:
            with whole_file(str(path)) as output:
                output.write((json.dumps(content, indent=1) + "\n").encode())
    shown = None if record or results else seed  # what is printed then can go to the student
    click.echo("\n".join(report.lines(assignment, file, shown, graded)))
    return 0 if graded.points == graded.possible else 1


def _debug(asked: Assignment, file: Path, seed: int, text: str) -> int:
    """Run checks in this process and show their output; the first failure ends the run with its traceback."""
    chosen = [check for check in asked.checks if text.lower() in check.promise.lower()]
    if not chosen:
        raise UsageError(f"--debug {text}: no promise contains that. Expected part of a line of the report.")
    make = Host([file.resolve()], autoload=False).load(asked.kind, asked.plugin)
    for check in chosen:
        click.echo(check.promise)
        try:
            check.test(make, np.random.default_rng(seed))
        except Exception as error:
            frames = error.__traceback__
            traceback.print_exception(error.with_traceback(frames and frames.tb_next))  # from the check on
            return 1
    return 0


def main(args: Sequence[str] | None = None, called: click.Command = command) -> int:
    """Run a command of the course; a wrong call gives one line and exit status 2."""
    try:
        return int(called.main(args, standalone_mode=False) or 0)
    except (SgdecError, click.ClickException) as error:
        click.echo(f"Error: {error.format_message() if isinstance(error, click.ClickException) else error}", err=True)
        return error.exit_status if isinstance(error, SgdecError) else 2
