"""A search's result held against the enumeration of its space."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from sgdec.protocol import Result
from sgdec.ranking import Ranking
from sgdec.testing.enumeration import Path


def require_the_best(result: Result, best: Sequence[Path], ranking: Ranking, tolerance: float, at: str) -> None:
    """The same rank scores; tokens may differ where these are equal. ``best``: as many as the list should have."""
    expected = [path.rank_score(ranking) for path in best]
    found = [hypothesis.rank_score for hypothesis in result.hypotheses]
    assert len(found) == len(expected) and np.allclose(found, expected, atol=tolerance), (
        f"an exact search must find the best of the space: {[path.tokens for path in best]} with {expected}, "
        f"not {[hypothesis.tokens for hypothesis in result.hypotheses]} with {found} {at}"
    )


def require_these(result: Result, paths: Sequence[Path], tolerance: float, at: str) -> None:
    """Each hypothesis is one of the space, with its total, and there once."""
    totals = {path.tokens: path.total for path in paths}
    for hypothesis in result.hypotheses:
        total = totals.pop(hypothesis.tokens, math.nan)
        assert math.isclose(total, hypothesis.score, rel_tol=tolerance, abs_tol=tolerance), (
            f"a hypothesis must be one of the space, with its total, and listed once: {hypothesis.tokens} with "
            f"{hypothesis.score:g} {at}"
        )
