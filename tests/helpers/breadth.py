"""The number of cases that the tests try: a third, or all with ``SGDEC_EXHAUSTIVE=1`` (`make exhaustive`).

Tests that are marked `exhaustive` run with it only.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

EXHAUSTIVE = os.environ.get("SGDEC_EXHAUSTIVE", "") not in ("", "0")

T = TypeVar("T")


def examples(number: int) -> int:
    """The number of random cases to try."""
    return number if EXHAUSTIVE else -(-number // 3)


def some(cases: Sequence[T], first: int = 0) -> list[T]:
    """Every third case, beginning with the case number ``first``."""
    return list(cases) if EXHAUSTIVE else list(cases)[first % 3 :: 3]
