"""The promise of ``examples/constraints``: outputs are allowed, proofs are bounds, tables count what is found.

What is allowed is decided here without sgdec. The best title is found by scoring all titles.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from datetime import date
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import pytest

from tests.helpers.breadth import EXHAUSTIVE
from tests.helpers.places import ROOT

pytestmark = pytest.mark.slow

EXAMPLE = ROOT / "examples" / "constraints"
CITIES = "Bergen Cork Graz Lille Lyon Oslo Porto Riga Turin Vilnius"
TASKS = ("dates", "records", "entities", "terms") if EXHAUSTIVE else ("dates", "entities", "terms")
"""`make test` leaves out the one that is most like another."""
TESTS, PAIRS, WORDS = 4, 600, 3
SETTINGS = {
    "PAIRS": PAIRS, "TESTS": TESTS, "WORDS": WORDS, "UPDATES": 30, "WIDTH": 32, "BEAMS": "1 3", "ROUNDS": 1,
}  # fmt: skip
BUDGETS = {"dates records": 100, "entities terms": 400} if EXHAUSTIVE else {"dates": 100, "entities terms": 400}
"""Expansions of an exact search. Models of so few updates allow proofs under a constraint for the last two only."""
SAME = 1e-3
"""Sums of the same fp32 scores differ by less."""


class Ran(NamedTuple):
    work: Path
    printed: str
    runs: dict[str, dict[tuple[str, str], list[dict[str, Any]]]]
    """By task what is found with each constraint and search."""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, commands: dict[str, str]) -> Ran:
    """A small run of the recipe."""
    pytest.importorskip("llguidance")
    pytest.importorskip("sacrebleu")
    work = tmp_path_factory.mktemp("constraints")
    settings = {name: str(value) for name, value in SETTINGS.items()}
    command = [str(EXAMPLE / "recipe.sh"), str(work)]
    for tasks, budget in BUDGETS.items():
        given = {**commands, **settings, "TASKS": tasks, "BUDGET": str(budget)}
        done = subprocess.run([*command, "data", "train", "search"], env=given, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 0, done.stderr
    done = subprocess.run([*command, "tables"], env=commands, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return Ran(work, done.stdout, {task: read(work / task) for task in TASKS})


def read(folder: Path) -> dict[tuple[str, str], list[dict[str, Any]]]:
    runs = json.loads((folder / "found.json").read_text())
    return {(run["constraint"], run["search"]): run["outputs"] for run in runs}


def is_pay_day(text: str) -> bool:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return False
    return day.isoformat() == text and 1950 <= day.year < 2050 and day.day in (1, 10)


def is_record(text: str) -> bool:
    try:
        record = json.loads(text)
    except ValueError:
        return False
    return (
        isinstance(record, dict)
        and list(record) == ["name", "age", "city", "languages"]
        and isinstance(record["name"], str)
        and re.fullmatch("[A-Z][a-z]{1,8}", record["name"]) is not None
        and type(record["age"]) is int
        and 18 <= record["age"] < 80
        and record["city"] in CITIES.split()
        and isinstance(record["languages"], list)
        and len(record["languages"]) <= 2
        and set(record["languages"]) <= {"da", "fr", "de", "ga", "pl", "cy"}
        and json.dumps(record, separators=(",", ":")) == text
    )


def terms(work: Path, constraint: str) -> list[list[str]]:
    return [line.split("\t") for line in (work / "terms" / f"{constraint}.tsv").read_text().splitlines()]


def oracle(work: Path, task: str, constraint: str) -> Callable[[int, str], bool]:
    """Whether an output is allowed; the number is that of its sentence, from 0."""
    if task == "dates":
        return lambda _, text: is_pay_day(text)
    if task == "records":
        return lambda _, text: is_record(text)
    if task == "entities":
        titles = (work / task / "titles.txt").read_text().splitlines()
        return lambda _, text: text in titles
    wanted = terms(work, constraint)
    return lambda number, text: all(re.search(rf"\b{term}\b", text) for term in wanted[number])


@pytest.mark.parametrize("task", TASKS)
def test_outputs_of_a_constraint_are_allowed_and_the_tables_know_which_others_are(ran: Ran, task: str) -> None:
    runs = ran.runs[task]
    constraints = {constraint for constraint, _ in runs} - {""}
    counts = dict.fromkeys([True, False], 0)
    for name in constraints:
        allowed = oracle(ran.work, task, name)
        for (constraint, search), outputs in runs.items():
            for number, output in enumerate(outputs):
                if output["text"] is not None:
                    expected = allowed(number, output["text"])
                    assert (name in output["allowed"]) == expected, (search, output)
                    assert expected or constraint != name
                    counts[expected] += 1
    assert counts[True], "no output is allowed: the run shows nothing"


@pytest.mark.parametrize("task", TASKS)
def test_what_is_proven_bounds_what_other_searches_find(ran: Ran, task: str) -> None:
    runs = ran.runs[task]
    proofs: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    for (constraint, search), outputs in runs.items():
        exact, free = runs[constraint, "exact"], runs["", "exact"]
        for output, best, bound in zip(outputs, exact, free, strict=True):
            score = -math.inf if output["score"] is None else output["score"]
            if best["proven"]:
                assert score < best["score"] + SAME, search
                proofs[constraint] += 1
                missed[constraint] += score < best["score"] - SAME
            assert not bound["proven"] or score < bound["score"] + SAME
    assert proofs[""], "nothing is proven: the run shows nothing"
    for constraint in {"entities": ["trie"], "terms": ["terms.1", "terms.2"]}.get(task, []):
        assert proofs[constraint] and missed[constraint], "no search misses a proven output: the run shows nothing"


def test_the_proven_title_is_the_best_of_all(ran: Ran, tmp_path: Path, commands: dict[str, str]) -> None:
    folder = ran.work / "entities"
    titles = (folder / "titles.txt").read_text().splitlines()
    sources = (folder / "test.source").read_text().splitlines()
    number = next(n for n, output in enumerate(ran.runs["entities"]["trie", "exact"]) if output["proven"])
    (tmp_path / "sources").write_text(f"{sources[number]}\n" * len(titles))
    command = ["sgdec", "score", "--predictors", "nmt", "--nmt.model", str(folder / "run" / "best")]
    files = [str(tmp_path / "sources"), str(folder / "titles.txt")]
    done = subprocess.run([*command, *files], env=commands, stdout=subprocess.PIPE, text=True, check=True)
    scores = [float(line) for line in done.stdout.split()]
    output = ran.runs["entities"]["trie", "exact"][number]
    assert output["score"] == pytest.approx(max(scores), abs=SAME)
    assert scores[titles.index(output["text"])] == pytest.approx(max(scores), abs=SAME)


@pytest.mark.parametrize("task", TASKS)
def test_the_rows_of_the_tables_count_the_outputs(ran: Ran, task: str) -> None:
    references = (ran.work / task / "test.target").read_text().splitlines()
    for constraint in {constraint for constraint, _ in ran.runs[task]} - {""}:
        table = ran.printed.split(f"\n{task}, {constraint}: {len(references)} sentences\n\n")[1].split("\n\n")[0]
        rows = {tuple(cells[:2]): cells[2:] for cells in map(split, table.splitlines()[2:])}
        assert len(rows) == len(table.splitlines()) - 2 >= 6
        for (used, search), row in rows.items():
            used = used.replace("none", "")
            outputs, exact = ran.runs[task][used, search], ran.runs[task][used, "exact"]
            both = zip(outputs, exact, strict=True)
            pairs = [(found["score"], best["score"]) for found, best in both if best["proven"]]
            none = sum(score is None for score, _ in pairs)
            lost = [best - score for score, best in pairs if score is not None and best - score > SAME]
            proven, best, *others = map(int, row[:4])
            assert proven == len(pairs) == best + sum(others) and others == [len(lost), none]
            assert row[4] == (f"{fmean(lost):.2f}" if lost else "")
            right = fmean(each["text"] == wanted for each, wanted in zip(outputs, references, strict=True))
            assert row[6:8] == [f"{100 * right:.0f} %", f"{sum(each['expansions'] for each in outputs):,}"]
            if search != "exact":
                assert f" {len(lost) + none} ({none}) / {proven} " in ran.printed.split("/ proven:\n")[1]


def test_the_tables_of_terms_count_words_matches_and_expansions(ran: Ran) -> None:
    sacrebleu = pytest.importorskip("sacrebleu")
    references = (ran.work / "terms" / "test.target").read_text().splitlines()
    for caption in ("Terms met", "BLEU", "Expansions"):
        head, _, *rows = map(split, ran.printed.split(f"\n{caption}:\n\n")[1].split("\n\n")[0].splitlines())
        constraints = head[2:]
        assert constraints == ["terms.1", "terms.2"] and len(rows) == 8
        for used, search, *cells in rows:
            for constraint, shown in zip(constraints, cells, strict=True):
                outputs = ran.runs["terms"][constraint if used == "phrases" else "", search]
                texts = [output["text"] or "" for output in outputs]
                pairs = zip(texts, terms(ran.work, constraint), strict=True)
                found = [re.search(rf"\b{term}\b", text) for text, wanted in pairs for term in wanted]
                expected = {
                    "Terms met": f"{100 * fmean(map(bool, found)):.0f} %",
                    "BLEU": f"{sacrebleu.corpus_bleu(texts, [references]).score:.1f}",
                    "Expansions": f"{sum(output['expansions'] for output in outputs):,}",
                }
                assert shown == expected[caption]


def split(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip("|").split("|")]


@pytest.mark.parametrize(("score", "message"), [(-99.0, "than the proven best"), (0.5, "that of the model alone")])
def test_results_that_contradict_each_other_are_refused(
    ran: Ran, tmp_path: Path, score: float, message: str
) -> None:
    shutil.copytree(ran.work / "entities", tmp_path / "entities", ignore=shutil.ignore_patterns("run"))
    path = tmp_path / "entities" / "found.json"
    runs = json.loads(path.read_text())
    (changed,) = (run for run in runs if run["constraint"] and run["search"] == "exact")
    for output in changed["outputs"]:
        output["score"] = score
    path.write_text(json.dumps(runs))
    command = [sys.executable, str(EXAMPLE / "tables.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and message in done.stderr


@pytest.mark.parametrize("task", TASKS)
def test_the_data_are_the_same_each_time(ran: Ran, tmp_path: Path, task: str) -> None:
    command = [sys.executable, str(EXAMPLE / f"{task}.py"), str(tmp_path), str(PAIRS), str(TESTS)]
    if task == "terms":
        command.append(str(WORDS))
    subprocess.run(command, check=True)
    made = list(tmp_path.iterdir())
    assert len(made) >= 6
    for path in made:
        assert path.read_bytes() == (ran.work / task / path.name).read_bytes()
