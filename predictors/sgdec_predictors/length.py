"""Target length: a negative binomial distribution that depends on the source line (Stahlberg et al. 2017, Table 2).

    P(n) = Gamma(n - o + r) / ((n - o)! Gamma(r)) p^(n - o) (1 - p)^r,    n = o, o + 1, ... tokens before ``</s>``

with r and p computed from the source line's features (`sgdec.models.length`) and o the offset. The offset is positive
if every hypothesis has tokens that the distribution does not count; if o is negative, P is renormalised over n >= 0.
Over all lengths it sums to one.

After n tokens ``</s>`` scores the hazard, ``log P(n) - log P(n or more)``, and every other token ``log P(more than
n) - log P(n or more)``: the factors of the chain rule, so that a hypothesis of n tokens has log P(n) in total. With
``point``, ``</s>`` scores the whole log P(n), and every other token 0. The length limit truncates the distribution:
mass beyond it is lost, and the length at the limit scores as usual.

State: n. Cost: n steps, once per length and sentence; then a look-up.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Annotated, NamedTuple

from pydantic import Field

import sgdec
from sgdec import EOS, Predictor, Scores, SgdecError, Source
from sgdec.io.lengths import read_length_weights
from sgdec.models.length import LengthWeights, NegativeBinomial
from sgdec.protocol import FORBIDDEN, Candidates


class LengthPredictor(Predictor):
    """The log-probability of the length of the hypothesis, given the source line.

    >>> predictor = LengthPredictor("0,0.5,0,0,0, 0,0,0,0,0", point=True)  # r = half the words, p = 1/2
    >>> predictor.initialize(Source(id=1, tokens=(5, 6), text="two words"))
    >>> round(math.exp(predictor.predict_next().rows[0].get(EOS)), 9)  # P(n) = 1/2^(n+1)
    0.5
    """

    max_score = 0.0

    def __init__(
        self,
        weights: Annotated[
            str | tuple[float, ...],
            Field(
                description="file that `sgdec fit-length` wrote, or 10 numbers in SGNMT's order: 5 of r and "
                "5 of p (characters, words, punctuation, characters per word, punctuation per word); or 12, with "
                "the biases of r and p at the end"
            ),
        ],
        point: Annotated[
            bool, Field(description="true: only </s> is scored, with all of log P; false: each token, by hazards")
        ] = False,
        offset: Annotated[
            int,
            Field(
                description="subtracted from a hypothesis' length before the distribution is asked, as SGNMT's "
                "length_model_offset; shorter lengths than it are impossible (in SGNMT they score as length 1 does)"
            ),
        ] = 0,
    ) -> None:
        """Raises SgdecError if the weights cannot be read or their number is wrong."""
        try:
            self._weights = _weights(weights)
        except SgdecError as error:
            raise SgdecError(f"length: {error}") from None
        self._point = point
        self._offset = offset
        self._lengths = _Lengths(NegativeBinomial(1.0, 0.5), 0)
        self._limit = math.inf
        self._rows: dict[int, Scores] = {}
        self._state = 0

    def initialize(self, source: Source) -> None:
        """Compute the features from the text of the source; without text, from the tokens joined by blanks."""
        line = source.text if source.text is not None else " ".join(map(str, source.tokens))
        self._lengths = _Lengths(self._weights.distribution(line), self._offset)
        self._limit = math.inf if source.max_length is None else source.max_length
        self._rows = {}
        self._state = 0

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        n = self._state
        if n not in self._rows:
            before = self._paid(n)
            other = 0.0 if self._point else self._lengths.log_tail(n + 1) - before
            self._rows[n] = Scores.sparse([EOS], [self._lengths.log_probability(n) - before], default=other)
        return self._rows[n]

    def consume(self, token: int) -> None:
        self._state += 1

    def get_state(self) -> int:
        return self._state

    def set_state(self, state: int) -> None:
        self._state = state

    def best_remaining(self, states: Sequence[int]) -> list[float]:
        """The probability grows up to the mode and falls from there, so the nearest length is the best."""
        mode = self._lengths.mode
        return [
            FORBIDDEN if lowest > self._limit else self._left(n, int(min(max(mode, lowest), self._limit)))
            for n, lowest in ((n, max(n, self._offset)) for n in states)
        ]

    def worst_remaining(self, states: Sequence[int]) -> list[float]:
        """The worst is at an end of the range of lengths; -inf if the length has no limit."""
        worst = []
        for n in states:
            lowest = max(n, self._offset)
            if lowest > self._limit:
                worst.append(math.inf)
            elif self._limit == math.inf:
                worst.append(-math.inf)
            else:
                worst.append(min(self._left(n, lowest), self._left(n, int(self._limit))))
        return worst

    def state_key(self, states: Sequence[int]) -> list[Hashable]:
        return list(states)

    def _left(self, n: int, end: int) -> float:
        """The score that remains for a hypothesis of ``end`` tokens after n of them."""
        return self._lengths.log_probability(end) - self._paid(n)

    def _paid(self, n: int) -> float:
        """The score of n tokens."""
        return 0.0 if self._point else self._lengths.log_tail(n)


class _Lengths(NamedTuple):
    """P of the module's formula."""

    distribution: NegativeBinomial
    offset: int

    @property
    def mode(self) -> int:
        return max(self.distribution.mode + self.offset, 0)

    def log_probability(self, n: int) -> float:
        return self.distribution.log_probability(n - self.offset) - self._log_whole()

    def log_tail(self, n: int) -> float:
        return self.distribution.log_tail(n - self.offset) - self._log_whole()

    def _log_whole(self) -> float:
        """The mass of the distribution at lengths of at least 0."""
        return self.distribution.log_tail(-self.offset)


def _weights(given: str | tuple[float, ...]) -> LengthWeights:
    """Reads weights from a file's path, comma-separated numbers, or numbers."""
    if not isinstance(given, str):
        return LengthWeights.of_numbers(given)
    try:
        numbers = tuple(map(float, given.split(",")))
    except ValueError:
        return read_length_weights(given)
    return LengthWeights.of_numbers(numbers)


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[Predictor]]:
    return {"length": LengthPredictor}
