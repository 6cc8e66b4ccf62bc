"""Invalid scores and overflowing sums: finds them, and the predictor that caused them.

-inf is a valid score: it forbids a token, whatever the weight. NaN and +inf are invalid. A sum of finite scores can
still overflow. This is an error as well, because hypotheses could no longer be compared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from sgdec.arrays import FORBIDDEN, Floats
from sgdec.errors import SgdecError


def fault(token: int, names: Sequence[str], weights: Sequence[float | None], scores: Sequence[float]) -> SgdecError:
    """The error for a sum at ``token`` that is NaN, +inf or overflows, given its K scores.

    >>> print(fault(7, ["a", "b"], [1.0, 2.0], [-3.0, math.nan]))
    predictor 'b' gave NaN as the score of token 7; its model is broken (NaN weights?).
    >>> print(fault(7, ["a", "b"], [1.0, 1e308], [-3.0, -40.0]))
    the total overflows at token 7: predictor 'b' scores -40 with weight 1e+308; lower the weight, or fix its model.
    """
    consulted = [each for each in zip(names, weights, scores, strict=True) if each[1] is not None]
    for name, _, score in consulted:
        if math.isnan(score):
            return SgdecError(
                f"predictor {name!r} gave NaN as the score of token {token}; its model is broken (NaN weights?)."
            )
        if score == math.inf:
            return SgdecError(
                f"predictor {name!r} gave inf as the score of token {token}; expected a number, or -inf for a token "
                "that cannot follow."
            )
    name, weight, score = max(consulted, key=lambda each: abs((each[1] or 0.0) * each[2]))
    return SgdecError(
        f"the total overflows at token {token}: predictor {name!r} scores {score:g} with weight {weight:g}; lower "
        "the weight, or fix its model."
    )


def forbids(scores: Sequence[float]) -> bool:
    """Whether one of these K scores of a token is -inf, and none is NaN or +inf."""
    return FORBIDDEN in scores and (sum(scores) == FORBIDDEN or all(score < math.inf for score in scores))


def first_fault(totals: Floats, scores: Sequence[Floats]) -> int | None:
    """The position of the first total that is NaN or infinite but forbidden by no predictor; None if all are valid.

    ``totals``: ``[n]``; ``scores``: for each predictor its scores ``[n]``, 0 for nodes that do not consult it.
    """
    suspicious = np.flatnonzero(~np.isfinite(totals))
    if not len(suspicious):
        return None
    parts = np.stack([column[suspicious] for column in scores])  # [K, suspicious]
    right = (parts == FORBIDDEN).any(axis=0) & (parts < math.inf).all(axis=0)
    return None if right.all() else int(suspicious[right.argmin()])
