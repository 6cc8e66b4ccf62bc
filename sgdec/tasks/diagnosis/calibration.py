"""Calibration: of the tokens that a model predicts with probability p, a share of p should be right.

Steps are sorted into bins of equal width by the probability of the best token. The expected calibration error is the
mean over all steps of the distance between share of right tokens and mean probability in the bin (Guo et al. 2017,
"On Calibration of Modern Neural Networks", equations 2 to 5; 15 bins in section 5):

    ECE = sum_b |b| / n * | acc(b) - conf(b) |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

BINS = 15


class Bin(NamedTuple):
    """The steps whose confidence is above ``low`` and at most ``low`` + 1 / bins."""

    low: float
    steps: int
    confidence: float | None
    """The mean probability of the best tokens; None for an empty bin."""
    accuracy: float | None
    """The share of best tokens that are those of the reference."""


class Reliability(NamedTuple):
    """The calibration of one distribution."""

    steps: int
    error: float | None
    """The expected calibration error, from 0 to 1; None without steps."""
    confidence: float | None
    """The mean over all steps. Above the accuracy the model is too sure."""
    accuracy: float | None
    bins: tuple[Bin, ...]


def reliability(confidences: Sequence[float], right: Sequence[bool], bins: int = BINS) -> Reliability:
    """The calibration of predictions with these probabilities, which were right or not.

    >>> reliability([0.75, 0.75], [True, False], bins=2).error
    0.25
    """
    confidence, correct = np.asarray(confidences, dtype=float), np.asarray(right, dtype=bool)
    place = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)
    counts = np.bincount(place, minlength=bins)
    sure = np.bincount(place, confidence, minlength=bins)
    hits = np.bincount(place, correct, minlength=bins)
    listed = tuple(
        Bin(b / bins, int(n), float(s / n) if n else None, float(h / n) if n else None)
        for b, (n, s, h) in enumerate(zip(counts, sure, hits, strict=True))
    )
    steps = len(confidence)
    if not steps:
        return Reliability(0, None, None, None, listed)
    error = float(np.abs(hits - sure).sum() / steps)
    return Reliability(steps, error, float(confidence.mean()), float(correct.mean()), listed)
