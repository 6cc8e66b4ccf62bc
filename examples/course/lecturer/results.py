"""The table of a class, and the CSV file of its marks. Only what was graded behind a boundary has points."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence
from typing import Any

from grader.assignment import Assignment
from grader.report import UNPROTECTED

from lecturer.classes import Outcome
from sgdec.cli.tables import table

MOST = 5
"""Promises that the table lists."""
SHOWN = 70
"""Characters of a reason in the table."""
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def to_csv(assignment: Assignment, outcomes: Sequence[Outcome]) -> str:
    """One row per submission; the columns are named in the first row."""
    boards = sorted({board for outcome in outcomes for board in _record(outcome).get("values", {})})
    written = io.StringIO()
    rows = csv.writer(written, lineterminator="\n", quoting=csv.QUOTE_ALL)  # some programs split at semicolons too
    promises = [check.promise for check in assignment.checks]
    rows.writerow(["name", "points", "possible", "status", "reason", *map(_text, [*promises, *boards])])
    for outcome in outcomes:
        record = _record(outcome)
        points = [f"{check['points']:g}" for check in record["checks"]] if record else [""] * len(promises)
        rows.writerow([
            _text(outcome.name), f"{record['points']:g}" if record else "", assignment.points, outcome.status,
            _text(outcome.reason), *points, *(record.get("values", {}).get(board, "") for board in boards),
        ])  # fmt: skip
    return written.getvalue()


def lines(assignment: Assignment, outcomes: Sequence[Outcome]) -> Iterator[str]:
    """The table, the promises that failed most, and the leaderboard if there is one."""
    rows = []
    for outcome in outcomes:
        record = _record(outcome)
        points = f"{record['points']:g} of {assignment.points}" if record else ""
        rows.append([outcome.name, outcome.status, _short(outcome.reason), points, f"{outcome.seconds:.0f}"])
    yield table(["name", "status", "reason", "points", "seconds"], rows, texts=3)
    tested = [outcome.record for outcome in outcomes if outcome.record is not None and not outcome.record["lost"]]
    if failed := _failed_most(tested):
        yield ""
        yield table(["promises that failed most", f"of {len(tested)} tested"], failed)
    for board, values in _leaderboards(outcomes).items():
        yield ""
        yield table([board, ""], values)
    for status, words in (("not graded", "not graded"), ("UNPROTECTED", UNPROTECTED)):
        if count := sum(outcome.status == status for outcome in outcomes):
            yield f"{count} of {len(outcomes)} {words}"


def _record(outcome: Outcome) -> dict[str, Any]:
    """The record, if it has marks."""
    return outcome.record if outcome.status == "graded" and outcome.record is not None else {}


def _failed_most(records: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Promises with the number of submissions that lose points there, those of most submissions first."""
    counts: dict[str, int] = {}
    for record in records:
        for check in record["checks"]:
            counts[check["promise"]] = counts.get(check["promise"], 0) + (check["points"] < check["possible"])
    most = sorted(counts.items(), key=lambda item: -item[1])[:MOST]
    return [[promise, str(count)] for promise, count in most if count]


def _leaderboards(outcomes: Sequence[Outcome]) -> dict[str, list[list[str]]]:
    """For each board all submissions with their values, the highest first; those without a value are last."""
    values = {outcome.name: _record(outcome).get("values", {}) for outcome in outcomes}
    boards = {}
    for board in sorted({board for found in values.values() for board in found}):
        ranked = sorted(values, key=lambda name: -values[name].get(board, -math.inf))
        boards[board] = [[name, f"{values[name][board]:.4f}" if board in values[name] else "-"] for name in ranked]
    return boards


def _short(reason: str) -> str:
    return reason if len(reason) <= SHOWN else f"{reason[: SHOWN - 3]}..."


def _text(cell: str) -> str:
    """A text that no spreadsheet takes for a formula; students choose names and reasons."""
    return f"'{cell}" if cell.startswith(FORMULA) else cell
