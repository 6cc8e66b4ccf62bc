"""Each error of types that mypy is told to ignore has a reason: in its line, or in a comment above it."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from tests.helpers.imports import modules

IGNORED = re.compile(r"# type: ignore\[[\w, -]+\]  # \S")


def without_reason(source: str) -> list[int]:
    """The numbers of the lines that ignore an error and give no reason."""
    lines = ["", *source.splitlines()]
    return [
        number
        for number, (above, line) in enumerate(pairwise(lines), 1)
        if "type: ignore" in line and not IGNORED.search(line) and not above.lstrip().startswith("# ")
    ]


def test_each_has_a_reason() -> None:
    found = {name: lines for name, path in modules().items() if (lines := without_reason(path.read_text()))}
    assert found == {}


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("x = f()  # type: ignore[misc]\n", [1]),
        ("x = f()  # type: ignore\n", [1]),
        ("x = f()  # type: ignore  # no code\n", [1]),
        ("x = f()  # type: ignore[misc, arg-type]  # f has no types\n", []),
        ("# f has no types\nx = f()  # type: ignore[misc]\n\ny = f()  # type: ignore[misc]\n", [4]),
    ],
)
def test_one_without_a_reason_is_found(source: str, lines: list[int]) -> None:
    assert without_reason(source) == lines
