"""The claims of a predictor, compared with its scores at one prefix (`sgdec.search.checking.constellation`).

Differences of up to `SLACK` count as rounding: some predictors compute with float32 numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from sgdec.arcs import Automaton
from sgdec.arrays import Flags, Floats, Ints
from sgdec.context import EOS
from sgdec.protocol import FORBIDDEN, BatchPredictor, State
from sgdec.search.bounds.relaxed import Relaxed

SLACK = 1e-5
"""Absolute and relative."""
Place = tuple[int, float]
"""A state of an automaton, and its residual."""


class Refuted(Exception):
    """A claim does not hold. The message lacks the predictor and the prefix."""


class Here(NamedTuple):
    """A predictor at a prefix that can be continued with n tokens."""

    predictor: BatchPredictor
    state: State
    tokens: Ints
    """``[n]``, ascending"""
    scores: Floats
    """``[n]``: finite."""
    after: Callable[[], Sequence[State]]
    """The states after these tokens, ``</s>`` left out."""
    scores_of: Callable[[Ints], Floats]
    """The predictor's scores of any tokens."""

    @property
    def goes_on(self) -> Flags:
        """``[n]``: the tokens other than ``</s>``."""
        return np.not_equal(self.tokens, EOS)


def check_max_score(here: Here) -> None:
    highest = here.predictor.max_score
    if highest < math.inf and (place := _first(_above(here.scores, highest))) is not None:
        raise Refuted(
            f"max_score claims at most {highest:g}, but token {here.tokens[place]} scores {here.scores[place]:g}. "
            "Give a higher max_score; decoders without proofs, such as beam, ignore it."
        )


def check_relaxation(here: Here, relaxed: Relaxed, level: int) -> None:
    """Both obligations (`sgdec.relaxations`), for one of the predictor's relaxations."""
    (own,) = relaxed.of([here.state])
    which, way_out = f"relaxation {level} in state {own}", "Correct the relaxation; --bounds sum does without it."
    states = np.full(len(here.tokens), own, np.int64)
    for method, sign in (("highest", 1.0), ("lowest", -1.0)):
        claimed = relaxed.answer(method, states, here.tokens)
        place = _first(_above(sign * here.scores, sign * claimed))
        if place is not None:
            raise Refuted(
                f"{method} of {which} claims {'at most' if sign > 0 else 'at least'} {claimed[place]:g} for token "
                f"{here.tokens[place]}, but its score is {here.scores[place]:g}. {way_out}"
            )
    goes_on = here.goes_on
    after = relaxed.after(states[goes_on], here.tokens[goes_on], goes_on[goes_on])
    if relaxed.relaxation.size > 1 and len(after):
        found = relaxed.of(here.after())
        place = _first(after != np.array(found))
        if place is not None:
            raise Refuted(
                f"after of {which} claims state {after[place]} after token {here.tokens[goes_on][place]}, but the "
                f"predictor's state after it is relaxed to {found[place]} by of. {way_out}"
            )
    if relaxed.weight:
        _check_arcs(here, relaxed, states, which, way_out)


def _check_arcs(here: Here, relaxed: Relaxed, states: Ints, which: str, way_out: str) -> None:
    """The two methods in one, for the sign of the weight."""
    method, goes_on = "highest" if relaxed.weight > 0 else "lowest", here.goes_on
    most, after = relaxed.arcs(states, here.tokens, goes_on)
    differ = _differ(relaxed.weight * relaxed.answer(method, states, here.tokens), most)
    differ |= goes_on & (after != relaxed.after(states, here.tokens, goes_on))
    place = _first(differ)
    if place is not None:
        raise Refuted(
            f"arcs of {which} claims something else for token {here.tokens[place]} than {method} and after. {way_out}"
        )


def check_whole(here: Here, automaton: Automaton, first: int) -> None:
    """The arcs of the predictor's state in its whole automaton, whose state 0 has the number ``first``."""
    way_out = "Correct whole; --bounds sum does without it."
    if not first <= here.state < first + automaton.states:
        raise Refuted(
            f"whole claims the states {first} to {first + automaton.states - 1}, but the state is {here.state}. "
            f"{way_out}"
        )
    arcs = slice(*automaton.offsets[[here.state - first, here.state - first + 1]])
    listed, after = automaton.tokens[arcs], automaton.after[arcs]
    if (np.diff(listed) <= 0).any():
        raise Refuted(f"whole has arcs whose tokens do not ascend: {' '.join(map(str, listed))}. {way_out}")
    tokens = np.union1d(listed, here.tokens)
    claimed, found = np.full(len(tokens), FORBIDDEN), here.scores_of(tokens)
    claimed[tokens.searchsorted(listed)] = automaton.scores[arcs]
    place = _first(_differ(claimed, found))
    if place is not None:
        raise Refuted(
            f"whole claims score {claimed[place]:g} for token {tokens[place]}, but its score is {found[place]:g}. "
            f"{way_out}"
        )
    goes_on = here.tokens[here.goes_on]
    targets = after[listed.searchsorted(goes_on)].tolist()
    for token, target, state in zip(goes_on.tolist(), targets, here.after(), strict=True):
        number = state - first if state >= 0 else -1
        if max(target, -1) != number:
            raise Refuted(
                f"whole claims state {target} after token {token}, but the predictor's state after it has the number "
                f"{number} there. {way_out}"
            )


def check_subset(
    here: Here, automaton: Automaton, places: Sequence[Place], find: Callable[[State], tuple[Any, Sequence[Place]]]
) -> None:
    """The arcs of the automaton's states that the predictor's state stands for, ``places``.

    ``find`` returns the automaton and the places of another of the predictor's states.
    """
    way_out = "Correct subset; --bounds sum does without it."
    ways: dict[int, dict[int, list[float]]] = {}
    for state, residual in places:
        if not 0 <= state < automaton.states:
            raise Refuted(
                f"subset has state {state}, but its automaton has the states 0 to {automaton.states - 1}. {way_out}"
            )
        for arc in range(*automaton.offsets[[state, state + 1]]):
            token, score = int(automaton.tokens[arc]), residual + float(automaton.scores[arc])
            target = -1 if token == EOS else int(automaton.after[arc])
            if score > FORBIDDEN and (target >= 0 or token == EOS):
                ways.setdefault(token, {}).setdefault(target, []).append(score)
    plus = np.logaddexp.reduce if automaton.sums else np.maximum.reduce
    tokens = np.union1d(np.array(sorted(ways), np.int64), here.tokens)
    claimed = [float(plus([way for to in ways.get(t, {}).values() for way in to] or [FORBIDDEN])) for t in tokens]
    scores = here.scores_of(tokens)
    states = dict(zip(here.tokens[here.goes_on].tolist(), here.after(), strict=True))
    for token, total, score in zip(tokens.tolist(), claimed, scores.tolist(), strict=True):
        if (token == EOS or min(total, score) == FORBIDDEN) and _differ(np.array([total]), np.array([score])).any():
            raise Refuted(
                f"the arcs of subset claim {total:g} for token {token}, but its score is {score:g}. {way_out}"
            )
        if token not in states:
            continue
        there, found = find(states[token])
        residuals = dict(found)
        if there is not automaton:
            raise Refuted(f"subset gives another automaton after token {token}. {way_out}")
        reached = {target: float(plus(paths)) for target, paths in ways.get(token, {}).items()}
        for target in sorted({*reached, *residuals}):
            own, other = reached.get(target, FORBIDDEN), residuals.get(target, FORBIDDEN) + score
            if _differ(np.array([own]), np.array([other])).any():
                raise Refuted(
                    f"the arcs of subset claim {own:g} for token {token} and state {target} after it, but the score "
                    f"and the residual of this state add up to {other:g}. {way_out}"
                )


def exceeds(score: float, limit: float) -> bool:
    """Whether a score is above a limit by more than rounding."""
    return bool(_above(np.array([score]), limit)[0])


def _above(scores: Floats, limits: Floats | float) -> Flags:
    """``[n]``: the finite scores that are above their limits, or whose limits are NaN."""
    above: Flags = ~(scores <= limits + SLACK * (1.0 + np.abs(scores)))
    return above


def _differ(one: Floats, other: Floats) -> Flags:
    return ~np.isclose(one, other, rtol=SLACK, atol=SLACK)


def _first(wrong: Flags) -> int | None:
    """The first place that is marked."""
    return int(wrong.argmax()) if wrong.any() else None
