"""No imports run in a circle, except where a reason is given.

Imports inside functions and those for types alone count, too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import TypeAlias

import pytest

from tests.helpers.imports import graph

REASONS: Mapping[tuple[str, str], str] = {}
"""Imports that close a circle, and why they stay."""
Imports: TypeAlias = Mapping[str, set[str]]
"""For each module those that it imports."""


@pytest.fixture(scope="module")
def imports() -> Imports:
    return graph()


def circle(edges: Imports, without: Collection[tuple[str, str]] = ()) -> list[str] | None:
    """Modules each of which imports the next, or None; ``without`` these imports."""
    kept = {module: [home for home in homes if (module, home) not in without] for module, homes in edges.items()}
    try:
        TopologicalSorter(kept).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return None


@pytest.mark.slow
def test_no_imports_run_in_a_circle(imports: Imports) -> None:
    found = circle(imports, REASONS)
    assert found is None, " imports ".join(found)


@pytest.mark.parametrize("one", REASONS)
def test_each_exception_is_still_needed(imports: Imports, one: tuple[str, str]) -> None:
    assert circle(imports, [other for other in REASONS if other != one]) is not None


def test_imports_for_types_inside_functions_and_of_names_of_the_package_are_seen(imports: Imports) -> None:
    """One example of each in the source, so that the graph is not empty where it matters."""
    assert "torch" not in imports and "sgdec.context" in imports["sgdec.protocol"]  # for its type
    assert "sgdec.checkpoints.loading" in imports["sgdec_predictors.nmt"]  # in __init__
    assert "sgdec.search.node" in imports["sgdec_decoders.beam"]  # from sgdec import Node
    found = circle({"a": {"b"}, "b": {"c"}, "c": {"a"}})
    assert found is not None and found[0] == found[-1] and set(found) == {"a", "b", "c"}
