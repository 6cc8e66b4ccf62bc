"""All hypotheses of a search space, by plain recursion over the predictors: the reference for testing searches.

It uses the predictors' batch verbs, and none of the code for search, combination or batched ranking.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sgdec.context import EOS
from sgdec.protocol import FORBIDDEN, Scores, Source, State, ability
from sgdec.ranking import Coverage, Ranking
from sgdec.search.constellation import Constellation
from sgdec.testing.reading import plain, plain_tokens, restricts


@dataclass(frozen=True)
class Path:
    """One complete hypothesis of a space."""

    tokens: tuple[int, ...]
    """Without ``</s>``."""
    total: float
    ledger: tuple[tuple[float, ...], ...]
    """``[T, K]``: unweighted scores; 0 for a predictor that was not consulted."""
    coverage: Coverage = ()

    def rank_score(self, ranking: Ranking) -> float:
        return ranking.score(self.total, len(self.ledger), self.coverage)


class _Prefix(NamedTuple):
    tokens: tuple[int, ...]
    states: Sequence[State]
    ledger: tuple[tuple[float, ...], ...]
    coverage: Coverage


def enumerate_space(
    constellation: Constellation, source: Source, *, ranking: Ranking | None = None, most: int = 100_000
) -> list[Path]:
    """All complete hypotheses, best rank score first; ties are ordered by tokens.

    ``source`` needs a ``max_length``, unless the predictors themselves limit the length. Raises ValueError if there
    are more than ``most`` prefixes.
    """
    ranking = ranking or Ranking()
    states = [predictor.initialize_batch([source])[0] for predictor in constellation.predictors]
    root = _Prefix((), states, (), ())
    paths = _walk(constellation, source, root, ranking.uses_coverage, iter(range(most)))
    return sorted(paths, key=lambda path: (-path.rank_score(ranking), path.tokens))


def score_path(
    constellation: Constellation,
    source: Source,
    tokens: Sequence[int],
    weights: Sequence[Sequence[float | None]] | None = None,
) -> tuple[float, list[list[float]]]:
    """Total and ledger ``[T, K]`` of one hypothesis (without ``</s>``), computed by each predictor separately.

    ``weights``: ``[T, K]``, the weights for each token; by default those of the constellation. A predictor that is
    not consulted for a token is not consulted for later tokens either.
    """
    end = [*tokens, EOS]
    weights = weights if weights is not None else [constellation.weights] * len(end)
    ledger = [[0.0] * len(constellation.members) for _ in end]
    for k, predictor in enumerate(constellation.predictors):
        states = predictor.initialize_batch([source])
        for t, token in enumerate(end):
            if weights[t][k] is None:
                break
            ledger[t][k] = _score_of(predictor.predict_batch(states), token)
            if token != EOS:
                states = predictor.consume_batch(states, [token])
    total = sum(_total(now, [step]) for now, step in zip(weights, ledger, strict=True))
    return total, ledger


def followers(
    constellation: Constellation, source: Source, states: Sequence[State], length: int
) -> list[tuple[int, tuple[float, ...]]]:
    """The tokens that can follow a prefix of ``length`` tokens, ascending, with their scores by predictor."""
    answers = [
        None if weight is None else predictor.predict_batch([state])
        for predictor, state, weight in zip(constellation.predictors, states, constellation.weights, strict=True)
    ]
    asked = [answer for answer in answers if answer is not None]
    allowed = [set(plain_tokens(answer.rows[0].tokens)) for answer in asked if restricts(answer, 0)]
    if length == source.max_length:
        allowed.append({EOS})
    if not allowed:
        widths = [answer.values.shape[-1] for answer in asked if answer.values is not None]
        allowed = [set(range(constellation.vocab_size or widths[0]))]
    found = []
    for token in sorted(set.intersection(*allowed)):
        scores = tuple(0.0 if answer is None else _score_of(answer, token) for answer in answers)
        if FORBIDDEN not in scores:
            found.append((token, scores))
    return found


def _walk(
    constellation: Constellation, source: Source, prefix: _Prefix, wanted: bool, budget: Iterator[int]
) -> Iterator[Path]:
    """All hypotheses that begin with ``prefix``. ``wanted``: whether to compute coverage."""
    if next(budget, None) is None:
        raise ValueError("the space is too large to enumerate")
    coverage = _attend(constellation, prefix) if wanted else ()
    for token, scores in followers(constellation, source, prefix.states, len(prefix.tokens)):
        ledger = (*prefix.ledger, scores)
        if token == EOS:
            yield Path(prefix.tokens, _total(constellation.weights, ledger), ledger, coverage)
            continue
        states = [
            state if weight is None else predictor.consume_batch([state], [token])[0]
            for predictor, state, weight in zip(
                constellation.predictors, prefix.states, constellation.weights, strict=True
            )
        ]
        longer = _Prefix((*prefix.tokens, token), states, ledger, coverage)
        yield from _walk(constellation, source, longer, wanted, budget)


def _attend(constellation: Constellation, prefix: _Prefix) -> Coverage:
    """The coverage including the attention for the next token, for each consulted predictor with attention."""
    rows = [
        plain(attention([state])[0])
        for predictor, state, weight in zip(
            constellation.predictors, prefix.states, constellation.weights, strict=True
        )
        if weight is not None and (attention := ability(predictor, "attention")) is not None
    ]
    before = prefix.coverage or [np.zeros_like(row) for row in rows]
    return tuple(np.asarray(old) + new for old, new in zip(before, rows, strict=True))


def _score_of(scores: Scores, token: int) -> float:
    """The score of one token in scores with a single row."""
    if scores.values is not None:
        return float(scores.values[0][token])
    row = scores.rows[0]
    listed = plain_tokens(row.tokens)
    return float(row.scores[listed.index(token)]) if token in listed else float(row.default)


def _total(weights: Sequence[float | None], ledger: Sequence[Sequence[float]]) -> float:
    return math.fsum(
        weight * score for step in ledger for weight, score in zip(weights, step, strict=True) if weight is not None
    )
