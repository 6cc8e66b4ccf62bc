"""The length of a target sentence: a negative binomial distribution that depends on the source sentence.

    P(n) = Gamma(n + r) / (n! Gamma(r)) p^n (1 - p)^r,    n = 0, 1, 2, ...

Both parameters are functions of five features of the source line: its numbers of characters, words and punctuation
marks, and the numbers of characters and marks per word. r is linear in the features, p is logistic:

    r = max(0.1, w_r . features + b_r)        p = 1 / (1 + exp(-(w_p . features + b_p)))

The mean is r p / (1 - p), and the variance is the mean times 1 / (1 - p). The code is plain Python without arrays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from sgdec.errors import SgdecError, counted

FEATURES = ("characters", "words", "punctuation", "characters_per_word", "punctuation_per_word")
PUNCTUATION = ",.:;-"
LEAST_R = 0.1
LEAST_P = 1e-5
"""p is limited to the range from this to 1 minus this."""
_TINY = 1e-300
_PRECISION = 1e-14


def features_of(line: str) -> tuple[float, ...]:
    """The features of a source line, in the order of `FEATURES`."""
    line = line.strip()
    words = len(line.split())
    marks = sum(map(line.count, PUNCTUATION))
    return float(len(line)), float(words), float(marks), len(line) / max(words, 1), marks / max(words, 1)


class LengthWeights(NamedTuple):
    """The weights that compute r and p from the features: one per feature, then the bias."""

    r: tuple[float, ...]
    """``[6]``"""
    p: tuple[float, ...]
    """``[6]``"""

    @classmethod
    def of_numbers(cls, numbers: Sequence[float]) -> LengthWeights:
        """The weights from numbers in SGNMT's order: five of r, five of p, optionally the biases of r and p.

        Raises SgdecError for any other number of weights, and for weights that are not finite.
        """
        count = len(FEATURES)
        if len(numbers) not in (2 * count, 2 * count + 2):
            found = counted(len(numbers), "weight")
            raise SgdecError(f"{found}; expected {2 * count}, or {2 * count + 2} with biases.")
        if not all(map(math.isfinite, numbers)):
            raise SgdecError("a weight is infinite or not a number; expected finite weights.")
        r, p, biases = numbers[:count], numbers[count : 2 * count], numbers[2 * count :] or (0.0, 0.0)
        return cls((*r, biases[0]), (*p, biases[1]))

    def distribution(self, line: str) -> NegativeBinomial:
        """The distribution of the length of a source line's translation."""
        given = (*features_of(line), 1.0)
        r, logit = (math.fsum(w * f for w, f in zip(weights, given, strict=True)) for weights in self)
        p = 1 / (1 + math.exp(-logit)) if logit > -700 else 0.0
        return NegativeBinomial(max(r, LEAST_R), min(max(p, LEAST_P), 1 - LEAST_P))


class NegativeBinomial(NamedTuple):
    """The distribution, whose tail has full relative precision."""

    r: float
    p: float

    @property
    def mode(self) -> int:
        """The most probable n: the probability increases up to here and decreases from here on."""
        return max(math.floor(self.p * (self.r - 1) / (1 - self.p)), 0)

    def log_probability(self, n: int) -> float:
        """ln P(n); -inf for n < 0. Takes n steps: for large r, a difference of log Gammas would lose precision."""
        if n < 0:
            return -math.inf
        return _log_ways(self.r, n) + n * math.log(self.p) + self.r * math.log1p(-self.p)

    def log_tail(self, n: int) -> float:
        """ln of the probability of n or more.

        The probability is the regularised incomplete beta function I_p(n, r), computed from P(n) and a continued
        fraction. If that converges slowly, 1 - I_{1-p}(r, n) is computed instead.
        """
        if n <= 0:
            return 0.0
        first = self.log_probability(n)
        if self.p < (n + 1) / (n + self.r + 2):
            return min(first + math.log(_fraction(n, self.r, self.p)), 0.0)
        below = first + math.log(n / self.r * _fraction(self.r, n, 1 - self.p))
        return math.log1p(-math.exp(below))


@lru_cache(maxsize=1 << 12)  # a row needs the same length several times, and so do rows of neighbouring lengths
def _log_ways(r: float, n: int) -> float:
    return math.fsum(math.log((r + k) / (k + 1)) for k in range(n))


def _fraction(a: float, b: float, x: float) -> float:
    """I_x(a, b) a B(a, b) / (x^a (1-x)^b): continued fraction 26.5.8 of Abramowitz and Stegun, by Lentz's method."""
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
