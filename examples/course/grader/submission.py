"""Load the class that is tested from a student's file."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from grader.assignment import Assignment, Make
from sgdec.errors import SgdecError
from sgdec.plugins.host import Host

CLOSED = ("sgdec_decoders", "sgdec_predictors", "sgdec.testing")
"""Closed modules, because they may contain solutions."""


def load_submission(path: Path, assignment: Assignment) -> Make:
    """The class that a file offers, as ``sgdec decode --plugin-file`` finds it.

    Raises SgdecError if the file does not exist, cannot be imported, defines something else, or imports a closed
    module.
    """
    for module, line in _imports(path):
        if any(f"{module}.".startswith(f"{closed}.") for closed in CLOSED):
            raise SgdecError(f"{path.name} imports {module} (line {line}): the assignment is to write it yourself.")
    make: Make = Host([path], autoload=False).load(assignment.kind, assignment.plugin)
    return make


def _imports(path: Path) -> Iterator[tuple[str, int]]:
    """Every module that a file names in an import, with the line."""
    try:
        tree = ast.parse(path.read_bytes(), filename=path.name)
    except SyntaxError as error:
        raise SgdecError(f"{path.name}, line {error.lineno}: {error.msg}.") from None
    except (OSError, ValueError) as error:
        raise SgdecError(f"{path} cannot be read: {error}.") from None
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or "", node.lineno
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)
