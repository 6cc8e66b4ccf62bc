"""Hypotheses of a submission, compared with the predictors: it could claim any score."""

from __future__ import annotations

import math

from sgdec import EOS, Hypothesis
from sgdec.testing import TinySpace, score_path


def true_total(tiny: TinySpace, hypothesis: Hypothesis) -> float:
    """The total of its tokens. Raises AssertionError if it claims another one, or if the space lacks it."""
    tokens, limit = hypothesis.tokens, tiny.source.max_length
    if EOS in tokens or min(tokens, default=0) < 0 or (limit is not None and len(tokens) > limit):
        total = -math.inf
    else:
        total, _ = score_path(tiny.constellation(), tiny.source, tokens)
    assert math.isclose(total, hypothesis.score, abs_tol=1e-6), (
        f"the total of {tokens} is {total:.4f}, not {hypothesis.score:.4f} ({tiny.name})"
    )
    return total
