"""UNK count: a Poisson model of the unknown tokens in a target sentence (Stahlberg et al. 2017, Table 1).

Score of ``</s>`` after n UNKs: ``log P(n) = n log lambda - lambda - log n!``; of every other token: 0. So a
total is log P of the whole sentence's count, and over all counts these probabilities sum to one.

State: n, and the number of tokens that the length limit still allows, only for the bounds. Cost: constant per row.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Annotated, NamedTuple

from pydantic import Field

import sgdec
from sgdec import EOS, UNK, Predictor, Scores, Source
from sgdec.protocol import Candidates


class _Count(NamedTuple):
    unknown: int
    left: float
    """Tokens that the length limit still allows; infinite without one."""


class UnkCount(Predictor):
    """The log-probability of the sentence's number of unknown tokens, added at ``</s>``.

    >>> predictor = UnkCount(lambdas=[0.5])
    >>> predictor.initialize(Source(id=1, tokens=(17, 4)))
    >>> predictor.predict_next().rows
    [SparseRow({2: -0.5}, default=0.0)]
    """

    max_score = 0.0

    def __init__(
        self,
        lambdas: Annotated[
            tuple[Annotated[float, Field(gt=0, allow_inf_nan=False)], ...],
            Field(
                min_length=1,
                description="expected UNKs in a target sentence: one number for all sentences, or one number each "
                "for 0, 1, 2, ... UNKs in the source sentence, the last one also for more UNKs",
            ),
        ] = (1.0,),
    ) -> None:
        self._lambdas = lambdas
        self._lambda = lambdas[0]
        self._state = _Count(0, math.inf)

    def initialize(self, source: Source) -> None:
        self._lambda = self._lambdas[min(source.tokens.count(UNK), len(self._lambdas) - 1)]
        self._state = _Count(0, math.inf if source.max_length is None else source.max_length)

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        return Scores.sparse([EOS], [self._log_probability(self._state.unknown)], default=0.0)

    def consume(self, token: int) -> None:
        unknown, left = self._state
        self._state = _Count(unknown + (token == UNK), left - 1)

    def get_state(self) -> _Count:
        return self._state

    def set_state(self, state: _Count) -> None:
        self._state = state

    def best_remaining(self, states: Sequence[_Count]) -> list[float]:
        """P grows up to n = floor(lambda) and falls from there, so the nearest count to that is the best."""
        mode = math.floor(self._lambda)
        return [self._log_probability(min(max(mode, n), n + max(left, 0))) for n, left in states]

    def worst_remaining(self, states: Sequence[_Count]) -> list[float]:
        """The worst is at an end of the range of counts; -inf if the length has no limit."""
        return [min(self._log_probability(n), self._log_probability(n + max(left, 0))) for n, left in states]

    def state_key(self, states: Sequence[_Count]) -> list[Hashable]:
        return [state.unknown for state in states]  # the tokens left are part of the space's own key

    def _log_probability(self, n: float) -> float:
        """log Poisson(n; lambda)."""
        if n == math.inf:
            return -math.inf
        return n * math.log(self._lambda) - self._lambda - math.lgamma(n + 1)


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[Predictor]]:
    return {"unkc": UnkCount}
