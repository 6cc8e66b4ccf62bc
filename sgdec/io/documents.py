"""JSON and TOML from untrusted files, within limits of size and depth; only the documented exceptions are raised."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from sgdec.io.limits import DOCUMENT, NESTING, Limit, read_all

_DOTTED = re.compile(r"""[\w.\-"' \t]+""")
"""The form of one dotted key: a list of numbers has commas."""


def read_document(path: str | Path, limit: Limit = DOCUMENT) -> bytes:
    """The content of a file. Raises OSError if it cannot be read, and `SgdecError` if it exceeds the limit."""
    with open(path, "rb") as file:
        return read_all(file, str(path), limit)


def parse_json(text: str | bytes) -> Any:
    """Parse JSON. Raises ValueError for invalid JSON, numbers of thousands of digits, and too deep nesting."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise _too_deep() from None
    _require_shallow(value)
    return value


def parse_toml(content: bytes) -> dict[str, Any]:
    """Parse TOML. Raises ValueError as `parse_json` does. The parser's memory for a dotted key is quadratic in the
    key's length, so the depth of keys is checked first."""
    import tomllib

    text = content.decode("utf-8-sig")  # some editors begin files with a byte order mark
    if any(found[0].count(".") > NESTING.value for found in _DOTTED.finditer(text)):
        raise _too_deep()
    try:
        value = tomllib.loads(text)
    except RecursionError:
        raise _too_deep() from None
    _require_shallow(value)
    return value


def _require_shallow(value: Any) -> None:
    level = [value]
    for _ in range(NESTING.value + 1):
        level = [
            inside
            for outside in level
            if isinstance(outside, (list, dict))
            for inside in (outside.values() if isinstance(outside, dict) else outside)
        ]
        if not level:
            return
    raise _too_deep()


def _too_deep() -> ValueError:
    return ValueError(f"lists and objects lie more than {NESTING.value} deep in each other; see {NESTING.variable}")
