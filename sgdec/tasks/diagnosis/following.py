"""The predictions along given outputs: each token is predicted after those before it.

The distribution of a step is softmax over the scores of the tokens that can follow (of the whole constellation, or of
one predictor alone, with weight 1 or -1). A predictor has a best token only if no other token has the same score.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sgdec.arrays import Floats, Ints
from sgdec.context import EOS
from sgdec.errors import UsageError
from sgdec.protocol import FORBIDDEN
from sgdec.search.constellation import Constellation
from sgdec.search.member import Member
from sgdec.tasks.scoring import ScoringPair

NO_TOKEN = -1


class FollowedStep(NamedTuple):
    """The prediction of one token."""

    best: int
    """The token with the highest score; `NO_TOKEN` if several tokens have it."""
    confidence: float
    """The probability of the best token."""
    probability: float
    """The probability of the given token; 0 if it is forbidden."""


@dataclass(frozen=True)
class FollowedPath:
    """The steps along one output, up to the first token that is forbidden."""

    steps: tuple[FollowedStep, ...]
    """The last one can be that of the forbidden token; it is missing if no token can follow."""
    forbidden_at: int | None
    """The number of tokens before the forbidden one; None if no token is forbidden."""


def alone(constellation: Constellation) -> dict[str, Constellation]:
    """For each predictor that is consulted the constellation of this predictor alone, with weight 1, or -1 if its
    weight is negative."""
    size, kind = constellation.vocab_size, constellation.bounds_kind
    return {
        member.name: Constellation(
            [Member(member.name, member.predictor, -1.0 if member.weight < 0 else 1.0)], vocab_size=size, bounds=kind
        )
        for member in constellation.members
        if member.weight is not None
    }


def follow(
    constellation: Constellation,
    pairs: Sequence[ScoringPair],
    batch_size: int,
    done: Callable[[int], object] = lambda count: None,
) -> list[FollowedPath | None]:
    """The path of each pair; None if a predictor fails on its sentence. ``done`` is told of finished pairs."""
    paths: list[FollowedPath | None] = [None] * len(pairs)
    by_length = sorted(range(len(pairs)), key=lambda place: len(pairs[place].target))
    for begin in range(0, len(pairs), batch_size):
        chosen = by_length[begin : begin + batch_size]
        for place, path in zip(chosen, _safely(constellation, [pairs[place] for place in chosen]), strict=True):
            paths[place] = path
        done(len(chosen))
    return paths


def _safely(constellation: Constellation, pairs: Sequence[ScoringPair]) -> Sequence[FollowedPath | None]:
    """The paths of a batch, or of each of its sentences alone if a predictor fails."""
    try:
        return _follow(constellation, pairs)
    except UsageError:
        raise
    except Exception:
        if len(pairs) == 1:
            return [None]
    return [path for pair in pairs for path in _safely(constellation, [pair])]


def _follow(constellation: Constellation, pairs: Sequence[ScoringPair]) -> list[FollowedPath]:
    roots = constellation.roots(pairs)
    steps: list[list[FollowedStep]] = [[] for _ in pairs]
    forbidden: list[int | None] = [None] * len(pairs)
    nodes = dict(enumerate(roots))
    try:
        while nodes:
            combined = constellation.combine(list(nodes.values()))
            after = {}
            for row, (place, node) in enumerate(nodes.items()):
                token = (*pairs[place].target, EOS)[node.length]
                tokens, scores = combined.distribution(row)
                score = _score_of(token, tokens, scores)
                if scores.max(initial=FORBIDDEN) > FORBIDDEN:
                    steps[place].append(_step(tokens, scores, score))
                if score == FORBIDDEN:
                    forbidden[place] = node.length
                elif token != EOS:
                    (after[place],) = node.children([combined.continuation(row, token)], ())
            nodes = after
    finally:
        constellation.release(roots)
    return [FollowedPath(tuple(each), at) for each, at in zip(steps, forbidden, strict=True)]


def _score_of(token: int, tokens: Ints, scores: Floats) -> float:
    """The score of one of the tokens ``[n]`` that can follow, ascending, with their scores ``[n]``."""
    place = int(np.searchsorted(tokens, token))
    return float(scores[place]) if place < len(tokens) and tokens[place] == token else FORBIDDEN


def _step(tokens: Ints, scores: Floats, given: float) -> FollowedStep:
    """``given``: the score of the given token. At least one token can follow."""
    highest = scores.max()
    whole = np.exp(scores - highest).sum()
    best = np.flatnonzero(scores == highest)
    choice = int(tokens[best[0]]) if len(best) == 1 else NO_TOKEN
    return FollowedStep(choice, float(1 / whole), float(np.exp(given - highest) / whole))
