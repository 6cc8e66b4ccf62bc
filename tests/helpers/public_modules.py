"""Which modules are public, as ``pyproject.toml`` says to import-linter."""

from __future__ import annotations

import tomllib
from fnmatch import fnmatch

from tests.helpers.imports import modules
from tests.helpers.places import ROOT

CONTRACT = "Plugins import public names only"
ANYONE = "** -> "


def public() -> list[str]:
    """Names and patterns of the modules that plugins may import."""
    with open(ROOT / "pyproject.toml", "rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    (contract,) = (contract for contract in contracts if contract["name"] == CONTRACT)
    return [line.removeprefix(ANYONE) for line in contract["ignore_imports"] if line.startswith(ANYONE)]


PUBLIC = public()
KIT = ["sgdec.testing", "sgdec.testing.seq2seq_contract", "sgdec.testing.language_model_contract"]
"""For tests of plugins, and not for plugins."""


def public_modules() -> list[str]:
    """Every module that plugins or their tests may import, by name."""
    return sorted(name for name in modules() if any(fnmatch(name, pattern) for pattern in [*PUBLIC, *KIT]))
