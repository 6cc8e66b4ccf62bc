"""The promise of the page on architecture: it is short, its drawing is that of the sources, and its files exist."""

from __future__ import annotations

import importlib.util
import re
from collections import Counter
from types import ModuleType

import pytest

from tests.helpers.places import ROOT

PAGE = ROOT / "docs" / "explanation" / "architecture.md"
TEXT = PAGE.read_text(encoding="utf-8")
WORDS = 2500


@pytest.fixture(scope="module")
def rooms() -> ModuleType:
    spec = importlib.util.spec_from_file_location("rooms", ROOT / "docs" / "_ext" / "rooms.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_drawing_is_that_of_the_sources(rooms: ModuleType) -> None:
    assert rooms.redraw(TEXT) == TEXT, "the imports between packages have changed: run python docs/_ext/rooms.py"


def test_the_page_is_short_and_has_headings() -> None:
    assert len(TEXT.split()) <= WORDS
    sections = re.split(r"^## ", TEXT, flags=re.MULTILINE)
    assert max(len(section.split()) for section in sections) <= WORDS / 6


def test_every_file_that_the_page_names_exists() -> None:
    named = {name for name in re.findall(r"`([\w./*-]+)`", TEXT) if "/" in name or name.endswith(".py")}
    assert len(named) > 20
    assert [name for name in sorted(named) if not any(ROOT.glob(name.rstrip("/")))] == []


def test_columns_are_below_names_and_mark_imports(rooms: ModuleType) -> None:
    edges = Counter({("cli", "library"): 3, ("library", "core"): 2, ("cli", "core"): 1, ("core", "library"): 1})
    assert rooms.triangle(edges) == "cli\nx library\nx.x core  (imports library)\n"


@pytest.mark.slow
def test_imports_count_wherever_they_are_in_a_file(rooms: ModuleType) -> None:
    found = rooms.imports()
    assert "sgdec.context" in found["sgdec.protocol"]  # for its type
    assert "sgdec.checkpoints.loading" in found["sgdec_predictors.nmt"]  # inside a function
    assert "sgdec.search.node" in found["sgdec_decoders.beam"]  # from sgdec import Node
    assert rooms.between_rooms(found)["sgdec_predictors", "sgdec.checkpoints"]
