"""Print what the searches of all tasks found, and how often a beam misses the best output that a constraint allows.

    python tables.py WORK

Reads WORK/TASK/found.json, which ``search.py`` writes. A search misses the best allowed output of a sentence if it
has another one, with a lower score, or none at all. Only sentences whose best output is proven count. The searches
check each other: none may find a better score than the proven best, and no allowed output may have a better score
than the proven best output of the model alone.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, TypeAlias

import sacrebleu

SAME = 1e-3
"""Sums of the same scores differ by less, computed in other batches in fp32."""
EXACT = "exact"
TASKS = ("dates", "records", "entities", "terms")


class Run:
    """One search of all test sentences of a task. Each list has an entry for every sentence."""

    def __init__(self, constraint: str, search: str, seconds: float, outputs: list[dict[str, Any]]) -> None:
        self.constraint, self.search, self.seconds = constraint, search, seconds
        self.texts = [output["text"] or "" for output in outputs]
        self.scores = [-math.inf if output["score"] is None else output["score"] for output in outputs]
        self.proven = [output["proven"] for output in outputs]
        self.allowed = [output["allowed"] for output in outputs]
        self.expansions = sum(output["expansions"] for output in outputs)

    def lost(self, exact: Run) -> list[float]:
        """The score that each proven sentence loses: 0 = it has the best output, inf = it has none."""
        pairs = zip(exact.scores, self.scores, strict=True)
        found = [best - score for (best, score), proof in zip(pairs, exact.proven, strict=True) if proof]
        assert min(found, default=0) > -SAME, f"{self.search} has a better score than the proven best"
        return [lost if lost > SAME else 0.0 for lost in found]


Runs: TypeAlias = dict[tuple[str, str], Run]
"""By constraint and search; the constraint of a search without one is empty."""


def read(folder: Path) -> Runs:
    found = [Run(**run) for run in json.loads((folder / "found.json").read_text(encoding="utf-8"))]
    return {(run.constraint, run.search): run for run in found}


def check_upper_bounds(runs: Runs) -> None:
    """A constraint forbids and adds nothing, so the proven best of the model is no worse than an allowed output."""
    free = runs["", EXACT]
    for run in runs.values():
        for bound, proof, score in zip(free.scores, free.proven, run.scores, strict=True):
            assert not proof or score < bound + SAME, f"{run.constraint}: a better score than that of the model alone"


def table(rows: Sequence[Sequence[object]]) -> str:
    """Rows as a Markdown table in columns."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in cells]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])


def percent(shares: Iterable[bool]) -> str:
    return f"{100 * fmean(shares):.0f} %"


def searches(runs: Runs, constraint: str, references: list[str]) -> str:
    """All searches with a constraint, and those without it."""
    rows: list[list[object]] = [[
        "constraint", "search", "proven", "best", "worse", "none", "mean lost", "allowed", "right", "expansions",
        "times greedy",
    ]]  # fmt: skip
    greedy = next(iter(runs.values())).seconds
    for (used, search), run in runs.items():
        if used not in ("", constraint):
            continue
        lost = run.lost(runs[used, EXACT])
        worse = [score for score in lost if 0 < score < math.inf]
        rows.append([
            used or "none", search, len(lost), lost.count(0), len(worse), lost.count(math.inf),
            f"{fmean(worse):.2f}" if worse else "", percent(constraint in names for names in run.allowed),
            percent(map(str.__eq__, run.texts, references)), f"{run.expansions:,}", f"{run.seconds / greedy:.1f}",
        ])  # fmt: skip
    return table(rows)


def misses(tasks: dict[str, Runs]) -> str:
    """For each constraint how many proven sentences each beam misses; in brackets those without any output."""
    exact = {(task, used): run for task, runs in tasks.items() for (used, name), run in runs.items() if name == EXACT}
    names = dict.fromkeys(search for runs in tasks.values() for _, search in runs if search != EXACT)
    rows = [["search", *(constraint or f"{task}, free" for task, constraint in exact)]]
    for search in names:
        row = [search]
        for (task, constraint), best in exact.items():
            run = tasks[task].get((constraint, search))
            lost = run.lost(best) if run else []
            row.append(f"{sum(map(bool, lost))} ({lost.count(math.inf)}) / {len(lost)}" if run else "")
        rows.append(row)
    return table(rows)


def terms(folder: Path, runs: Runs, references: list[str]) -> dict[str, str]:
    """By caption a table of all searches, with and without phrases, by the number of wanted terms."""
    wanted = {
        used: [line.split("\t") for line in (folder / f"{used}.tsv").read_text(encoding="utf-8").splitlines()]
        for used, _ in runs if used
    }  # fmt: skip
    greedy = next(iter(runs.values())).seconds

    def met(run: Run, constraint: str) -> str:
        pairs = zip(run.texts, wanted[constraint], strict=True)
        return percent(f" {term} " in f" {text} " for text, terms in pairs for term in terms)

    cells: dict[str, Callable[[Run, str], str]] = {
        "Terms met": met,
        "BLEU": lambda run, _: f"{sacrebleu.corpus_bleu(run.texts, [references]).score:.1f}",
        "Expansions": lambda run, _: f"{run.expansions:,}",
        "Times greedy": lambda run, _: f"{run.seconds / greedy:.1f}",
    }
    tables = {}
    for caption, cell in cells.items():
        rows = [["constraint", "search", *wanted]]
        for limited, search in dict.fromkeys((bool(used), search) for used, search in runs):
            shown = [cell(runs[constraint if limited else "", search], constraint) for constraint in wanted]
            rows.append(["phrases" if limited else "none", search, *shown])
        tables[caption] = table(rows)
    return tables


def main(work: str) -> None:
    folders = {task: Path(work, task) for task in TASKS if Path(work, task).exists()}
    tasks = {task: read(folder) for task, folder in folders.items()}
    for task, runs in tasks.items():
        check_upper_bounds(runs)
        references = (folders[task] / "test.target").read_text(encoding="utf-8").splitlines()
        for constraint in dict.fromkeys(constraint for constraint, _ in runs if constraint):
            print(f"\n{task}, {constraint}: {len(references)} sentences\n\n{searches(runs, constraint, references)}")
        if task == "terms":
            for caption, made in terms(folders[task], runs, references).items():
                print(f"\n{caption}:\n\n{made}")
    print(f"\nBest outputs missed (without any output) / proven:\n\n{misses(tasks)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
