"""Checks of what predictors return, once per batch: a malformed answer becomes one line that names the predictor.

Without these checks, an extra row of `Scores`, a missing state, or a dict in place of `Scores` would cause an error
far from its origin, or give one hypothesis the values of another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from sgdec.arcs import Automaton
from sgdec.arrays import Floats
from sgdec.context import EOS
from sgdec.errors import SgdecError, described


def require_one_each(name: str, method: str, found: Any, expected: int) -> None:
    """Raise SgdecError unless ``method`` of predictor ``name`` returned a list of ``expected`` items."""
    if not hasattr(found, "__len__"):
        raise SgdecError(
            f"predictor {name!r}: {method} returned {described(found)}; expected a list of length {expected}."
        )
    if len(found) != expected:
        raise SgdecError(f"predictor {name!r}: {method} returned {len(found)} items; expected {expected}.")


def bounds_given(name: str, ability: str, found: Sequence[Any]) -> Sequence[float]:
    """Return the bounds that predictor ``name`` gave; SgdecError if one is NaN or not a number."""
    try:
        broken = any(map(math.isnan, found))
    except (TypeError, ValueError, RuntimeError):  # the latter two of tensors
        odd = next(bound for bound in found if not isinstance(bound, Real))
        raise SgdecError(
            f"predictor {name!r}: {ability} returned {described(odd)} for a state; expected a number."
        ) from None
    if broken:
        raise SgdecError(f"predictor {name!r}: {ability} returned NaN; expected a number, inf or -inf.")
    return found


def progress_given(name: str, found: Sequence[Any]) -> Sequence[tuple[int, int]]:
    """Return what ``progress`` of predictor ``name`` gave; SgdecError unless each is ``0 <= met <= needed``."""
    for each in found:
        if not (isinstance(each, tuple) and len(each) == 2 and all(isinstance(n, int) for n in each)):
            raise SgdecError(
                f"predictor {name!r}: progress returned {described(each)} for a state; expected two whole numbers, "
                "how much is met and how much there is to meet."
            )
        if not 0 <= each[0] <= each[1]:
            raise SgdecError(
                f"predictor {name!r}: progress returned {each[0]} of {each[1]}; expected 0 to {each[1]}."
            )
    return found


def require_array(
    name: str, method: str, found: Any, length: int, kind: type[np.integer[Any]] | type[np.floating[Any]]
) -> npt.NDArray[Any]:
    """Return what ``method`` of predictor ``name`` gave, as an array; SgdecError unless it is ``[length]`` numbers.

    ``kind``: `np.integer` for whole numbers, `np.floating` for numbers of any type.
    """
    try:
        array = np.asarray(found)
    except Exception:  # ragged lists, tensors of a GPU
        array = np.empty(0, object)
    right = np.issubdtype(array.dtype, kind) or (kind is np.floating and np.issubdtype(array.dtype, np.integer))
    if array.shape == (length,) and right:
        return array
    wanted = "whole numbers" if kind is np.integer else "numbers"
    given = f"{described(found)} of {array.dtype}" if isinstance(found, np.ndarray) else described(found)
    raise SgdecError(f"predictor {name!r}: {method} returned {given}; expected an array [{length}] of {wanted}.")


def require_automaton(name: str, automaton: Any) -> None:
    """Raise SgdecError unless ``automaton``, which predictor ``name`` gave as a whole, can be followed."""
    if not isinstance(automaton, Automaton):
        raise SgdecError(f"predictor {name!r}: its whole automaton is {described(automaton)}; expected an Automaton.")
    offsets, arcs, states = automaton.offsets, len(automaton.tokens), automaton.states
    for part, kind in (("tokens", np.integer), ("after", np.integer), ("scores", np.floating)):
        require_array(name, f"{part} of its whole automaton", getattr(automaton, part), arcs, kind)
    require_array(name, "offsets of its whole automaton", offsets, len(offsets), np.integer)
    if states < 0 or offsets[0] != 0 or offsets[-1] != arcs or (offsets[1:] < offsets[:-1]).any():
        raise SgdecError(f"predictor {name!r}: the offsets of its whole automaton must ascend from 0 to {arcs}.")
    wrong = (automaton.after >= states) & (automaton.tokens != EOS)
    if wrong.any():
        raise SgdecError(
            f"predictor {name!r}: an arc of its whole automaton leads to state {automaton.after[wrong][0]}, but its "
            f"states are 0 to {states - 1}."
        )
    wrong = ~(automaton.scores < np.inf)
    if wrong.any():
        raise SgdecError(
            f"predictor {name!r}: its whole automaton has the score {automaton.scores[wrong][0]} for token "
            f"{automaton.tokens[wrong][0]}; expected a number, or -inf for a token that cannot follow."
        )


def require_hashable(name: str, keys: Sequence[Any]) -> None:
    """Raise SgdecError unless every key that ``state_key`` of predictor ``name`` returned is hashable."""
    for key in keys:
        try:
            hash(key)
        except TypeError:
            raise SgdecError(
                f"predictor {name!r}: state_key returned {described(key)} for a state; expected a hashable value, "
                "such as a tuple."
            ) from None


def attention_rows(name: str, found: Sequence[Any]) -> list[Floats]:
    """The attention that predictor ``name`` gave, one row ``[source]`` per state; SgdecError if it is not finite."""
    rows = [np.array(row, dtype=np.float64) for row in found]  # copies, so that the batch's matrix can be freed
    if not all(np.isfinite(row).all() for row in rows):
        raise SgdecError(f"predictor {name!r} gave attention that is NaN or infinite; its model is broken.")
    return rows
