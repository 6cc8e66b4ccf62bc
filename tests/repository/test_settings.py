"""``setup.cfg`` says how sgdec is checked, ``pyproject.toml`` what it is."""

from __future__ import annotations

import tomllib
from configparser import ConfigParser

import pytest

from tests.helpers.places import ROOT

SECTIONS = {"pytest": "tool:pytest", "mypy": "mypy", "importlinter": "importlinter", "codespell": "codespell"}
"""Each tool that reads ``setup.cfg``, and its section."""


def setup() -> ConfigParser:
    settings = ConfigParser(interpolation=None)
    settings.read_string((ROOT / "setup.cfg").read_text())
    return settings


@pytest.mark.parametrize("tool", SECTIONS)
def test_a_tool_has_its_settings_in_one_place(tool: str) -> None:
    """Pytest and mypy would silently prefer a table in ``pyproject.toml``."""
    assert setup().has_section(SECTIONS[tool])
    assert tool not in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]


def test_pytest_reads_them(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.inipath == ROOT / "setup.cfg"


def test_no_value_holds_a_comment() -> None:
    values = [value for section in setup().values() for value in section.values()]
    assert len(values) > 20 and not [value for value in values if "#" in value]
