"""Pearson's chi-squared test: when counts do not come from a distribution."""

from __future__ import annotations

import math

CERTAIN = 3.719
"""The normal quantile at 1 - 1e-4: how sure the test is. Seeds are fixed, so it fails always or never."""


def critical(freedom: int) -> float:
    """The chi-squared quantile at 1 - 1e-4, by the approximation of Wilson and Hilferty 1931."""
    if freedom == 0:
        return 1e-9
    return float(freedom * (1 - 2 / (9 * freedom) + CERTAIN * math.sqrt(2 / (9 * freedom))) ** 3)
