"""One predictor of a constellation: its name, its weight, and its methods, whose errors name the predictor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sgdec.arrays import host_row_bytes
from sgdec.protocol import BatchPredictor, Candidates, Scores, Source, State
from sgdec.search.answers import require_one_each, require_scores
from sgdec.search.blame import blaming
from sgdec.search.memory import require_room


@dataclass(frozen=True)
class Member:
    """One entry of ``--predictors``: its name, its predictor and its weight."""

    name: str
    predictor: BatchPredictor
    weight: float | None = 1.0
    given: bool = False
    """Whether it says which output is wanted, and not what outputs can be: others are renormalised without it."""
    _row_bytes: dict[bool, int] = field(default_factory=dict, init=False, repr=False, compare=False)
    """The memory of one row of its dense answers, without and with candidates; empty before the first answer."""

    # The predictor's methods. Exceptions that they raise name the predictor, and so does the SgdecError for an
    # answer of the wrong type or length.

    def initialize(self, sources: Sequence[Source]) -> list[State]:
        with blaming(self.name, self.predictor):
            found = self.predictor.initialize_batch(sources)
        require_one_each(self.name, "initialize_batch", found, len(sources))
        return found

    def predict(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        """Raises SgdecError, without a call, if the answer is known to need more memory than there is."""
        asked = candidates is not None
        if asked in self._row_bytes:
            require_room(len(states), self._row_bytes[asked], f"predictor {self.name!r}: the scores of", "prefixes")
        with blaming(self.name, self.predictor):
            found = self.predictor.predict_batch(states, candidates)
        require_scores(self.name, found, len(states))
        if asked not in self._row_bytes and found.values is not None:
            self._row_bytes[asked] = host_row_bytes(found.values)
        return found

    def consume(self, states: Sequence[State], tokens: Sequence[int]) -> list[State]:
        with blaming(self.name, self.predictor):
            found = self.predictor.consume_batch(states, tokens)
        require_one_each(self.name, "consume_batch", found, len(states))
        return found

    def ask(self, ability: str, states: Sequence[State]) -> Sequence[Any]:
        """Call an optional method that the predictor has; return its answers, one per state."""
        with blaming(self.name, self.predictor):
            found: Sequence[Any] = getattr(self.predictor, ability)(states)
        require_one_each(self.name, ability, found, len(states))
        return found

    @property
    def releases(self) -> bool:
        """Whether the predictor keeps something for each sentence (`sgdec.protocol.Release`)."""
        return hasattr(self.predictor, "release")

    def release(self, roots: Sequence[State]) -> None:
        with blaming(self.name, self.predictor):
            self.predictor.release(roots)  # type: ignore[attr-defined]
