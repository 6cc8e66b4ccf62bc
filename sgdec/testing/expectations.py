"""Comparison of a search's result with the enumeration of its space."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from sgdec.decoder import Decoder
from sgdec.errors import SgdecError
from sgdec.plugins.surface import require_sound
from sgdec.protocol import BatchPredictor, Predictor, Result
from sgdec.ranking import Ranking
from sgdec.testing.enumeration import Path
from sgdec.utility import Utility


def keeps_to_the_protocol(plugin: Predictor | BatchPredictor | Decoder | Utility) -> None:
    """Raise AssertionError if the class of a plugin would be refused when it is loaded."""
    try:
        require_sound(type(plugin))
    except SgdecError as error:
        raise AssertionError(f"a plugin must keep to the protocol: {error}") from None


def require_the_best(result: Result, best: Sequence[Path], ranking: Ranking, tolerance: float, at: str) -> None:
    """Check that the result has the rank scores of ``best``, the expected list. Tokens may differ if scores tie."""
    expected = [path.rank_score(ranking) for path in best]
    found = [hypothesis.rank_score for hypothesis in result.hypotheses]
    assert len(found) == len(expected) and np.allclose(found, expected, atol=tolerance), (
        f"an exact search must find the best of the space: {[path.tokens for path in best]} with {expected}, "
        f"not {[hypothesis.tokens for hypothesis in result.hypotheses]} with {found} {at}"
    )


def require_these(result: Result, paths: Sequence[Path], tolerance: float, at: str) -> None:
    """Check that each hypothesis is one of ``paths``, has its total, and is listed once."""
    totals = {path.tokens: path.total for path in paths}
    for hypothesis in result.hypotheses:
        total = totals.pop(hypothesis.tokens, math.nan)
        assert math.isclose(total, hypothesis.score, rel_tol=tolerance, abs_tol=tolerance), (
            f"a hypothesis must be in the space, have its total there, and be listed once: {hypothesis.tokens} with "
            f"{hypothesis.score:g} {at}"
        )
