"""Which modules are public, as ``setup.cfg`` says to import-linter."""

from __future__ import annotations

from configparser import ConfigParser
from fnmatch import fnmatch
from functools import cache

from tests.helpers.imports import modules
from tests.helpers.places import ROOT

CONTRACT = "Plugins import public names only"
ANYONE = "** -> "


def public() -> list[str]:
    """Names and patterns of the modules that plugins may import."""
    settings = ConfigParser(interpolation=None)
    settings.read_string((ROOT / "setup.cfg").read_text())
    (contract,) = (section for section in settings.values() if section.get("name") == CONTRACT)
    lines = contract["ignore_imports"].splitlines()
    return [line.removeprefix(ANYONE) for line in lines if line.startswith(ANYONE)]


PUBLIC = public()
KIT = ["sgdec.testing", "sgdec.testing.seq2seq_contract", "sgdec.testing.language_model_contract"]
"""For tests of plugins, and not for plugins."""


@cache
def public_modules() -> list[str]:
    """Every module that plugins or their tests may import, by name."""
    return sorted(name for name in modules() if any(fnmatch(name, pattern) for pattern in [*PUBLIC, *KIT]))
