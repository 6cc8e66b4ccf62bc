"""The tables of predictors and decoders in the README, whose column of options is written from the registry.

After a change of an option: ``python -m tests.helpers.readme_tables`` writes the column anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from sgdec.plugins.host import Host
from sgdec.plugins.options import describe
from tests.helpers.places import ROOT

README = ROOT / "README.md"
HOST = Host(autoload=False)
OPTIONS = 2
"""The place of the column."""
COLUMNS = 5


class Row(NamedTuple):
    """One line of a table."""

    names: list[str]
    cells: list[str]


def section(readme: str, kind: str) -> str:
    """What the README says under the heading of a kind of plugins."""
    return readme.split(f"\n## {kind.capitalize()}s\n")[1].split("\n## ")[0]


def rows(readme: str, kind: str) -> Iterator[Row]:
    """The rows of a kind's table."""
    for line in section(readme, kind).splitlines():
        if line.startswith("| `"):
            yield _row(line)


def classes(kind: str, row: Row) -> list[type[Any]]:
    """The classes behind the names of a row."""
    return [HOST.load(kind, name) for name in row.names]


def options(kind: str, row: Row) -> str:
    """The options of a row's plugins, as its cell says them."""
    (found,) = {" ".join(f"`{option.name}`" for option in describe(cls)) for cls in classes(kind, row)}
    return found


def written(readme: str) -> str:
    """The README with the options as they are; a row without that column gets it."""
    for kind in ("predictor", "decoder"):
        before = section(readme, kind)
        readme = readme.replace(before, "\n".join(_written(kind, line) for line in before.split("\n")))
    return readme


def _written(kind: str, line: str) -> str:
    if not line.startswith("| `"):
        return line
    row = _row(line)
    rest = row.cells[OPTIONS + (len(row.cells) == COLUMNS) :]
    return f"| {' | '.join([*row.cells[:OPTIONS], options(kind, row), *rest])} |".replace("|  |", "| |")


def _row(line: str) -> Row:
    cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
    return Row(re.findall(r"`([\w-]+)`", cells[0]), cells)


if __name__ == "__main__":
    README.write_text(written(README.read_text()))
