"""Old names of the public API: each works for one more version, with a warning that gives the new name."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def former_names(module: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """A ``__getattr__`` for a module whose ``names`` have moved to ``MODULE`` or ``MODULE:NAME``."""

    def find(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home, _, new = names[name].rpartition(":")
        home, new = (home, new) if home else (new, name)
        warnings.warn(
            f"{module}.{name} is called {home}.{new} now; the next version of sgdec removes the old name.",
            DeprecationWarning,
            stacklevel=2,
        )
        return getattr(import_module(home), new)

    return find
