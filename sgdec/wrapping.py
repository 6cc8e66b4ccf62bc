"""Wrappers: what a wrapper does not change of its inner predictor, it passes through.

A wrapper is a predictor around another, ``inner``, which it receives in the batch form. Its state is the inner state
(unless it overrides `Wrapper.inner_states`), so a batch outside is one batch inside. Abilities are passed on by name,
and only those in `Wrapper.forwards`: a wrapper lists what stays true of its own scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from sgdec.context import Vocabularies
from sgdec.protocol import ABILITIES, BatchPredictor, Candidates, Scores, Source, State


class Wrapper(BatchPredictor):
    """Answers what its inner predictor answers; subclasses override what they change.

    >>> import numpy as np
    >>> from sgdec.testing import BatchTable
    >>> class Flattened(Wrapper):
    ...     '''The square root of each probability, normalised again.'''
    ...     forwards = ("state_key", "attention")  # bounds are not what they were
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
    """The abilities of the inner predictor that are also the wrapper's, where the inner one has them."""

    def __init__(self, inner: BatchPredictor) -> None:
        """Takes over the traits of ``inner``; a subclass that changes scores sets ``max_score`` after this."""
        self.inner = inner
        self.on_demand = inner.on_demand
        self.max_score = inner.max_score
        self.independent_rows = inner.independent_rows
        self.vocabularies = inner.vocabularies

    @classmethod
    def read_vocabularies(cls, inner: Vocabularies, **options: Any) -> Vocabularies:
        """The vocabularies of an entry whose inner predictor has ``inner``: here the same."""
        return inner

    def __getattr__(self, name: str) -> Any:
        if "inner" in self.__dict__:
            if name == "summary":
                return getattr(self.inner, name)
            if name in self.forwards:
                method = getattr(self.inner, name)
                return lambda states: method(self.inner_states(states))
        raise AttributeError(f"{type(self).__name__} has no {name!r}")

    def inner_states(self, states: Sequence[State]) -> Sequence[State]:
        """The inner predictor's states within these."""
        return states

    def initialize_batch(self, sources: Sequence[Source]) -> list[State]:
        return self.inner.initialize_batch(sources)

    def predict_batch(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        return self.inner.predict_batch(states, candidates)

    def consume_batch(self, states: Sequence[State], tokens: Sequence[int]) -> list[State]:
        return self.inner.consume_batch(states, tokens)
