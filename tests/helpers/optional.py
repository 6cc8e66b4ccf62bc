"""Modules that not every machine can install: tests that need one are skipped without it.

With ``SGDEC_NEED_MODULES=1`` they fail instead, so that nobody takes a run without the oracles for a whole one.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

import pytest

from sgdec.plugins.host import install_hint

PACKAGES = {"pynini": "pynini", "pywrapfst": "pynini", "kenlm": "kenlm"}
"""For each module the package that has it."""
REQUIRED = bool(os.environ.get("SGDEC_NEED_MODULES"))


def optional(module: str) -> Any:
    """The module. Without it the test is skipped or, if this is called while its file is imported, the file."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if REQUIRED or error.name != module:
            raise
        hint = install_hint(PACKAGES[module])
        raise pytest.skip.Exception(f"no module {module}{hint}", allow_module_level=True) from None
