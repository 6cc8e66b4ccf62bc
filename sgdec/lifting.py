"""Conversion between the two forms of a predictor, so that a plugin writes only one."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, cast, final

from sgdec.derived import Derived, DerivedRelaxation
from sgdec.errors import described
from sgdec.plugins.surface import require_sound, require_sound_traits
from sgdec.protocol import ABILITIES, BatchPredictor, Candidates, Predictor, Scores, Source, State, ability
from sgdec.relaxations import Relax, Relaxation
from sgdec.search.blame import WrongAnswer


class _Prefix(NamedTuple):
    """A lifted state: the predictor's copy for this sentence, and the state of that copy."""

    predictor: Predictor
    state: State


def _inner_states(states: Sequence[_Prefix]) -> list[State]:
    return [state for _, state in states]


@final
class Lifted(BatchPredictor):
    """A simple-form predictor in the batch form. It has one shallow copy per sentence and computes row after row."""

    independent_rows = True

    def __init__(self, predictor: Predictor) -> None:
        self.predictor = predictor
        self.on_demand = predictor.on_demand
        self.max_score = predictor.max_score
        self.vocabularies = predictor.vocabularies
        self._derived = Derived(lambda inner: DerivedRelaxation(inner, _inner_states))

    def __getattr__(self, name: str) -> Any:
        if name in ABILITIES and ability(self.predictor, name) is not None:
            return partial(self._ability, name)
        if name == "relaxations" and ability(self.predictor, name) is not None:
            return self._relaxations
        if name == "length_limit" and ability(self.predictor, name) is not None:
            return ability(self.predictor, name)
        raise AttributeError(f"a lifted predictor has no {name!r}")  # `copy` may look for attributes before __init__

    def initialize_batch(self, sources: Sequence[Source]) -> list[State]:
        states = []
        for source in sources:
            predictor = copy.copy(self.predictor)
            predictor.initialize(source)
            states.append(_Prefix(predictor, predictor.get_state()))
        return states

    def predict_batch(
        self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None
    ) -> Scores:
        parts = []
        for i, (predictor, state) in enumerate(states):
            predictor.set_state(state)
            found = predictor.predict_next(None if candidates is None else candidates[i])
            parts.append(_one_row(found, "predict_next"))
        return parts[0] if len(parts) == 1 else Scores.stack(parts)

    def consume_batch(self, states: Sequence[State], tokens: Sequence[int]) -> list[State]:
        after = []
        for (predictor, state), token in zip(states, tokens, strict=True):
            predictor.set_state(state)
            predictor.consume(token)
            after.append(_Prefix(predictor, predictor.get_state()))
        return after

    def _ability(self, name: str, states: Sequence[State]) -> list[Any]:
        return [getattr(predictor, name)([state])[0] for predictor, state in states]

    def _relaxations(self, prefix: _Prefix) -> tuple[Relaxation, ...]:
        return self._derived.all(cast(Relax, prefix.predictor).relaxations(prefix.state))


def lift(predictor: Predictor | BatchPredictor) -> BatchPredictor:
    """The batch form of any predictor.

    Raises SgdecError if its class or its traits break the protocol (`sgdec.plugins.surface`).
    """
    require_sound(type(predictor))
    require_sound_traits(predictor)
    return Lifted(predictor) if isinstance(predictor, Predictor) else predictor


def _one_row(found: object, verb: str) -> Scores:
    """Return ``found``; raise WrongAnswer, with the expected value, unless it is `Scores` of one row."""
    if not isinstance(found, Scores):
        raise WrongAnswer(
            f"{verb} returned {described(found)}; expected Scores: Scores.dense(array) of all V tokens, "
            "Scores.sparse(tokens, scores) if only these can follow, or Scores.constant(score)."
        )
    if len(found) != 1:
        raise WrongAnswer(
            f"{verb} returned {len(found)} rows; expected one, such as Scores.dense(array) with an array [V]."
        )
    return found


def _one_state(found: Any, verb: str) -> State:
    """The state in a list of one; raise WrongAnswer, with the expected value, for anything else."""
    if not hasattr(found, "__len__") or len(found) != 1:
        returned = f"{len(found)} items" if hasattr(found, "__len__") else described(found)
        raise WrongAnswer(f"{verb} returned {returned} for one prefix; expected a list of one state.")
    return found[0]


@final
class Lowered(Predictor):
    """A batch-form predictor in the simple form: each call is a batch of one."""

    def __init__(self, predictor: BatchPredictor) -> None:
        self.predictor = predictor
        self._state: State = None

    def initialize(self, source: Source) -> None:
        self._state = _one_state(self.predictor.initialize_batch([source]), "initialize_batch")

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        found = self.predictor.predict_batch([self._state], None if candidates is None else [candidates])
        return _one_row(found, "predict_batch")

    def consume(self, token: int) -> None:
        self._state = _one_state(self.predictor.consume_batch([self._state], [token]), "consume_batch")

    def get_state(self) -> State:
        return self._state

    def set_state(self, state: State) -> None:
        self._state = state
