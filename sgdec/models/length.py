"""How long a target sentence is: a negative binomial distribution that depends on the source sentence.

    P(n) = Gamma(n + r) / (n! Gamma(r)) p^n (1 - p)^r,    n = 0, 1, 2, ...

Both parameters are functions of five features of the source line: its characters, its words, its punctuation marks,
characters a word, marks a word. r is linear in them, p logistic:

    r = max(0.1, w_r . features + b_r)        p = 1 / (1 + exp(-(w_p . features + b_p)))

The mean is r p / (1 - p), the variance 1 / (1 - p) times that. Plain Python: nothing here needs arrays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from sgdec.errors import SgdecError

FEATURES = ("characters", "words", "punctuation", "characters_per_word", "punctuation_per_word")
PUNCTUATION = ",.:;-"
LEAST_R = 0.1
LEAST_P = 1e-5
"""p lies between this and 1 minus this."""
_TINY = 1e-300
_PRECISION = 1e-14


def features_of(line: str) -> tuple[float, ...]:
    """The features of a source line, in the order of `FEATURES`."""
    line = line.strip()
    words = len(line.split())
    marks = sum(map(line.count, PUNCTUATION))
    return float(len(line)), float(words), float(marks), len(line) / max(words, 1), marks / max(words, 1)


class LengthWeights(NamedTuple):
    """What makes r and p of the features: one weight each, then the bias."""

    r: tuple[float, ...]
    """``[6]``"""
    p: tuple[float, ...]
    """``[6]``"""

    @classmethod
    def of_numbers(cls, numbers: Sequence[float]) -> LengthWeights:
        """From SGNMT's order: five of r, five of p, and the biases of r and p, which may both be missing.

        Raises SgdecError for any other number of them, and for values that are not finite numbers.
        """
        count = len(FEATURES)
        if len(numbers) not in (2 * count, 2 * count + 2):
            raise SgdecError(f"{len(numbers)} weights; expected {2 * count}, or {2 * count + 2} with biases.")
        if not all(map(math.isfinite, numbers)):
            raise SgdecError("a weight is infinite or no number; expected finite ones.")
        r, p, biases = numbers[:count], numbers[count : 2 * count], numbers[2 * count :] or (0.0, 0.0)
        return cls((*r, biases[0]), (*p, biases[1]))

    def distribution(self, line: str) -> NegativeBinomial:
        """The lengths of the translation of a source line."""
        given = (*features_of(line), 1.0)
        r, logit = (math.fsum(w * f for w, f in zip(weights, given, strict=True)) for weights in self)
        p = 1 / (1 + math.exp(-logit)) if logit > -700 else 0.0
        return NegativeBinomial(max(r, LEAST_R), min(max(p, LEAST_P), 1 - LEAST_P))


class NegativeBinomial(NamedTuple):
    """The distribution, with its tail to full relative precision."""

    r: float
    p: float

    @property
    def mode(self) -> int:
        """The most probable n: the probability grows up to here and falls from here."""
        return max(math.floor(self.p * (self.r - 1) / (1 - self.p)), 0)

    def log_probability(self, n: int) -> float:
        """log P(n); -inf below 0. Takes n steps: differences of log Gamma would cancel where r is large."""
        if n < 0:
            return -math.inf
        ways = math.fsum(math.log((self.r + k) / (k + 1)) for k in range(n))
        return ways + n * math.log(self.p) + self.r * math.log1p(-self.p)

    def log_tail(self, n: int) -> float:
        """log of the probability of n or more.

        It is the regularised incomplete beta function I_p(n, r), by its continued fraction, whose first factor is
        P(n). That converges fast below the mean; above, that of 1 - I_{1-p}(r, n) does.
        """
        if n <= 0:
            return 0.0
        first = self.log_probability(n)
        if self.p < (n + 1) / (n + self.r + 2):
            return min(first + math.log(_fraction(n, self.r, self.p)), 0.0)
        below = first + math.log(n / self.r * _fraction(self.r, n, 1 - self.p))
        return math.log1p(-math.exp(below))


def _fraction(a: float, b: float, x: float) -> float:
    """I_x(a, b) a B(a, b) / (x^a (1-x)^b): the continued fraction 26.5.8 of Abramowitz and Stegun, by Lentz."""
    c, d = 1.0, 1 / _nonzero(1 - (a + b) * x / (a + 1))
    value, m = d, 0
    while True:
        m += 1
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _nonzero(1 + numerator * d)
            c = _nonzero(1 + numerator / c)
            value *= c * d
        if abs(c * d - 1) < _PRECISION:
            return value


def _nonzero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
