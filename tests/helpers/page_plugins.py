"""The plugins that docs/howto/from-sgnmt-plugins.md shows as complete files."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from tests.helpers.places import ROOT

PAGE = (ROOT / "docs" / "howto" / "from-sgnmt-plugins.md").read_text("utf-8")
FILE = re.compile(r'^```python\n("""([\w-]+): .*?)^# -{60,}$', re.MULTILINE | re.DOTALL)
"""A block, down to the tests of the plugin, and the plugin's name."""
NAMES = [name for _, name in FILE.findall(PAGE)]


@cache
def plugin(name: str) -> dict[str, Any]:
    """The names that a file of the page defines, without its tests."""
    (code,) = (code for code, found in FILE.findall(PAGE) if found == name)
    names: dict[str, Any] = {"__name__": name}
    exec(code, names)
    return names


def registered(name: str) -> type[Any]:
    """The class that a file registers under its name."""
    (hook,) = (each for key, each in plugin(name).items() if key in ("sgdec_decoders", "sgdec_predictors"))
    found: type[Any] = hook()[name]
    return found
