"""A predictor whose attention is given, and two vocabularies of words for it."""

from __future__ import annotations

from collections.abc import Sequence

from sgdec.protocol import Candidates, Predictor, Scores, Source, State
from sgdec.text.words import SPECIAL, WordVocabulary

SOURCE = WordVocabulary([*SPECIAL, "met"])
TARGET = WordVocabulary([*SPECIAL, "traf", "M_UNK_i"])


class Attentive(Predictor):
    """After n tokens it attends to the source word that is given for n."""

    def __init__(self, places: Sequence[int], strength: float = 1.0) -> None:
        self._places = places
        self._strength = strength
        self._n = 0

    def initialize(self, source: Source) -> None:
        self._length = len(source.tokens)

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        return Scores.sparse((), (), default=0.0)

    def consume(self, token: int) -> None:
        self._n += 1

    def get_state(self) -> int:
        return self._n

    def set_state(self, state: int) -> None:
        self._n = state

    def attention(self, states: Sequence[State]) -> list[list[float]]:
        rest = (1 - self._strength) / (self._length - 1)
        return [[self._strength if i == self._places[n] else rest for i in range(self._length)] for n in states]
