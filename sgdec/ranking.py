"""Ranking of finished hypotheses of different lengths: GNMT's length and coverage penalties.

Source: Wu et al. 2016, section 7, equation 14:  s(Y, X) = log P(Y|X) / lp(Y) + cp(X; Y)  with

    lp(Y)    = (5 + |Y|)^alpha / (5 + 1)^alpha
    cp(X; Y) = beta * sum_i log(min(sum_j p_ij, 1))

|Y| and the coverage sum over j include ``</s>``. If several predictors have attention, each over its own source, cp
is the mean over the consulted predictors, whose weight is not None. Weight 0 counts as consulted, so a model can
contribute only its attention. ``length`` replaces lp by |Y|^alpha. ``length_offset`` is added to |Y| in lp.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from sgdec.arrays import Floats
from sgdec.errors import UsageError

Coverage: TypeAlias = tuple[Floats | None, ...]
"""For each predictor with attention: the attention ``[source]`` that each source token has received so far.

None for a predictor that is not consulted.
"""

MOST_ALPHA, MOST_BETA = 10.0, 1e6
"""With these limits, lp(Y) of ten million tokens is at most 1e70; the largest float is 1e308."""
SMALLEST_COVERAGE = 1e-30
"""A source token without attention adds beta * log(1e-30), about -69 beta: finite, so hypotheses stay comparable."""
RELATIVE, ABSOLUTE = 1e-5, 1e-4
"""Rank scores that differ by at most this count as equal. The scores of a model in float32 depend on the batch by
about 1e-6 for each token."""


@dataclass(frozen=True)
class Ranking:
    """Turns totals into rank scores. With alpha = beta = 0 a rank score is the total itself.

    >>> Ranking(alpha=1.0).score(-14.0, length=9)       # lp = 14 / 6
    -6.0
    >>> Ranking(alpha=1.0, normalize="length").score(-14.0, length=7)
    -2.0
    """

    alpha: float = 0.0
    beta: float = 0.0
    normalize: Literal["gnmt", "length"] = "gnmt"
    length_offset: int = 0
    """Tokens that count in |Y| beside those of the output, such as a forced language code."""

    def __post_init__(self) -> None:
        """Raises UsageError for an alpha or beta that would overflow a float for long outputs."""
        for name, value, most in (("alpha", self.alpha, MOST_ALPHA), ("beta", self.beta, MOST_BETA)):
            if not abs(value) <= most:
                raise UsageError(f"{name} {value:g}: expected {-most:g} to {most:g}; GNMT's is between 0 and 1.")

    @property
    def uses_length(self) -> bool:
        return self.alpha != 0.0

    @property
    def uses_coverage(self) -> bool:
        return self.beta > 0.0

    def length_penalty(self, length: int) -> float:
        """lp(Y), the divisor of the total, for a hypothesis of ``length`` tokens including ``</s>``."""
        if self.alpha == 0.0:
            return 1.0
        length += self.length_offset
        base = length if self.normalize == "length" else (5.0 + length) / 6.0
        return float(base**self.alpha)

    def coverage_penalty(self, coverage: Coverage) -> float:
        """cp(X; Y) <= 0, added after the division. Raises ValueError if beta > 0 and there is no coverage."""
        return float(self.coverage_penalties(coverage)) if self.uses_coverage else 0.0

    def coverage_penalties(self, coverage: Coverage) -> Floats:
        """The same for R hypotheses at once: ``[R]``, from arrays ``[R, source]`` in ``coverage``."""
        penalties = [
            np.log(np.clip(attended, SMALLEST_COVERAGE, 1.0)).sum(axis=-1)
            for attended in coverage
            if attended is not None
        ]
        if not penalties:
            raise ValueError(f"no attention to compute a coverage penalty from (beta = {self.beta:g})")
        mean: Floats = self.beta * np.mean(penalties, axis=0)
        return mean

    def score(self, total: float, length: int, coverage: Coverage = ()) -> float:
        """The rank score of a finished hypothesis of ``length`` tokens, ``</s>`` included."""
        if not self.uses_length and not self.uses_coverage:
            return total
        return total / self.length_penalty(length) + self.coverage_penalty(coverage)

    def best_possible(self, bound: float, shortest: int, longest: int | None) -> float:
        """The highest rank score of any hypothesis with total <= ``bound`` and a length in shortest..longest.

        lp is monotonic in the length (rising if alpha > 0, falling if alpha < 0), so the highest score is at an end
        of the range; cp is at most 0. ``longest``: None = no limit.
        """
        ends = [self.length_penalty(shortest)]
        if longest is not None:
            ends.append(self.length_penalty(longest))
        elif self.alpha != 0.0:
            ends.append(math.inf if self.alpha > 0 else 0.0)
        return max(_divide(bound, penalty) for penalty in ends)


def is_better(one: float, other: float) -> bool:
    """Whether a rank score, or a bound on some, is higher than another by more than the tolerance.

    >>> is_better(-2.0, -2.1), is_better(-2.0, -2.0 - 1e-12), is_better(-2.0, -math.inf)
    (True, False, True)
    """
    return one > other and not math.isclose(one, other, rel_tol=RELATIVE, abs_tol=ABSOLUTE)


def add_attention(coverage: Coverage, attention: Sequence[Floats | None]) -> Coverage:
    """The coverage after one more token: for each predictor the old coverage plus the attention ``[source]``.

    ``attention`` is None for a predictor that is not consulted for this token. The coverage of a predictor that was
    not consulted before starts with this token.
    """
    before = coverage or (None,) * len(attention)
    return tuple(new if old is None or new is None else old + new for old, new in zip(before, attention, strict=True))


def _divide(bound: float, penalty: float) -> float:
    if penalty == math.inf:
        return 0.0 if math.isfinite(bound) else bound
    if penalty == 0.0:
        return 0.0 if bound == 0.0 else math.copysign(math.inf, bound)
    return bound / penalty
