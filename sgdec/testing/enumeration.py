"""Everything that a search space holds, by plain recursion over the predictors: the oracle for searches.

Uses the predictors' batch verbs and nothing of the code that searches, combines or ranks in batches.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sgdec.constellation import Constellation
from sgdec.context import EOS
from sgdec.protocol import FORBIDDEN, Source, State, ability
from sgdec.ranking import Coverage, Ranking
from sgdec.testing.reading import Row, plain, plain_tokens, read_row, restricts


@dataclass(frozen=True)
class Path:
    """One complete hypothesis of a space."""

    tokens: tuple[int, ...]
    """Without ``</s>``."""
    total: float
    ledger: tuple[tuple[float, ...], ...]
    """``[T, K]``, unweighted; 0 where a predictor was not consulted."""
    coverage: Coverage = ()

    def rank_score(self, ranking: Ranking) -> float:
        return ranking.score(self.total, len(self.ledger), self.coverage)


def enumerate_space(
    constellation: Constellation, source: Source, *, ranking: Ranking | None = None, most: int = 100_000
) -> list[Path]:
    """All complete hypotheses, best rank score first, equal ones by their tokens.

    ``source`` needs a ``max_length``, or the predictors an end of their own. ValueError beyond ``most`` prefixes.
    """
    ranking = ranking or Ranking()
    states = [predictor.initialize_batch([source])[0] for predictor in constellation.predictors]
    budget = iter(range(most))
    paths = list(_walk(constellation, source, states, (), (), _nothing_attended(ranking), budget))
    return sorted(paths, key=lambda path: (-path.rank_score(ranking), path.tokens))


def score_path(
    constellation: Constellation,
    source: Source,
    tokens: Sequence[int],
    weights: Sequence[Sequence[float | None]] | None = None,
) -> tuple[float, list[list[float]]]:
    """Total and ledger ``[T, K]`` of one hypothesis (without ``</s>``), each predictor asked on its own.

    ``weights``: ``[T, K]``, those in force for each token; by default the constellation's own.
    """
    end = [*tokens, EOS]
    if weights is None:
        weights = [constellation.weights] * len(end)
    ledger = [[0.0] * len(constellation.members) for _ in end]
    total = 0.0
    for k, predictor in enumerate(constellation.predictors):
        states = predictor.initialize_batch([source])
        for t, token in enumerate(end):
            weight = weights[t][k]
            if weight is None:
                break
            ledger[t][k] = _score_of(predictor.predict_batch(states), token)
            total += _weighted(weight, ledger[t][k])
            if token != EOS:
                states = predictor.consume_batch(states, [token])
    return total, ledger


def _walk(
    constellation: Constellation,
    source: Source,
    states: Sequence[State],
    tokens: tuple[int, ...],
    ledger: tuple[tuple[float, ...], ...],
    coverage: Coverage | None,
    budget: Iterator[int],
) -> Iterator[Path]:
    if next(budget, None) is None:
        raise ValueError("the space is too large to enumerate")
    if coverage is not None:
        attended = [
            plain(attention([state])[0])
            for predictor, state in zip(constellation.predictors, states, strict=True)
            if (attention := ability(predictor, "attention")) is not None
        ]
        coverage = tuple(old + new for old, new in zip(coverage, attended, strict=True)) or tuple(attended)
    for token, scores, _ in followers(constellation, source, states, len(tokens)):
        after = (*ledger, scores)
        if token == EOS:
            yield Path(tokens, _total(constellation, after), after, coverage or ())
            continue
        next_states = [
            state if weight is None else predictor.consume_batch([state], [token])[0]
            for predictor, state, weight in zip(
                constellation.predictors, states, constellation.weights, strict=True
            )
        ]
        yield from _walk(constellation, source, next_states, (*tokens, token), after, coverage, budget)
