"""Exact sums of scores, which saturate where `math.fsum` raises: users choose weights and costs of any size."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence


def exact_sum(values: Iterable[float]) -> float:
    """The sum, rounded once. One that overflows becomes the largest float of its sign.

    >>> exact_sum([0.1] * 10), exact_sum([-1e308, -1e308])
    (1.0, -1.7976931348623157e+308)
    """
    listed = list(values)
    try:
        return math.fsum(listed)
    except OverflowError:  # of the sum, or of a part of it
        total = math.fsum(value / len(listed) for value in listed) * len(listed)
        return min(max(total, -sys.float_info.max), sys.float_info.max)


def mean(values: Sequence[float]) -> float:
    """The mean of at least one number.

    >>> mean([1e308, 1e308]), mean([1, 2])
    (1e+308, 1.5)
    """
    try:
        return math.fsum(values) / len(values)
    except OverflowError:
        return math.fsum(value / len(values) for value in values)
