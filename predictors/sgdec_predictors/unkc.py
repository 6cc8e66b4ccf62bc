"""UNK count: a Poisson model of the unknown tokens in a target sentence (Stahlberg et al. 2017, Table 1).

Score of ``</s>`` after n UNKs: ``log P(n) = n log lambda - lambda - log n!``; of every other token: 0. So a
total is log P of the whole sentence's count, and over all counts these probabilities sum to one.

Departure: lambda is not estimated from features of the source sentence, as Table 1 has it, but given: one number for
each number of unknown source words, or one for all sentences.

State: one number for n, the number of tokens that the length limit still allows (only for the bounds), and which
lambda. Cost: constant per row. Relaxations: by n, exact up to 510 UNKs; then a constant.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from functools import lru_cache, partial
from typing import Annotated, NamedTuple

from pydantic import Field

import sgdec
from sgdec import EOS, UNK, BatchPredictor, Source
from sgdec.protocol import SparseRow
from sgdec.relaxations import Constant, Relaxation
from sgdec_predictors.automata.counted import COUNTED, Counted
from sgdec_predictors.automata.numbered import LONGEST, NO_LIMIT, Counting, Number, one_less, tokens_left

KEPT = 1 << 12
"""The number of rows that are cached."""


class _Count(NamedTuple):
    unknown: int
    left: float
    """Tokens that the length limit still allows; infinite without one."""
    expected: float
    """Lambda."""


class UnkCount(Counting):
    """The log-probability of the sentence's number of unknown tokens, added at ``</s>``.

    >>> predictor = UnkCount(lambdas=[0.5])
    >>> states = predictor.initialize_batch([Source(id=1, tokens=(17, 4))])
    >>> predictor.predict_batch(states).rows
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
        self._rows = lru_cache(KEPT)(_scores)
        self._relaxed = lru_cache(None)(partial(_relaxations, len(lambdas)))

    def initialize_batch(self, sources: Sequence[Source]) -> list[int]:
        last = len(self._lambdas) - 1
        return [tokens_left(source) * len(self._lambdas) + min(source.tokens.count(UNK), last) for source in sources]

    def _row(self, state: int) -> SparseRow:
        count = self._count(state)
        return self._rows(count.unknown, count.expected)

    def _after(self, states: Number, tokens: Number) -> Number:
        one = len(self._lambdas)  # of the tokens left
        left = states // one % LONGEST
        after: Number = states - (left - one_less(left)) * one + (tokens == UNK) * (LONGEST * one)
        return after

    def best_remaining(self, states: Sequence[int]) -> list[float]:
        """P grows up to n = floor(lambda) and falls from there, so the nearest count to that is the best."""
        counts = map(self._count, states)
        return [log_poisson(min(max(math.floor(mean), n), n + left), mean) for n, left, mean in counts]

    def worst_remaining(self, states: Sequence[int]) -> list[float]:
        """The worst is at an end of the range of counts; -inf if the length has no limit."""
        counts = map(self._count, states)
        return [min(log_poisson(n, mean), log_poisson(n + left, mean)) for n, left, mean in counts]

    def relaxations(self, state: int) -> Sequence[Relaxation]:
        return self._relaxed(self._count(state).expected)

    def state_key(self, states: Sequence[int]) -> list[Hashable]:
        return [self._count(state).unknown for state in states]  # the tokens left are part of the space's own key

    def _count(self, state: int) -> _Count:
        """The parts of a state: (n * LONGEST + tokens left) * number of lambdas + which lambda."""
        rest, place = divmod(state, len(self._lambdas))
        unknown, left = divmod(rest, LONGEST)
        return _Count(unknown, math.inf if left == NO_LIMIT else left, self._lambdas[place])


def log_poisson(n: float, mean: float) -> float:
    """log Poisson(n; mean)."""
    if n == math.inf:
        return -math.inf
    return n * math.log(mean) - mean - math.lgamma(n + 1)


def _scores(n: int, mean: float) -> SparseRow:
    return SparseRow([EOS], [log_poisson(n, mean)], default=0.0)


def _relaxations(lambdas: int, mean: float) -> tuple[Relaxation, ...]:
    """For the sentences with this mean. ``lambdas``: the number of means."""
    by_unknown = Counted(
        COUNTED,
        lambda n: _scores(n, mean),
        lambda state: state // lambdas // LONGEST,
        beyond=(-math.inf, 0.0),
        counted=UNK,
    )
    return by_unknown, Constant(-math.inf, 0.0)


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[BatchPredictor]]:
    return {"unkc": UnkCount}
