"""Candidates for searches with banks (Post and Vilar 2018, "Fast lexically constrained decoding with dynamic beam
allocation", section 3): besides the best children of a beam, the best one of each hypothesis, and all that meet more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sgdec.errors import UsageError
from sgdec.protocol import State, ability
from sgdec.search.answers import progress_given
from sgdec.search.member import Member


def with_progress(members: Sequence[Member], weights: Sequence[float | None]) -> list[int]:
    """The numbers of the predictors that are consulted under these weights and count progress."""
    return [
        k
        for k, (member, weight) in enumerate(zip(members, weights, strict=True))
        if weight is not None and ability(member.predictor, "progress") is not None
    ]


def require_progress(members: Sequence[Member], weights: Sequence[float | None]) -> None:
    """Raise UsageError unless one of these predictors counts progress."""
    if not with_progress(members, weights):
        names = ", ".join(member.name for member in members)
        raise UsageError(
            "banks need a predictor that counts how much of a constraint is met, such as phrases, and none of "
            f"{names} does: add one, or omit banks."
        )


def progress_of(
    members: Sequence[Member], chosen: Iterable[int], states: Callable[[int], Sequence[State]], number: int
) -> list[tuple[int, int]]:
    """For each of this many prefixes how much is met, and how much there is to meet, over the ``chosen`` predictors.

    ``states``: the states of predictor k for the prefixes.
    """
    met, needed = [0] * number, [0] * number
    for k in chosen:
        found = progress_given(members[k].name, members[k].ask("progress", states(k)))
        for i, (of_this, most) in enumerate(found):
            met[i] += of_this
            needed[i] += most
    return list(zip(met, needed, strict=True))


def advancing_of(
    members: Sequence[Member], chosen: Iterable[int], states: Callable[[int], Sequence[State]], number: int
) -> list[list[int]]:
    """For each of this many prefixes the tokens that meet more of a constraint of the ``chosen`` predictors."""
    tokens: list[set[int]] = [set() for _ in range(number)]
    for k in chosen:
        found: Sequence[Any] = members[k].ask("advancing", states(k))
        for listed, more in zip(tokens, found, strict=True):
            listed.update(more)
    return list(map(sorted, tokens))
