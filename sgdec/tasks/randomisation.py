"""Approximate randomisation: is the difference of two systems more than chance?

If two systems are equally good, it does not matter which of them an output is from. So in each of n trials their
outputs are exchanged, sentence by sentence, with probability 1/2, and

    p = (c + 1) / (n + 1)

where c is the number of trials whose absolute difference in score is at least the observed one (Riezler and Maxwell
2005, "On Some Pitfalls in Automatic Evaluation and Significance Testing for MT", section 4). The test is two-sided,
and holds its level for every metric and every number of sentences: the observed outputs are one more exchange, as
probable as the others, so the probability of p <= a is at most a.

sacreBLEU's own test draws the same exchanges from the same seed, but counts only trials with a larger difference. So
its p is too small for few sentences: of the 32 exchanges of 5 sentences, 2 have the observed difference in any case.

Cost: two scores of a corpus for each trial, from the sums of sufficient statistics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np

from sgdec.arrays import Flags, Floats

Statistics: TypeAlias = Floats
"""``[sentences, K]``: numbers whose sums over the sentences decide the score of a corpus."""
ScoreOf: TypeAlias = Callable[[list[float]], float]
"""The score of these sums ``[K]``."""

AT_ONCE = 2**22
"""The most sentences, over all trials, that are drawn at once."""
WORD = 32
"""NumPy draws booleans from words of this many bits. Draws of whole words are those of one large draw."""
ROUNDING = 1e-9
"""Differences in score that differ by less are equal. Statistics with fractions are rounded as they are added."""


def p_value(first: Statistics, second: Statistics, score_of: ScoreOf, trials: int, seed: int) -> float:
    """The p-value of the difference between two systems, given the statistics of their outputs.

    >>> edits = np.array([[1.0], [0.0], [2.0], [1.0]])
    >>> p_value(edits, edits + 1, lambda sums: sums[0], 999, 1)  # of 16 exchanges, 2 have such a difference
    0.133
    """
    one, other, apart = first.sum(0), second.sum(0), second - first
    observed = abs(score_of(one.tolist()) - score_of(other.tolist())) - ROUNDING
    count = 0
    for exchanged in _exchanges(trials, len(first), seed):
        moved = exchanged.astype(np.float64) @ apart  # [trials, K]
        pairs = zip((one + moved).tolist(), (other - moved).tolist(), strict=True)
        count += sum(abs(score_of(a) - score_of(b)) >= observed for a, b in pairs)
    return (count + 1) / (trials + 1)


def _exchanges(trials: int, sentences: int, seed: int) -> Iterator[Flags]:
    """Masks of the sentences to exchange ``[trials, sentences]``, some trials at a time."""
    rng = np.random.default_rng(seed)
    step = max(AT_ONCE // sentences // WORD, 1) * WORD
    for begin in range(0, trials, step):
        # sacreBLEU draws the sentences that stay
        yield ~rng.integers(2, size=(min(step, trials - begin), sentences), dtype=bool)
