"""The promise: every row of docs/papers.md rests on a test, a command or a docstring that exists, or gives a reason.

The reason of a departure is also given by the plugin's documentation or by the help of an option.
"""

from __future__ import annotations

import ast
import re
import shlex
from functools import cache
from importlib import import_module
from typing import NamedTuple

import pytest

from sgdec.cli.main import COMMANDS
from sgdec.cli.plugins import description
from sgdec.errors import SgdecError
from sgdec.plugins.host import KINDS, Host
from sgdec.plugins.options import describe
from tests.helpers.command_lines import complaint
from tests.helpers.places import ROOT

HEADER = "| section | component | state | where |\n|---|---|---|---|\n"
PAPERS = {
    "GNMT": r"GNMT|Wu et al",
    "Marian": r"Marian",
    "HybridNMT": r"Ono et al|HybridNMT",
    "SGNMT": r"SGNMT|Stahlberg et al",
    "Vocabulary clusters": r"Fast Vocabulary Projection",
}
"""The headings of the page, and how docstrings name the papers."""
KINDS_OF_NUMBER = {"": "section", "eq.": "equation", "Table": "Table", "Figure": "Figure", "Alg.": "Algorithm"}
TEST = re.compile(r"\[([^]]+)\]\(\.\./(tests/[^)]+)\)")
"""A link to a test: its name in words, and its file."""
NUMBER = re.compile(r"(eq\.|Table|Figure|Alg\.)? ?(\d+(?:\.\d+)*)")


def name_of_test(words: str) -> str:
    """The name of a test, of which the page has the words; the name of a class is one word."""
    return words if words.startswith("Test") else f"test_{words.replace(' ', '_')}"


class Row(NamedTuple):
    """One row of a table."""

    paper: str
    section: str
    component: str
    state: str
    where: str

    @property
    def kind(self) -> str:
        return self.state.partition(": ")[0]

    @property
    def reason(self) -> str:
        return self.state.partition(": ")[2]

    @property
    def references(self) -> list[str]:
        """Node ids of tests, then commands, scripts and docstrings."""
        tests = [f"{path}::{name_of_test(words)}" for words, path in TEST.findall(self.where)]
        return [*tests, *re.findall(r"`([^`]+)`", self.where)]


def rows(page: str) -> list[Row]:
    found = []
    for text in re.split(r"^## ", page, flags=re.MULTILINE)[1:]:
        paper, *_ = text.splitlines()
        for table in text.split(HEADER)[1:]:
            for line in table.split("\n\n")[0].splitlines():
                cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
                found.append(Row(paper, *(cells if len(cells) == 4 else [*cells, *[""] * 4][:4])))
    return found


PAGE = rows((ROOT / "docs" / "papers.md").read_text("utf-8"))


@cache
def names_in(path: str) -> set[str]:
    """The functions and classes of a file of tests, and ``Class::method``; empty if there is no file."""
    file = ROOT / path
    if not file.is_file():
        return set()
    found = set()
    for node in ast.parse(file.read_text("utf-8")).body:
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{part.name}" for part in node.body if isinstance(part, ast.FunctionDef)}
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
    return {name for name in found if name.rpartition("::")[2].startswith(("test_", "Test"))}


def docstring(name: str) -> str | None:
    """The docstring of a module, or of a class or function in it."""
    try:
        return import_module(name).__doc__
    except ModuleNotFoundError:
        module, _, attribute = name.rpartition(".")
    try:
        return getattr(import_module(module), attribute).__doc__ if module else None
    except (ModuleNotFoundError, AttributeError):
        return None


def speaks_of(text: str, row: Row) -> bool:
    """Whether a docstring names the paper and one of the row's sections, equations, tables or figures."""
    numbers = [(KINDS_OF_NUMBER[kind], number) for kind, number in NUMBER.findall(row.section)]
    listed = r"s?\W+(?:[\w.]+\W+){0,4}?"  # "sections 3.1 (model) and 3.2"
    about = any(re.search(rf"{kind}{listed}{re.escape(number)}(?![\d]|\.\d)", text) for kind, number in numbers)
    return about and re.search(PAPERS[row.paper], " ".join(text.split())) is not None


@cache
def said_by(command: str) -> str:
    """All that `sgdec plugins NAME` says, or the help of a command and of its options."""
    _, name, *words = shlex.split(command)
    if name == "plugins" and words:
        host = Host(autoload=False)
        entries = [host.find(kind, words[0]) for kind in KINDS if host.named(kind, words[0])]
        options = [each.description for e in entries for each in describe(host.load(e.kind, e.name))]
        return plain(" ".join([*(description(host, entry) for entry in entries), *options]))
    asked = import_module(f"sgdec.cli.{name.replace('-', '_')}").command
    return plain(" ".join([asked.help or "", *(getattr(each, "help", "") or "" for each in asked.params)]))


def plain(text: str) -> str:
    """Without marks of code, line breaks, and the case of letters."""
    return " ".join(text.replace("`", "").split()).lower()


def missing(span: str, row: Row) -> str | None:
    """What is wrong with one of the references of a row, or None."""
    path, is_test, name = span.partition("::")
    if is_test:
        return None if name in names_in(path) else f"no test {span}"
    first, *words = span.split()
    if first == "sgdec":
        try:
            return complaint(span)
        except (SgdecError, ValueError) as error:
            return str(error)
    if first == "python" or first.endswith(".sh"):
        path = words.pop(0) if first == "python" else first
        if not (ROOT / path).is_file():
            return f"no file {path}"
        code = (ROOT / path).read_text("utf-8")
        unknown = [word for word in words if re.fullmatch(r"(--)?[a-z][a-z-]*", word) and word not in code]
        return f"{path} knows no {unknown[0]}" if unknown else None
    text = docstring(span)
    if text is None:
        return f"no docstring {span}"
    return None if speaks_of(text, row) else f"{span} does not speak of {row.paper}, section {row.section}"


def flaws(row: Row) -> list[str]:
    """All that is wrong with a row."""
    found = [wrong for span in row.references if (wrong := missing(span, row))]
    if row.paper not in PAPERS:
        found.append(f"no paper {row.paper}")
    if not NUMBER.search(row.section):
        found.append("no section")
    if row.kind == "there":
        if row.reason or not row.references:
            found.append("no test, command or docstring")
    elif row.kind in ("departure", "not built"):
        if len(row.reason.split()) < 4:
            found.append("no reason")
    else:
        found.append(f"no state {row.state!r}")
    if row.kind == "departure" and not found:
        commands = [span for span in row.references if span.startswith("sgdec ") and span.split()[1] in COMMANDS]
        if not any(plain(row.reason).rstrip(".") in said_by(command) for command in commands):
            found.append(f"said by none of {commands}: {row.reason}")
    return found


def test_every_paper_has_its_table() -> None:
    counts = {paper: [row.paper for row in PAGE].count(paper) for paper in PAPERS}
    assert {row.paper for row in PAGE} == set(PAPERS)
    assert min(counts.values()) >= 15, counts
    assert {row.kind for row in PAGE} == {"there", "departure", "not built"}


def case(row: Row) -> str:
    return re.sub(r"\W+", "-", f"{row.paper} {row.section} {row.component}")


@pytest.mark.parametrize("row", PAGE, ids=case)
def test_a_row_rests_on_something(row: Row) -> None:
    assert flaws(row) == []


def test_no_component_has_two_rows() -> None:
    names = [(row.paper, row.section, row.component) for row in PAGE]
    assert [name for name in names if names.count(name) > 1] == []


GOOD = Row("GNMT", "3, eq. 4", "attention", "there", "[attention is equation 4](../tests/models/test_gnmt.py)")


@pytest.mark.parametrize(
    ("changed", "wrong"),
    [
        ({}, None),
        ({"where": "`sgdec.models.gnmt`"}, None),
        ({"where": "`sgdec train --gnmt.attention 8`"}, None),
        ({"where": "`python benchmarks/clusters.py shapes --threads 2`"}, None),
        ({"where": ""}, "no test, command or docstring"),
        ({"where": "the code"}, "no test, command or docstring"),
        ({"where": "[TestShapes](../tests/models/test_gnmt.py)"}, None),
        ({"where": "[attention is equation 5](../tests/models/test_gnmt.py)"}, "no test tests/models"),
        ({"where": "[attention is equation 4](../tests/models/test_gru_models.py)"}, "no test tests/models"),
        ({"where": "[TestSizes](../tests/models/test_gnmt.py)"}, "no test tests/models"),
        ({"where": "[make](../tests/models/test_gnmt.py)"}, "no test tests/models"),
        ({"where": "[a](../tests/models/test_nothing.py)"}, "no test tests/models"),
        ({"where": "[attention](results/quality.md)"}, "no test, command or docstring"),
        ({"where": "`tests/models/test_gnmt.py`"}, "no docstring tests/models/test_gnmt.py"),
        ({"where": "`sgdec teach`"}, "no command teach"),
        ({"where": "`sgdec train --gnmt.attentions 8`"}, "no option --gnmt.attentions"),
        ({"where": "`sgdec train --recipes 8`"}, "no option --recipes"),
        ({"where": "`sgdec.models.gnmd`"}, "no docstring"),
        ({"where": "`sgdec.models.gnmt.GNMD`"}, "no docstring"),
        ({"where": "`sgdec.models.transformer`"}, "sgdec.models.transformer does not speak of GNMT"),
        ({"section": "9", "where": "`sgdec.models.gnmt`"}, "sgdec.models.gnmt does not speak of GNMT"),
        ({"where": "`python benchmarks/cluster.py`"}, "no file"),
        ({"where": "`python benchmarks/clusters.py forms`"}, "benchmarks/clusters.py knows no forms"),
        ({"where": "`python benchmarks/clusters.py --thread 1`"}, None),  # a prefix, as argparse takes it
        ({"where": "`examples/marian/recipe.sh DATA WORK forth`"}, "examples/marian/recipe.sh knows no forth"),
        ({"state": "planned"}, "no state"),
        ({"state": "not built"}, "no reason"),
        ({"state": "not built: no time"}, "no reason"),
        ({"state": "not built: there is no data"}, None),
        ({"state": "departure: no idea at all", "where": "`sgdec plugins gnmt`"}, "said by none"),
        ({"state": "departure: fp32 is more exact", "where": "`sgdec plugins gnmt`"}, None),
        ({"state": "departure: fp32 is more exact", "where": "`sgdec plugins luong`"}, "said by none"),
        ({"state": "departure: fp32 is more exact"}, "said by none"),
        ({"state": "departure: tried on the CPUs of one machine", "where": "`sgdec train --parallel model`"}, None),
        ({"section": "", "where": "`sgdec plugins gnmt`"}, "no section"),
        ({"paper": "BERT"}, "no paper BERT"),
    ],
)
def test_an_invented_row_is_found(changed: dict[str, str], wrong: str | None) -> None:
    found = flaws(GOOD._replace(**changed))
    assert found == [] if wrong is None else any(each.startswith(wrong) for each in found), found


def test_rows_are_read_from_tables_of_their_heading() -> None:
    first, second = f"{HEADER}| 1 | a | there | `x` |\n| 2 | b |\n", f"{HEADER}| 3 | c | d | |\n"
    page = f"# Top\n\n## GNMT\n\nText.\n\n{first}\n### More\n\n{second}"
    assert rows(page) == [
        Row("GNMT", "1", "a", "there", "`x`"),
        Row("GNMT", "2", "b", "", ""),
        Row("GNMT", "3", "c", "d", ""),
    ]
