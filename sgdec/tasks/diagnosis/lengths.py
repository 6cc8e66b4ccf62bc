"""Lengths of outputs against references, overall and by length of the reference.

A bias towards short outputs grows with the length of the reference, because each further token lowers the score.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

EDGES = (1, 6, 11, 16, 21, 31, 41)
"""The first lengths of the bins."""


class LengthBin(NamedTuple):
    """The sentences whose references have ``shortest`` to ``longest`` tokens."""

    shortest: int
    longest: int | None
    """None = no limit."""
    sentences: int
    ratio: float
    """Tokens of the outputs per token of the references."""


class Lengths(NamedTuple):
    """Lengths in tokens without ``</s>``, of the sentences that have an output and a reference of at least one
    token."""

    sentences: int
    ratio: float | None
    """Tokens of the outputs per token of the references; None without sentences."""
    shorter: int
    """The number of outputs that are shorter than their references."""
    longer: int
    bins: tuple[LengthBin, ...]
    """Those that have sentences."""


def compare_lengths(pairs: Sequence[tuple[int, int]]) -> Lengths:
    """``pairs``: the length of each output, and that of its reference.

    >>> compare_lengths([(2, 4), (9, 8), (3, 8)]).bins[1]
    LengthBin(shortest=6, longest=10, sentences=2, ratio=0.75)
    """
    counted = [pair for pair in pairs if pair[1] > 0]
    bins = []
    for shortest, after in zip(EDGES, (*EDGES[1:], None), strict=True):
        inside = [pair for pair in counted if shortest <= pair[1] and (after is None or pair[1] < after)]
        if inside:
            longest = None if after is None else after - 1
            bins.append(LengthBin(shortest, longest, len(inside), _ratio(inside)))
    return Lengths(
        len(counted),
        _ratio(counted) if counted else None,
        sum(output < reference for output, reference in counted),
        sum(output > reference for output, reference in counted),
        tuple(bins),
    )


def _ratio(pairs: Sequence[tuple[int, int]]) -> float:
    outputs, references = map(sum, zip(*pairs, strict=True))
    return outputs / references
