"""The promise: whoever needs a package that is missing reads in the same line how to install it, on each system."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest

from sgdec.io.lattice import read_lattice
from sgdec.io.openfst import LatticeError
from sgdec.optional import HOW
from sgdec.plugins.host import install_hint
from tests.helpers.lattice_files import write_automaton
from tests.helpers.optional import optional

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
