"""Wrappers: predictors that change some behaviour of an inner predictor and pass all other calls through.

A wrapper receives its ``inner`` predictor in the batch form. Its state is the inner state, unless it overrides
`Wrapper.inner_states`, so one call of the wrapper is one call of the inner predictor. It passes only those abilities
through that `Wrapper.forwards` lists: they must be correct for the wrapper's own scores. `summary`, `release` and
`length_limit` are always passed through.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from sgdec.context import Vocabularies
from sgdec.derived import Derived, DerivedRelaxation
from sgdec.protocol import ABILITIES, BatchPredictor, Candidates, Scores, Source, State, ability
from sgdec.relaxations import Relaxation

FORWARDED = (*ABILITIES, "relaxations", "whole")
"""The abilities that a wrapper can pass through."""


class Wrapper(BatchPredictor):
    """Returns what its inner predictor returns; subclasses override the methods that they change.

    >>> import numpy as np
    >>> from sgdec.testing import BatchTable
    >>> class Flattened(Wrapper):
    ...     '''The square root of each probability, normalised again.'''
    ...     forwards = ("state_key", "attention")  # the inner bounds are no longer valid
    ...     def predict_batch(self, states, candidates=None):
    ...         scores = self.inner.predict_batch(states).values / 2  # [rows, V]
    ...         return Scores.dense(scores - np.log(np.exp(scores).sum(axis=1, keepdims=True)))
    >>> inner = BatchTable(np.log([[0.64, 0.32, 0.04]] * 3))
    >>> flattened = Flattened(inner)
    >>> states = flattened.initialize_batch([Source(1, (7,))])
    >>> np.exp(flattened.predict_batch(states).values).round(2).tolist()
    [[0.51, 0.36, 0.13]]
    >>> flattened.state_key(states) == inner.state_key(states), hasattr(flattened, "best_remaining")
    (True, False)
    """

    forwards: ClassVar[tuple[str, ...]] = ABILITIES
    """The abilities that the wrapper has if the inner predictor has them: `FORWARDED`.

    They are passed through unless the subclass defines them itself, for example to scale the inner bounds. By default
    those over lists of states are; `relaxations` and `whole` must be listed, `whole` only if the wrapper's states are
    the inner ones.
    """

    def __init__(self, inner: BatchPredictor) -> None:
        """Copy the traits of ``inner``. A subclass that changes scores must set ``max_score`` afterwards."""
        self.inner = inner
        self.on_demand = inner.on_demand
        self.max_score = inner.max_score
        self.independent_rows = inner.independent_rows
        self.vocabularies = inner.vocabularies
        self._derived = Derived(self.relaxed)
        for name in (*self.forwards, "length_limit"):
            if hasattr(type(self), name) and ability(inner, name) is None:
                setattr(self, name, None)  # hides the subclass's own method, which has nothing to start from

    @classmethod
    def read_vocabularies(cls, inner: Vocabularies, **options: Any) -> Vocabularies:
        """The vocabularies of the wrapper, given those of the inner predictor: here the same."""
        return inner

    def __getattr__(self, name: str) -> Any:
        if "inner" in self.__dict__:
            if name in ("summary", "length_limit"):
                return getattr(self.inner, name)
            method = ability(self.inner, name) if name in (*self.forwards, "release") else None
            if method is not None and name == "relaxations":
                return lambda state: self._derived.all(method(self.inner_states([state])[0]))
            if method is not None and name == "whole":
                return method
            if method is not None:
                return lambda states: method(self.inner_states(states))
        if name == "inner":
            raise AttributeError(f"{type(self).__name__}.__init__ has to call super().__init__(inner)")
        raise AttributeError(f"{type(self).__name__} has no {name!r}")

    def inner_states(self, states: Sequence[State]) -> Sequence[State]:
        """The inner predictor's states that these states contain."""
        return states

    def relaxed(self, inner: Relaxation) -> Relaxation:
        """The wrapper's relaxation, made from one of the inner predictor's; called once for each."""
        return DerivedRelaxation(inner, self.inner_states)

    def initialize_batch(self, sources: Sequence[Source]) -> list[State]:
        return self.inner.initialize_batch(sources)

    def predict_batch(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        return self.inner.predict_batch(states, candidates)

    def consume_batch(self, states: Sequence[State], tokens: Sequence[int]) -> list[State]:
        return self.inner.consume_batch(states, tokens)
