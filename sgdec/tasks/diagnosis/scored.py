"""Hypotheses under the scores of a constellation and the ranking of a decoder, and why one ranks above another.

The rank score of a hypothesis Y (`sgdec.ranking`) is a sum over the predictors k:

    s(Y) = sum_k weight_k * share_k(Y) + cp(Y)        share_k(Y) = sum_t score_k(y_t) / lp(Y)

So the difference of two rank scores is a sum of one contribution for each predictor, and of one for coverage.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sgdec.protocol import Hypothesis
from sgdec.ranking import Ranking
from sgdec.sums import exact_sum

COVERAGE = "coverage penalty"
"""Stands for a predictor in a decision that the coverage penalty has made."""


@dataclass(frozen=True)
class Scored:
    """A hypothesis and its scores."""

    tokens: tuple[int, ...]
    """Without ``</s>``."""
    rank_score: float
    score: float
    """The weighted total."""
    shares: tuple[float, ...]
    """``[K]``: for each predictor the sum of its unweighted scores, divided by the length penalty."""
    coverage: float
    """The coverage penalty, at most 0."""

    @classmethod
    def of(cls, found: Hypothesis, ranking: Ranking) -> Scored:
        """``found``: a hypothesis with its ledger, and the rank score that ``ranking`` gives it."""
        penalty = ranking.length_penalty(len(found.tokens) + 1)
        shares = tuple(score / penalty for score in found.scores)
        coverage = found.rank_score - found.score / penalty if ranking.uses_coverage else 0.0
        return cls(found.tokens, found.rank_score, found.score, shares, coverage)


@dataclass(frozen=True)
class Decision:
    """The reason why one hypothesis ranks above another."""

    difference: float
    """The rank score of the better one minus that of the other; not negative."""
    contributions: Mapping[str, float]
    """The part of the difference that each predictor adds, and the coverage penalty if there is one."""
    predictor: str
    """The one with the highest contribution."""
    turning_weight: float | None
    """The weight of this predictor with which both hypotheses rank equally, all else unchanged; None if there
    is none with the sign of the present one."""
    inside: Mapping[str, float] = field(default_factory=dict, repr=False)
    """If the predictor is a mix, by part: the sum of its scores of the better one minus that of the other."""


def decision(better: Scored, worse: Scored, names: Sequence[str], weights: Sequence[float | None]) -> Decision:
    """The decision between two hypotheses of a constellation with these names and weights.

    >>> long, short = Scored((3, 4), -2.0, -2.0, (-2.0, 2.0), 0.0), Scored((), -1.5, -1.5, (-1.5, 0.0), 0.0)
    >>> decision(short, long, ["lm", "bonus"], [1.0, 0.0])
    Decision(difference=0.5, contributions={'lm': 0.5, 'bonus': -0.0}, predictor='lm', turning_weight=None)
    >>> decision(short, long, ["lm", "bonus"], [1.0, 0.1]).turning_weight
    0.4
    """
    apart = [one - other for one, other in zip(better.shares, worse.shares, strict=True)]
    parts = {name: (weight or 0.0) * by for name, weight, by in zip(names, weights, apart, strict=True)}
    coverage = better.coverage - worse.coverage
    contributions = parts | ({COVERAGE: coverage} if coverage else {})
    difference = better.rank_score - worse.rank_score
    decides = max(contributions, key=contributions.__getitem__)
    others = exact_sum(by for name, by in contributions.items() if name != decides)
    turning = None
    if decides in parts and contributions[decides]:
        place = names.index(decides)
        turning = _turning(others, apart[place], weights[place] or 0.0)
    return Decision(difference, contributions, decides, turning)


def _turning(others: float, apart: float, weight: float) -> float | None:
    """The weight w with  w * apart + others = 0  if it has the sign of the present one."""
    turning = -others / apart
    return turning if turning * weight > 0 and math.isfinite(turning) else None
