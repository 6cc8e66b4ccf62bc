"""A comparable snapshot of a value, to test whether the value was changed."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

import numpy as np

from sgdec.testing.reading import plain


def snapshot(value: Any) -> Any:
    """A snapshot with arrays and collections by their content, at any depth, and other objects by their identity.

    An object with a method ``snapshot``, such as a stand-in for a value of another process, has what this returns.

    >>> state = [1, {"seen": {3}}]
    >>> before = snapshot(state)
    >>> state[1]["seen"].add(4)
    >>> snapshot(state) == before
    False
    """
    return _image(value, frozenset())


def _image(value: Any, inside: frozenset[int]) -> Any:
    if id(value) in inside:
        return "..."
    deeper = inside | {id(value)}
    if isinstance(value, str | bytes | int | float | complex | bool | None):
        return value if value == value else "nan"
    if isinstance(value, np.ndarray) or hasattr(value, "detach"):
        array = value if isinstance(value, np.ndarray) else plain(value)
        return array.shape, array.tobytes()
    if isinstance(value, Mapping):
        return {key: _image(item, deeper) for key, item in value.items()}
    if isinstance(value, Set):
        return type(value).__name__, frozenset(value)
    if isinstance(value, list | tuple):
        return type(value).__name__, [_image(item, deeper) for item in value]
    if isinstance(value, bytearray):
        return bytes(value)
    return value.snapshot() if hasattr(value, "snapshot") else id(value)
