"""The scores of what a transducer may write next: the terms of a lookahead, and of a bound on sums."""

from __future__ import annotations

import numpy as np

from sgdec.arrays import Floats, Ints
from sgdec_predictors.wrapping.inner_tokens import InnerPrefix
from sgdec_predictors.wrapping.transducer import NextOutputs

WHOLE = np.zeros(1, np.int64)
"""All outputs are one segment."""
TINY = 1e-250
"""Sums of exponentials below this may have lost digits."""


def log_sums(outputs: NextOutputs, inner: InnerPrefix, starts: Ints = WHOLE) -> Floats:
    """``[starts]``: for each segment of outputs the log of the sum of P_inner(output) x exp(score of the path to it).

    ``starts``: the index at which each segment begins; none is empty.
    """
    known = inner.exponentials()
    if known is not None:
        highest, exponentials = known
        sums = np.add.reduceat(exponentials[outputs.tokens] * outputs.shares, starts)
        if (sums > TINY).all():
            return highest + np.log(sums)
    return np.asarray(np.logaddexp.reduceat(inner.scores(outputs.tokens) + outputs.scores, starts))


def maxima(outputs: NextOutputs, inner: InnerPrefix, starts: Ints = WHOLE) -> Floats:
    """``[starts]``: the same with the best term in place of the sum."""
    return np.asarray(np.maximum.reduceat(inner.scores(outputs.tokens) + outputs.scores, starts))
