"""Predictors that are folded into bounds: the answers of their relaxations, checked whole arrays at once.

A relaxed state that does not exist would be taken for a state of another pair, and give a wrong distance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sgdec.arrays import Flags, Floats, Ints
from sgdec.errors import SgdecError, described
from sgdec.protocol import FORBIDDEN, State
from sgdec.relaxations import Relaxation
from sgdec.search.answers import require_array, require_one_each
from sgdec.search.blame import blamed

IMPOSSIBLE = -1
"""In place of the relaxed state after a token that the relaxation forbids."""


class Relaxed(NamedTuple):
    """One predictor that is folded in, with one of its relaxations.

    Methods raise `SgdecError` for a malformed answer, and `PredictorFault` for any other exception of the relaxation.
    """

    weight: float
    relaxation: Relaxation
    name: str = ""
    """That of the predictor, for errors."""
    predictor: object = None
    """For errors too."""

    def of(self, states: Sequence[State]) -> Sequence[int]:
        """The relaxed state of each of the predictor's states."""
        size = self.relaxation.size
        try:
            found = self.relaxation.of(states)
            fits = len(found) == len(states) and (not found or (min(found) >= 0 and max(found) < size))
        except Exception as error:
            raise blamed(self.name, self.predictor, error) from error
        if not fits:
            require_one_each(self.name, "of of a relaxation", found, len(states))
            raise self._no_state("of", next(each for each in found if not 0 <= each < size))
        return found

    def after(self, states: Ints, tokens: Ints, possible: Flags) -> Ints:
        """``[n]``: the relaxed states after these tokens; `IMPOSSIBLE` after those that the relaxation forbids.

        ``possible [n]``: the tokens whose states matter. Others can have `IMPOSSIBLE` too.
        """
        return self._existing(self.answer("after", states, tokens, np.integer), states, tokens, possible)

    def arcs(self, states: Ints, tokens: Ints, possible: Flags) -> tuple[Floats, Ints]:
        """``[n]`` each: the most that the predictor can add with these tokens, and `after`."""
        method = "highest" if self.weight > 0 else "lowest"
        try:
            scores, after = self.relaxation.arcs(states, tokens, lowest=self.weight < 0)
        except Exception as error:
            raise blamed(self.name, self.predictor, error) from error
        scores = require_array(self.name, f"{method} of a relaxation", scores, len(tokens), np.floating)
        after = require_array(self.name, "after of a relaxation", after, len(tokens), np.integer)
        if np.isnan(scores).any():  # otherwise the product would take it for a token that cannot follow
            raise SgdecError(
                f"predictor {self.name!r}: its relaxation has NaN for token {tokens[np.isnan(scores)][0]}; expected "
                "a bound on its scores, or an infinite number. --bounds sum does without relaxations."
            )
        return self.weight * scores, self._existing(after, states, tokens, possible)

    def _existing(self, after: Ints, states: Ints, tokens: Ints, possible: Flags) -> Ints:
        wrong = (after < 0) | (after >= self.relaxation.size)
        if not wrong.any():
            return after
        (places,) = (wrong & possible).nonzero()
        if len(places):
            allowed = self.answer("highest", states[places], tokens[places]) != FORBIDDEN
            if allowed.any():
                place = places[allowed][0]
                raise self._no_state("after", after[place], f" after token {tokens[place]}")
        return np.where(wrong, IMPOSSIBLE, after)

    def answer(
        self,
        method: str,
        states: Ints,
        tokens: Ints,
        kind: type[np.integer[Any]] | type[np.floating[Any]] = np.floating,
    ) -> npt.NDArray[Any]:
        """``[n]``: what a method of the relaxation says about these states and tokens; NaN is not refused."""
        try:
            found = getattr(self.relaxation, method)(states, tokens)
        except Exception as error:
            raise blamed(self.name, self.predictor, error) from error
        return require_array(self.name, f"{method} of a relaxation", found, len(tokens), kind)

    def _no_state(self, method: str, state: object, where: str = "") -> SgdecError:
        size = self.relaxation.size
        return SgdecError(
            f"predictor {self.name!r}: {method} of a relaxation returned state {state}{where}, but it has the states "
            f"0 to {size - 1} (size {size}). --bounds sum does without relaxations."
        )


def require_relaxation(name: str, found: object) -> None:
    """Raise SgdecError unless ``found``, which predictor ``name`` offers as a relaxation, is one and has states."""
    if not isinstance(found, Relaxation):
        raise SgdecError(
            f"predictor {name!r}: relaxations returned a list with {described(found)}; expected Relaxation objects."
        )
    size = getattr(found, "size", None)
    if not isinstance(size, (int, np.integer)) or size < 1:
        raise SgdecError(
            f"predictor {name!r}: a relaxation has size {size!r}; expected the number of its states, at least 1."
        )
