"""Search the test sentences of a task, with and without its constraint, and keep what each search finds.

    python search.py FOLDER --beams 1 2 5 10 --budget 5000 --rounds 3

FOLDER is that of a task, with its test sentences, its constraint, and the model in ``run/best``. Writes
``FOLDER/found.json``, which ``tables.py`` reads.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import sgdec
from sgdec.library import LoadedRun

PAY_DAY = "(19[5-9]|20[0-4])[0-9]-(0[1-9]|1[0-2])-(01|10)"


class Task(NamedTuple):
    constraints: dict[str, tuple[str, dict[str, Any]]]
    """By its name in the tables the predictor of each constraint, and its options."""
    max_length: int
    banks: bool = False
    """Whether the constraint counts how much of it is met."""


TASKS = {
    "dates": Task({"regex": ("regex", {"pattern": PAY_DAY, "cache": "none"})}, 12),
    "records": Task({"schema": ("grammar", {"path": "person.json", "whitespace": "compact"})}, 60),
    "entities": Task({"trie": ("trie", {"path": "titles.txt"})}, 20),
    "terms": Task({f"terms.{k}": ("phrases", {"path": f"terms.{k}.tsv"}) for k in (1, 2, 5, 10)}, 25, banks=True),
}


@dataclass
class Output:
    """The result of a search for one sentence."""

    text: str | None
    """None if there is no output."""
    score: float | None
    proven: bool
    expansions: int
    allowed: list[str]
    """The constraints of the task that the text satisfies."""


@dataclass
class Run:
    """One search of all sentences."""

    constraint: str
    """Empty = none."""
    search: str
    seconds: float
    """CPU time, the median of the rounds."""
    outputs: list[Output]


def searches(beams: list[int], budget: int, banks: bool) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The name of each search, its decoder, and the options of that."""
    for size in beams:
        yield f"beam {size}", "beam", {"size": size}
        if banks:
            yield f"banks {size}", "beam", {"size": size, "banks": True}
    yield "exact", "astar", {"max_expansions": budget}


def allowed(checks: dict[str, LoadedRun], sources: list[str], texts: list[str]) -> list[list[str]]:
    """For each text the constraints that do not forbid it."""
    scored = [run.score(sources, texts) for run in checks.values()]
    return [
        [name for name, each in zip(checks, found, strict=True) if each.hypotheses]
        for found in zip(*scored, strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--beams", nargs="+", type=int, required=True)
    parser.add_argument("--budget", type=int, required=True, help="expansions of an exact search, for each sentence")
    parser.add_argument("--rounds", type=int, required=True, help="of each other search, whose median time is kept")
    given = parser.parse_args()
    os.chdir(given.folder)  # paths of constraints are those in this folder
    task = TASKS[given.folder.name]
    constraints = {name: part for name, part in task.constraints.items() if Path(part[1].get("path", "")).exists()}
    sources = Path("test.source").read_text(encoding="utf-8").splitlines()
    checks = {
        name: sgdec.load(predictor, tokenizer="target.spm", **{predictor: options})
        for name, (predictor, options) in constraints.items()
    }
    runs = []
    for name in ["", *constraints]:
        predictors = dict([constraints[name]]) if name else {}
        for search, decoder, options in searches(given.beams, given.budget, task.banks and bool(name)):
            run = sgdec.load(
                ",".join(["nmt", *predictors]), decoder, max_length=task.max_length, threads=1,
                nmt={"model": "run/best"}, **predictors, **{decoder: options},
            )  # fmt: skip
            times = []
            for _ in range(1 if search == "exact" else given.rounds):
                began = time.process_time()
                found = list(run.decode(sources))
                times.append(time.process_time() - began)
            texts = [str(each.best) if each.hypotheses else None for each in found]
            satisfied = allowed(checks, sources, [text or "" for text in texts])
            outputs = [
                Output(text, each.best.score if text is not None else None, bool(each.proven), each.expansions, names)
                for text, each, names in zip(texts, found, satisfied, strict=True)
            ]
            runs.append(Run(name, search, median(times), outputs))
    Path("found.json").write_text(json.dumps([asdict(run) for run in runs]), encoding="utf-8")


if __name__ == "__main__":
    main()
