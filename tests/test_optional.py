"""The promise: whoever needs a package that is missing reads in the same line how to install it, on each system."""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path

import pytest

from sgdec.io.lattice import read_lattice
from sgdec.io.openfst import LatticeError
from sgdec.optional import HOW
from sgdec.plugins.host import install_hint
from tests.helpers.lattice_files import write_automaton
from tests.helpers.optional import optional
from tests.helpers.places import ROOT

SOURCES = (ROOT / "sgdec", ROOT / "predictors", ROOT / "decoders")
OF_OTHERS = {"faiss", "grpc", "pydantic_core", "typing_extensions"}
"""Modules that come with a dependency: Ray has grpc; pydantic has the last two. `sgdec.estimation.kmeans` says that
Faiss is missing, whose distribution has another name."""
IMPORT = re.compile(r"^ *(?:import (\w+)|from (\w+)[\w.]* import)", re.MULTILINE)
SYSTEMS = ("Linux", "conda-forge pynini on macOS", "WSL on Windows")


@pytest.mark.parametrize("there", [False, True])
def test_advice_to_use_pynini_says_how_to_get_it_where_it_is_missing(
    there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sgdec.optional.find_spec", {"pynini": object() if there else None}.__getitem__)
    write_automaton(tmp_path / "1.fst", [(0, (3, 4), 0.0, 1)], {1: 0.0})
    with pytest.raises(LatticeError) as raised:
        read_lattice(tmp_path / "1.fst")
    advice = "keep one side, for example with pynini.project(fst, 'output')"
    assert str(raised.value).endswith(f"{advice}." if there else f"{advice} ({HOW['pynini']}).")
    assert raised.value.way_out in str(raised.value)


@pytest.mark.parametrize("required", [False, True])
def test_a_test_that_needs_one_is_skipped_by_name_or_fails(required: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.helpers.optional.REQUIRED", required)
    monkeypatch.setitem(sys.modules, "pywrapfst", None)
    expected = ModuleNotFoundError if required else pytest.skip.Exception
    with pytest.raises(expected, match="pywrapfst" if required else r"no module pywrapfst \(pip install .*fst"):
        optional("pywrapfst")
    assert optional("math") is math


def test_hints_name_every_system_and_what_else_is_needed() -> None:
    assert all(system in install_hint("pynini") for system in SYSTEMS)
    assert install_hint("kenlm") == ' (pip install "sgdec[kenlm]", with a C++ compiler and cmake)'
    assert install_hint("kenlm", "no-such-distribution") == ""


def imported() -> set[str]:
    """The modules outside of sgdec and the standard library that its sources import, by their first names."""
    texts = (path.read_text("utf-8") for folder in SOURCES for path in folder.rglob("*.py"))
    names = {name for text in texts for names in IMPORT.findall(text) for name in names if name}
    return {name for name in names if not name.startswith("sgdec")} - sys.stdlib_module_names


def test_each_module_that_sgdec_imports_is_declared_so_that_an_error_can_say_how_to_install_it() -> None:
    modules = imported()
    assert {"torch", "huggingface_hub"} | OF_OTHERS <= modules
    assert {module for module in modules if not install_hint(module)} == OF_OTHERS
