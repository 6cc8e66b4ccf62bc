"""``grade.py ASSIGNMENT FILE`` prints each promise with its points, one more line for each broken promise, and the
sum."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from pathlib import Path

import click
import numpy as np

from grader.assignment import Assignment, load_assignment
from grader.isolation import failures, work
from grader.submission import load_submission
from sgdec.errors import SgdecError, UsageError


@click.command()
@click.argument("assignment")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Seed of all random numbers.")
@click.option("--seconds", type=click.FloatRange(min=0.1), default=10.0, show_default=True, help="Limit per check.")
@click.option("--debug", metavar="TEXT", help="Run the checks that contain TEXT, up to the first traceback.")
@click.option("--worker", type=int, hidden=True)
def command(
    assignment: str, file: Path, seed: int, seconds: float, debug: str | None, worker: int | None
) -> int:
    """Grade FILE, which was written for ASSIGNMENT (a folder beside this program).

    The same file and seed give the same points. Exit status 0 for full marks, 1 for less, 2 for a wrong call.
    """
    asked = load_assignment(assignment)
    if not file.is_file():
        raise UsageError(f"{file}: no such file.")
    if worker is not None:
        work(assignment, file.resolve(), seed, seconds, first=worker)
    if debug is not None:
        return _debug(asked, file, seed, debug)
    return _report(assignment, asked, file, seed, failures(assignment, file.resolve(), seed, seconds))


def _report(name: str, asked: Assignment, file: Path, seed: int, failed: Sequence[str | None]) -> int:
    """Print the points; return 0 for full marks, otherwise 1."""
    click.echo(f"{name}: {file} (seed {seed})")
    if len(set(failed)) == 1 and failed[0] is not None:
        click.echo(f"  every check: {failed[0]}")  # such as a file that does not import
    else:
        for check, failure in zip(asked.checks, failed, strict=True):
            click.echo(f"  {0 if failure else check.points:>2} of {check.points}  {check.promise}")
            if failure:
                click.echo(f"           {failure}")
        if any(failed):
            click.echo("  --debug TEXT shows the traceback of the first broken promise that contains TEXT.")
    earned = sum(check.points for check, failure in zip(asked.checks, failed, strict=True) if failure is None)
    click.echo(f"{name}: {earned} of {asked.points} points")
    return 0 if earned == asked.points else 1


def _debug(asked: Assignment, file: Path, seed: int, text: str) -> int:
    """Run checks in this process and show their output; the first failure ends the run with its traceback."""
    chosen = [check for check in asked.checks if text.lower() in check.promise.lower()]
    if not chosen:
        raise UsageError(f"--debug {text}: no promise contains that. Expected part of a line of the report.")
    make = load_submission(file.resolve(), asked)
    for check in chosen:
        click.echo(check.promise)
        try:
            check.test(make, np.random.default_rng(seed))
        except Exception as error:
            frames = error.__traceback__
            traceback.print_exception(error.with_traceback(frames and frames.tb_next))  # from the check on
            return 1
    return 0


def main(args: Sequence[str] | None = None) -> int:
    """Run the command; a wrong call gives one line and exit status 2."""
    try:
        return int(command.main(args, standalone_mode=False) or 0)
    except (SgdecError, click.ClickException) as error:
        click.echo(f"Error: {error.format_message() if isinstance(error, click.ClickException) else error}", err=True)
        return error.exit_status if isinstance(error, SgdecError) else 2
