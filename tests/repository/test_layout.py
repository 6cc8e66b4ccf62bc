"""Tests lie as the source lies, and what they share lies apart.

``docs/explanation/architecture.md``, "Where a test goes", says where.
"""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

from tests.helpers.places import ROOT

TESTS = ROOT / "tests"
SOURCES = [ROOT / "sgdec", ROOT / "predictors" / "sgdec_predictors", ROOT / "decoders" / "sgdec_decoders"]
ROOMS = {"predictors": SOURCES[1], "decoders": SOURCES[2]}
"""Rooms that are not called as their source is."""
OF_THE_WHOLE = {"whole", "repository"}
MATERIAL = {"helpers", "data", "course_solutions", "third_party"}
"""Folders without tests."""


FILES = sorted(TESTS.rglob("test_*.py"))


@pytest.mark.parametrize("room", sorted({path.parent.relative_to(TESTS).as_posix() for path in FILES} - {"."}))
def test_a_room_of_tests_is_a_room_of_the_source(room: str) -> None:
    first, _, rest = room.partition("/")
    assert room in OF_THE_WHOLE or (ROOMS.get(first, SOURCES[0] / first) / rest).is_dir()


@pytest.mark.parametrize("path", sorted(TESTS.glob("test_*.py")), ids=lambda path: path.stem)
def test_what_lies_at_the_top_tests_a_module_at_the_top(path: Path) -> None:
    assert (SOURCES[0] / path.name.removeprefix("test_")).is_file()


def test_what_lies_at_the_top_of_predictors_is_a_predictor() -> None:
    """Its helpers lie in folders by family, each of which says what is in it."""
    entries = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["sgdec"]
    named = {module.rpartition(".")[2] for entry, module in entries.items() if entry.startswith("predictor.")}
    assert {path.stem for path in SOURCES[1].glob("*.py")} == named | {"__init__"}
    for folder in {path.parent for path in SOURCES[1].rglob("*.py")} - {SOURCES[1]}:
        assert ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8")))


def test_tests_and_what_they_share_lie_apart() -> None:
    others = [path for path in TESTS.rglob("*.py") if not path.name.startswith(("test_", "conftest."))]
    assert {path.relative_to(TESTS).parts[0] for path in others} <= MATERIAL
    assert not [path for path in FILES if path.relative_to(TESTS).parts[0] in MATERIAL]


def test_a_test_file_imports_no_other() -> None:
    other = re.compile(r"^ *from tests\.(\S+\.)?(test_\w+ import|\S+ import test_)", re.MULTILINE)
    assert not [path for path in FILES if other.search(path.read_text(encoding="utf-8"))]


def test_what_depends_on_signals_and_the_place_of_sockets_is_marked() -> None:
    """`pytest -m background` runs it in the background, with SIGINT ignored and another TMPDIR."""
    depends = re.compile(r"tests\.helpers\.(background|resumed_runs|forked_corpus)\b|\.send_signal\(")
    found = [path for path in FILES if depends.search(path.read_text(encoding="utf-8"))]
    assert len(found) > 5
    assert not [path for path in found if "pytest.mark.background" not in path.read_text(encoding="utf-8")]


def test_nothing_final_is_inherited_from() -> None:
    """A test that needs another class shows what a user cannot have."""
    sources = [path.read_text(encoding="utf-8") for source in SOURCES for path in source.rglob("*.py")]
    final = set(re.findall(r"^@final\n(?:@.*\n)*class (\w+)", "\n".join(sources), re.MULTILINE))
    assert {"BeamDecoder", "PassThrough"} <= final
    found = []
    for path in TESTS.rglob("*.py"):
        for name, bases in re.findall(r"^ *class (\w+)\(([^)]*)\):", path.read_text(encoding="utf-8"), re.MULTILINE):
            if final & set(re.findall(r"\w+", bases)):
                found.append((path.relative_to(TESTS).as_posix(), name))
    assert found == []


def test_what_not_every_machine_can_install_is_imported_by_one_helper() -> None:
    """So that tests skip by name without it, and fail under `.ci/run`."""
    direct = re.compile(r"^ *(?:import|from) (?:pynini|pywrapfst|kenlm)\b", re.MULTILINE)
    files = {path for path in TESTS.rglob("*.py") if direct.search(path.read_text("utf-8"))}
    assert files == set()
