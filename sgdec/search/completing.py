"""An output that the constraints of a run allow, found in their product alone: no model is asked.

A beam, even one with banks, can lose all prefixes from which a constraint can still be met within the length limit.
Then this search finds an output, if there is one: prefixes with equal keys are one state (`StateKey`), and those that
meet more come first. Its cost is counted in continuations, of which a state has as many as there are tokens.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Sequence
from itertools import count
from typing import NamedTuple

import numpy as np

from sgdec.context import EOS
from sgdec.protocol import FORBIDDEN, State, ability
from sgdec.scores import SparseRow
from sgdec.search.combination.columns import candidates_of
from sgdec.search.member import Member

MOST = 1 << 20
"""The number of continuations after which the search gives up."""
HASTE = 3
"""The weight of what is missing against the tokens so far; above 1, outputs need not be the shortest ones."""


class Constraint(NamedTuple):
    """A predictor that forbids tokens, and its state for the empty prefix."""

    member: Member
    root: State


def is_constraint(member: Member, root: State) -> bool:
    """Whether a predictor has keys, and counts progress or forbids tokens after the empty prefix."""
    if ability(member.predictor, "state_key") is None or member.predictor.on_demand:
        return False
    if ability(member.predictor, "progress") is not None:
        return True
    row = member.predict([root]).row(0)
    return row is not None and (row.restricts or FORBIDDEN in list(row.scores))


def allowed_output(
    constraints: Sequence[Constraint], vocab_size: int | None, limit: int | None, most: int = MOST
) -> list[int] | None:
    """The tokens of an output that all constraints allow, with ``</s>``; None = none within ``limit`` was found.

    ``vocab_size``: V, None if a constraint lists tokens in all its states.
    """
    if any(ability(each.member.predictor, "advancing") is not None for each in constraints):
        found = _search(constraints, vocab_size, limit, most // 16, advancing=True)
        if found is not None:
            return found
    return _search(constraints, vocab_size, limit, most, advancing=False)


def _search(
    constraints: Sequence[Constraint], vocab_size: int | None, limit: int | None, most: int, advancing: bool
) -> list[int] | None:
    """``advancing``: only tokens after which more is met, as long as something is missing, and each counts for one.
    There are few of them, and usually they suffice."""
    order = count()
    root = tuple(constraint.root for constraint in constraints)
    waiting = [(0, _missing(constraints, root), next(order), root, list[int]())]
    shortest: dict[Hashable, int] = {}
    while waiting and most > 0:
        _, behind, _, states, tokens = heapq.heappop(waiting)
        length = len(tokens)
        following = _following(constraints, states, vocab_size, length == limit, advancing and behind > 0)
        if EOS in following:
            return [*tokens, EOS]
        most -= len(following) + 1
        if not following or length == limit:
            continue
        after = [
            constraint.member.consume([state] * len(following), following)
            for constraint, state in zip(constraints, states, strict=True)
        ]
        keys = [each.member.ask("state_key", new) for each, new in zip(constraints, after, strict=True)]
        length += 1
        for token, new, key in zip(following, zip(*after, strict=True), zip(*keys, strict=True), strict=True):
            if length < shortest.get(key, length + 1):
                shortest[key] = length
                missing = _missing(constraints, new)
                if advancing and limit is not None and length + missing > limit:
                    continue
                heapq.heappush(waiting, (length + HASTE * missing, missing, next(order), new, [*tokens, token]))
    return None


def _following(
    constraints: Sequence[Constraint],
    states: Sequence[State],
    vocab_size: int | None,
    only_end: bool,
    advancing: bool,
) -> list[int]:
    """The tokens that all constraints allow, ascending; with ``advancing`` only those after which more is met."""
    rows: list[SparseRow] = [
        constraint.member.predict([state]).rows[0] for constraint, state in zip(constraints, states, strict=True)
    ]
    listed: Sequence[int] | None = candidates_of([row for row in rows if row.restricts])
    if only_end:
        listed = [EOS]
    elif advancing:
        listed = sorted({token for one in zip(constraints, states, strict=True) for token in _advancing(*one)})
    tokens = range(vocab_size or 0) if listed is None else listed
    allowed = np.ones(len(tokens), dtype=bool)
    for row in rows:
        allowed &= np.array(row.at(tokens)) > FORBIDDEN
    found: list[int] = np.asarray(tokens, np.int64)[allowed].tolist()
    return found


def _advancing(constraint: Constraint, state: State) -> Sequence[int]:
    if ability(constraint.member.predictor, "advancing") is None:
        return ()
    found: Sequence[int] = constraint.member.ask("advancing", [state])[0]
    return found


def _missing(constraints: Sequence[Constraint], states: Sequence[State]) -> int:
    """The amount that is still to be met."""
    missing = 0
    for constraint, state in zip(constraints, states, strict=True):
        if ability(constraint.member.predictor, "progress") is not None:
            ((met, needed),) = constraint.member.ask("progress", [state])
            missing += needed - met
    return missing
