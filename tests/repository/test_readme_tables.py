"""The promise: the README is short and names every plugin; the tables of the reference say where each lies, and which
bounds it declares."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from inspect import getsource
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sgdec.plugins.host import HOOK_OF, Host
from sgdec.protocol import BatchPredictor, Predictor
from tests.helpers.places import ROOT

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
HOST = Host(autoload=False)
KINDS = ["predictor", "decoder", "model"]
TABLES = [*KINDS, "utility"]
SOURCES = {"sgdec_predictors": ROOT / "predictors", "sgdec_decoders": ROOT / "decoders", "sgdec": ROOT}
LINES = 150
BOUNDS = 2
"""The place of the column in the table of predictors."""


class Row(NamedTuple):
    """One line of a table."""

    names: list[str]
    link: str
    cells: list[str]


def table(kind: str) -> Path:
    """The page with the table of a kind of plugins."""
    return ROOT / "docs" / "reference" / f"{HOOK_OF[kind].removeprefix('sgdec_')}.md"


def rows(kind: str) -> Iterator[Row]:
    for line in table(kind).read_text(encoding="utf-8").splitlines():
        if line.startswith("| ["):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            (link,) = re.findall(r"\]\((.*?)\)", cells[0])
            yield Row(re.findall(r"`([\w-]+)`", cells[0]), link, cells)


def classes(kind: str, row: Row) -> list[type[Any]]:
    """The classes behind the names of a row."""
    return [HOST.load(kind, name) for name in row.names]


@pytest.mark.parametrize("kind", TABLES)
def test_a_table_names_everything_that_is_registered_and_nothing_else(kind: str) -> None:
    named = [name for row in rows(kind) for name in row.names]
    bundled = [entry.name for entry in HOST.names(kind) if entry.distribution == "sgdec"]
    assert sorted(named) == sorted(bundled)


@pytest.mark.parametrize("kind", TABLES)
def test_a_row_leads_to_the_file_of_its_class(kind: str) -> None:
    for row in rows(kind):
        for cls in classes(kind, row):
            folder = SOURCES[cls.__module__.split(".")[0]]
            file = folder / f"{cls.__module__.replace('.', '/')}.py"
            assert (table(kind).parent / row.link).resolve() == file, row.names


def test_the_readme_names_every_plugin_once_in_its_family() -> None:
    section = TEXT.split("\n## What is there\n")[1].split("\n## ")[0]
    families = [line.split("|")[2] for line in section.splitlines() if line.startswith("| ")][1:]
    named = [name for family in families for name in re.findall(r"`([\w-]+)`", family)]
    listed = [row.names[0] for kind in KINDS for row in rows(kind)]
    assert sorted(named) == sorted(listed)


@pytest.mark.parametrize("kind", TABLES)
def test_every_row_says_all_that_the_head_of_its_table_asks_for(kind: str) -> None:
    columns = {"predictor": 4, "decoder": 4, "model": 3, "utility": 4}[kind]
    for row in rows(kind):
        assert len(row.cells) == columns and all(row.cells), row.names


def test_a_bound_that_is_promised_is_declared() -> None:
    for row in rows("predictor"):
        bounds = row.cells[BOUNDS]
        for cls in classes("predictor", row):
            assert issubclass(cls, Predictor | BatchPredictor)
            if bounds.startswith(("upper", "exact")):
                known = cls.max_score < math.inf or "self.max_score = " in getsource(cls)
                assert known or hasattr(cls, "best_remaining"), row.names
            if bounds.startswith("exact"):
                assert hasattr(cls, "worst_remaining"), row.names


def test_it_is_short() -> None:
    assert TEXT.count("\n") <= LINES, "measurements belong in docs/results, recipes in docs/howto"


def test_its_links_lead_somewhere() -> None:
    links = [link.split("#")[0] for link in re.findall(r"\]\(([^)]+)\)", TEXT) if "://" not in link]
    assert len(links) > len(KINDS)
    assert [link for link in links if not Path(ROOT / link).exists()] == []


def test_each_headline_figure_is_in_the_results() -> None:
    section = TEXT.split("\n## Six figures\n")[1].split("\n## ")[0]
    figures = [line.split("|")[2] for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(figures) == 6
    results = "\n".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "results").glob("*.md"))
    for number in re.findall(r"\d+(?:\.\d+)?", " ".join(figures)):
        assert re.search(rf"(?<![\d.]){re.escape(number)}(?![\d.])", results), f"{number} is not in docs/results"


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda page: page.stem
)
def test_every_picture_says_what_it_shows(page: Path) -> None:
    assert all(len(alt) > 40 for alt in re.findall(r"!\[(.*?)\]\(", page.read_text(encoding="utf-8")))
