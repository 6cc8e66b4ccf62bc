"""Pearson's chi-squared test: when counts do not come from a distribution."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeVar

Outcome = TypeVar("Outcome")

CERTAIN = 3.719
"""The normal quantile at 1 - 1e-4: how sure the test is. Seeds are fixed, so it fails always or never."""


def critical(freedom: int) -> float:
    """The chi-squared quantile at 1 - 1e-4, by the approximation of Wilson and Hilferty 1931."""
    if freedom == 0:
        return 1e-9
    return float(freedom * (1 - 2 / (9 * freedom) + CERTAIN * math.sqrt(2 / (9 * freedom))) ** 3)


def statistic(counts: Mapping[Outcome, int], probabilities: Mapping[Outcome, float]) -> tuple[float, int]:
    """Pearson's statistic and its degrees of freedom; outcomes expected less than five times are counted together."""
    assert set(counts) <= set(probabilities)
    total = sum(counts.values())
    cells = [(counts.get(each, 0), total * p) for each, p in probabilities.items()]
    rare = [cell for cell in cells if cell[1] < 5]
    cells = [cell for cell in cells if cell[1] >= 5]
    if rare:
        cells.append((sum(count for count, _ in rare), sum(often for _, often in rare)))
    return sum((count - often) ** 2 / often for count, often in cells), len(cells) - 1
