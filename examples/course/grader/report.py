"""Reports of one graded submission: text for the student, Gradescope's ``results.json``, and a record for a class."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from grader.grading import Graded, Outcome

UNPROTECTED = "UNPROTECTED: no marks"
HINT = "  --debug TEXT shows the traceback of the first broken promise that contains TEXT."


def lines(name: str, file: Path, seed: int | None, graded: Graded) -> Iterator[str]:
    """The report for the student. ``seed``: None = secret."""
    yield f"{name}: {file.name}" if seed is None else f"{name}: {file} (seed {seed})"
    if graded.lost is not None:
        yield f"  every check: {graded.lost}"  # such as a file that does not import
    else:
        for outcome in graded.outcomes:
            yield from _of_check(outcome)
        if any(outcome.failure for outcome in graded.outcomes):
            yield HINT
    for board, value in graded.values.items():
        yield f"  {board}: {value:.4f}"
    if graded.unprotected:
        yield f"{UNPROTECTED} ({graded.unprotected})"
    yield f"{name}: {total(graded)}"


def total(graded: Graded) -> str:
    """The points earned and possible."""
    return f"{graded.points:g} of {graded.possible} points"


def gradescope(name: str, graded: Graded) -> dict[str, Any]:
    """``results.json`` (Gradescope, "Autograder Specifications", Output Format).

    Without a boundary it has no score, so that Gradescope reports a failure of the autograder.
    """
    seconds = round(graded.seconds, 3)
    if graded.unprotected:
        return {"execution_time": seconds, "output": f"{UNPROTECTED} ({graded.unprotected})", "visibility": "visible"}
    return {
        "score": graded.points,
        "execution_time": seconds,
        "output": graded.lost or f"{name}: {total(graded)}",
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "tests": [_gradescope_test(number, outcome) for number, outcome in enumerate(graded.outcomes, start=1)],
        "leaderboard": [
            {"name": board, "value": round(value, 6), "order": "desc"} for board, value in graded.values.items()
        ],
    }


def record(name: str, file: Path, seed: int, graded: Graded) -> dict[str, Any]:
    """All of it, for the table of a class."""
    return {
        "assignment": name, "file": str(file), "seed": seed, "points": graded.points, "possible": graded.possible,
        "unprotected": graded.unprotected, "boundary": graded.boundary, "lost": graded.lost,
        "seconds": round(graded.seconds, 3), "values": graded.values,
        "checks": [
            {"promise": outcome.check.promise, "points": outcome.points, "possible": outcome.check.points,
             "failure": outcome.failure, "hidden": outcome.check.hidden}
            for outcome in graded.outcomes
        ],
    }  # fmt: skip


def _of_check(outcome: Outcome) -> Iterator[str]:
    yield f"  {outcome.points:>2g} of {outcome.check.points}  {outcome.check.promise}"
    if outcome.said:
        yield f"           {outcome.said}"


def _gradescope_test(number: int, outcome: Outcome) -> dict[str, Any]:
    """A hidden promise shows its points, and not what was tested."""
    hidden = outcome.check.hidden
    return {
        "number": str(number),
        "name": "a hidden promise" if hidden else outcome.check.promise,
        "score": outcome.points,
        "max_score": outcome.check.points,
        "status": "failed" if outcome.failure else "passed",
        "output": "" if hidden else outcome.said,
        "visibility": "visible",
    }
