"""Whatever is said to people is logged, and shown in one place: no module writes to standard error by itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.helpers.places import ROOT

MAY = {
    "sgdec/cli/main.py",  # the one line of an error
    "sgdec/cli/console.py",
    "sgdec/cli/streams.py",  # which drops messages to a closed stream
    "sgdec/terminal.py",
    "sgdec/training/parallel/farewell.py",  # a process that dies says so itself
}


def writes_to_standard_error(code: str) -> Iterator[int]:
    """Lines with ``sys.stderr``, ``echo(..., err=True)`` or a bare ``print``."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.stderr":
            yield node.lineno
        if isinstance(node, ast.Call):
            if any(keyword.arg == "err" for keyword in node.keywords):
                yield node.lineno
            if isinstance(node.func, ast.Name) and node.func.id == "print":
                yield node.lineno


@pytest.mark.slow
def test_no_module_writes_to_standard_error_but_those_that_show_messages() -> None:
    found = []
    for root in ("sgdec", "predictors", "decoders"):
        for path in sorted((ROOT / root).rglob("*.py")):
            name = str(path.relative_to(ROOT))
            if name not in MAY:
                found += [f"{name}:{line}" for line in writes_to_standard_error(path.read_text("utf-8"))]
    assert not found


def test_what_is_looked_for_is_found() -> None:
    code = "import sys\nsys.stderr.write('')\necho('', err=True)\nprint(1)"
    assert sorted(writes_to_standard_error(code)) == [2, 3, 4]
