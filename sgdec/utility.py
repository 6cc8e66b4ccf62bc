"""The protocol of utilities: how good a hypothesis is if a reference is right.

A decoder for minimum Bayes risk returns the hypothesis whose expected utility is highest (Eikema and Aziz 2020, "Is
MAP Decoding All You Need?", section 6). A utility sees texts; it knows no predictor and no search. Higher is better,
and each utility says its scale.

`Utility` has one method. `Aggregates` is an ability. A class is checked against this page when it is loaded. Decoders
call `pairwise` and `aggregated` of this module, which check what a utility answers:

>>> from sgdec.utilities.chrf import Chrf
>>> pairwise(Chrf(), ["the cat", "a dog"], ["the cat", "the hat"]).round(1).tolist()
[[100.0, 28.1], [4.5, 4.5]]
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from sgdec.arrays import Floats
from sgdec.errors import SgdecError, UsageError, described

__all__ = ["Aggregates", "Utility", "aggregated", "pairwise"]

SMALLEST = 32
"""Squares with this many texts or fewer are computed whole, though the utility is symmetric."""
SHOWN = 40
"""The most characters of a text in a message."""


class Utility(ABC):
    """Compares the hypotheses of one sentence with references, all pairs in one call.

    The utility of a pair must not depend on the other texts of the call: decoders ask for parts of a matrix.
    """

    symmetric: bool = False
    """Whether the utility of a for b is that of b for a. `pairwise` then computes half of a square in several calls,
    which pays if single pairs are expensive; a cheap utility need not declare it."""
    needs_references: bool = True
    """Whether it needs references. One that judges a hypothesis by its source (quality estimation) sets False;
    decoders then give no references and take its answer for the expected utility."""

    @abstractmethod
    def pairwise(self, hypotheses: Sequence[str], references: Sequence[str], source: str | None) -> Floats:
        """The utility of each hypothesis for each reference. ``[H, R]``; ``[H, 1]`` without references.

        There is at least one hypothesis, and at least one reference unless `needs_references` is False.
        ``source``: the text of the source sentence, if it is known. Raises SgdecError if this sentence cannot be
        judged, UsageError if no other can be either.
        """


@runtime_checkable
class Aggregates(Protocol):
    """The ability of a utility that compares statistics of texts, such as counts of n-grams.

    The mean of the statistics of many references stands for one reference, so the time is linear in the number of
    references (Vamvas and Sennrich 2024, "Linear-time Minimum Bayes Risk Decoding with Reference Aggregation").
    """

    @abstractmethod
    def aggregated(
        self, hypotheses: Sequence[str], references: Sequence[str], weights: Floats, source: str | None
    ) -> Floats:
        """The utility of each hypothesis for each of M means of the references' statistics. ``[H, M]``

        ``weights``: the weights of the references in each mean; rows sum to 1. ``[M, R]`` A row with a single 1 is
        that reference itself.
        """


def pairwise(
    utility: Utility, hypotheses: Sequence[str], references: Sequence[str] = (), source: str | None = None
) -> Floats:
    """`Utility.pairwise`, checked: float64 ``[H, R]``, or ``[H, 1]`` without references; all numbers are finite.

    Half the work if the utility is symmetric and the references are the hypotheses. Raises UsageError if a utility
    needs references and gets none, SgdecError for an answer of another shape or with NaN or infinity.
    """
    if not references and utility.needs_references:
        raise UsageError(f"utility {_name(utility)} needs references, and there are none.")
    if not hypotheses:
        return np.zeros((0, len(references) or 1))
    if utility.symmetric and len(hypotheses) > SMALLEST and list(hypotheses) == list(references):
        half = len(hypotheses) // 2
        first, second = hypotheses[:half], hypotheses[half:]
        across = pairwise(utility, first, second, source)
        upper, lower = pairwise(utility, first, first, source), pairwise(utility, second, second, source)
        return np.block([[upper, across], [across.T, lower]])
    answer = utility.pairwise(hypotheses, references, source)
    return _checked(utility, answer, hypotheses, len(references) or 1, "reference" if references else "source")


def aggregated(
    utility: Utility,
    hypotheses: Sequence[str],
    references: Sequence[str],
    weights: Floats | None = None,
    source: str | None = None,
) -> Floats:
    """`Aggregates.aggregated`, checked: float64 ``[H, M]``.

    ``weights``: non-negative, one mean per row; they are divided by their sums. ``[M, R]`` None = one uniform mean.
    Raises UsageError if the utility lacks the ability or there are no references, SgdecError as `pairwise` does.
    """
    if not isinstance(utility, Aggregates):
        raise UsageError(
            f"utility {_name(utility)} has no statistics whose mean could be a reference (aggregated); "
            "compare all pairs, or choose one that has, such as chrf."
        )
    if not references:
        raise UsageError(f"utility {_name(utility)} needs references, and there are none.")
    rows = np.ones((1, len(references))) if weights is None else np.asarray(weights, np.float64)
    sums = rows.sum(1, keepdims=True) if rows.ndim == 2 else np.zeros(1)
    fit = rows.shape[1:] == (len(references),) and np.isfinite(rows).all() and (rows >= 0).all() and (sums > 0).all()
    if not fit:
        raise SgdecError(
            f"weights of means of references are {described(weights)}; expected finite numbers from 0 [M, "
            f"{len(references)}], and a sum above 0 in each row."
        )
    if not hypotheses:
        return np.zeros((0, len(rows)))
    answer = utility.aggregated(hypotheses, references, rows / sums, source)
    return _checked(utility, answer, hypotheses, len(rows), "mean")


def _checked(utility: Utility, answer: Any, hypotheses: Sequence[str], columns: int, column: str) -> Floats:
    try:
        found = np.asarray(answer)
    except (ValueError, TypeError, RuntimeError):  # rows of several lengths; tensors on another device
        found = np.array(None)
    numbers = found.dtype.kind in "fiub"
    if found.shape != (len(hypotheses), columns) or not numbers:
        what = f"numbers of shape {list(found.shape)}"
        if not numbers:
            what = f"{described(answer)}, which is not an array of numbers"
        raise SgdecError(
            f"utility {_name(utility)} answered {what}; expected shape [{len(hypotheses)}, {columns}] (hypotheses, "
            f"{column}s)."
        )
    found = found.astype(np.float64, copy=False)
    wrong = np.argwhere(~np.isfinite(found))
    if len(wrong):
        row, place = wrong[0].tolist()
        text = hypotheses[row] if len(hypotheses[row]) <= SHOWN else hypotheses[row][: SHOWN - 3] + "..."
        raise SgdecError(
            f"utility {_name(utility)} answered {found[row, place]} for hypothesis {row + 1} ({text!r}) and "
            f"{column} {place + 1}; expected a finite number."
        )
    return found


def _name(utility: Utility) -> str:
    """The name for messages: its attribute ``name``, if it has one, or that of its class."""
    return str(getattr(utility, "name", None) or type(utility).__name__)
