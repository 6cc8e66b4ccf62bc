"""What wrappers have in common: all that a wrapper does not change, it passes through.

A wrapper is a predictor around another, ``inner``, which it receives in the batch form. Its state is the inner state
(unless it overrides `inner_states`), so a batch outside is one batch inside. Abilities are passed on by name, and
only those in `forwards`: a wrapper lists what stays true of its own scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from sgdec import BatchPredictor, Scores, Source
from sgdec.context import Vocabularies
from sgdec.protocol import ABILITIES, Candidates, State


class Wrapper(BatchPredictor):
    """Says what its inner predictor says; subclasses override the verbs that they change."""

    forwards: ClassVar[tuple[str, ...]] = ABILITIES
    """The abilities of the inner predictor that are also the wrapper's, where the inner one has them."""

    def __init__(self, inner: BatchPredictor) -> None:
        self.inner = inner
        self.on_demand = inner.on_demand
        self.max_score = inner.max_score
        self.independent_rows = inner.independent_rows
        self.vocabularies = inner.vocabularies

    @classmethod
    def read_vocabularies(cls, inner: Vocabularies, **options: Any) -> Vocabularies:
        """What an entry brings to the run, if what is wrapped brings ``inner``: here the same."""
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
