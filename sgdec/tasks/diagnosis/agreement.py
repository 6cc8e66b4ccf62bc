"""Agreement of predictors along outputs: whose best token was taken, and who has the same best token."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, zip_longest
from typing import NamedTuple

from sgdec.context import EOS
from sgdec.tasks.diagnosis.following import NO_TOKEN, FollowedPath


class Share(NamedTuple):
    """A number of steps, and the number of those that count."""

    steps: int
    of: int

    @property
    def share(self) -> float | None:
        """From 0 to 1; None if no step counts."""
        return self.steps / self.of if self.of else None


class Agreement(NamedTuple):
    """A step counts if each predictor in question has one best token there."""

    taken: Mapping[str, Share]
    """By predictor: the steps at which its best token is that of the output."""
    same: Mapping[tuple[str, str], Share]
    """By pair of predictors: the steps at which they have the same best token."""


def agreement(
    outputs: Sequence[Sequence[int] | None], paths: Mapping[str, Sequence[FollowedPath | None]]
) -> Agreement:
    """``outputs``: the tokens of each output without ``</s>``, or None. ``paths``: by predictor its path along
    each."""
    output = [token for tokens in outputs if tokens is not None for token in (*tokens, EOS)]
    best = {name: list(_best(outputs, of)) for name, of in paths.items()}
    return Agreement(
        {name: _equal(tokens, output) for name, tokens in best.items()},
        {(one, other): _equal(best[one], best[other]) for one, other in combinations(best, 2)},
    )


def _best(outputs: Sequence[Sequence[int] | None], paths: Sequence[FollowedPath | None]) -> Iterator[int]:
    """The best token of a predictor at each step of all outputs, or `NO_TOKEN`."""
    for tokens, path in zip(outputs, paths, strict=True):
        if tokens is None:
            continue
        steps = () if path is None else path.steps
        for _, step in zip_longest((*tokens, EOS), steps):
            yield NO_TOKEN if step is None else step.best


def _equal(tokens: Sequence[int], others: Sequence[int]) -> Share:
    counted = [(a, b) for a, b in zip(tokens, others, strict=True) if NO_TOKEN not in (a, b)]
    return Share(sum(a == b for a, b in counted), len(counted))
