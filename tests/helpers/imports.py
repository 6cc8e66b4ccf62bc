"""What Python files import, read from their source: inside functions and for types alone, too."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import sgdec
from tests.helpers.places import ROOT

PACKAGES = {"sgdec": ROOT, "sgdec_predictors": ROOT / "predictors", "sgdec_decoders": ROOT / "decoders"}
"""Each package, and the source root that it lies in."""


@cache
def modules() -> dict[str, Path]:
    """Every module of the three packages by name."""
    found = {}
    for package, root in PACKAGES.items():
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(source: str, known: frozenset[str]) -> Iterator[tuple[str, str | None]]:
    """Pairs of module and name, None for a whole module; ``known``: names that are modules, whatever imports them."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None and not node.level, "imports are absolute"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield (whole, None) if whole in known else (node.module, alias.name)


def graph() -> dict[str, set[str]]:
    """For each module those that it imports; a name of ``sgdec`` itself counts for the module that it lies in."""
    paths = modules()
    known = frozenset(paths)
    edges: dict[str, set[str]] = {}
    for module, path in paths.items():
        names = imported(path.read_text(), known)
        found = {sgdec._HOME.get(name or "", home) if home == "sgdec" else home for home, name in names}
        edges[module] = {name for name in found if name in known and name != module}
    edges["sgdec"] = set()  # it imports its names when they are used
    return edges
