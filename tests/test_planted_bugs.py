"""The promise: the conformance kit catches a breach of every rule, by the test that is named for it.

Each class below is right but for one planted bug.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest

from sgdec.context import EOS
from sgdec.errors import UsageError
from sgdec.node import Node
from sgdec.protocol import (
    BatchPredictor,
    Candidates,
    Decoder,
    Hypothesis,
    Predictor,
    Result,
    Scores,
    Source,
    SparseRow,
    State,
)
from sgdec.ranking import Ranking
from sgdec.search import SearchSpace
from sgdec.testing import BatchTable, DecoderContract, PassThrough, PredictorContract, Table
from sgdec.testing.toys import Prefix
from tests.oracles import Exhaustive

V = 6
TABLE = np.random.default_rng(5).normal(-1.0, 1.0, (V, V))


class History(Predictor):
    """Right: a score that depends on the whole prefix and on the source, written with a list for a state."""

    def __init__(self) -> None:
        self.history: list[int] = []
        self.source = 0

    def initialize(self, source: Source) -> None:
        self.history = []
        self.source = sum(source.tokens)

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        at = sum((i + 1) * token for i, token in enumerate(self.history)) + self.source
        return Scores.dense(np.sin(np.arange(V) * (1.0 + at)) - 1.0)

    def consume(self, token: int) -> None:
        self.history = [*self.history, token]

    def get_state(self) -> State:
        return self.history

    def set_state(self, state: State) -> None:
        self.history = state


class TooWide(Table):
    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        return Scores.dense(np.zeros(V + 1))


class OutsideTheVocabulary(Table):
    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        return Scores.sparse((3, V), (0.0, 0.0), default=-1.0)


class TwoRows(Table):
    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        return Scores.dense(np.zeros((2, V)))


class NanScore(Table):
    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        return Scores.dense(np.where(np.arange(V) == 4, math.nan, self.table[self._state.last]))


class NanDefault(Table):
    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        return Scores.sparse(tuple(range(V)), (0.0,) * V, default=math.nan)


class InfiniteScore(Table):
    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        return Scores.sparse((4,), (math.inf,), default=0.0)


class TokenListedTwice(Table):
    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        return Scores.sparse((3, 4, 3), (-1.0, -1.0, -1.0), default=0.0)


class PredictionMovesOn(History):
    """The second question is answered as if something had been consumed."""

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        scores = super().predict_next()
        self.source += 1
        return scores


class ConsumeNeedsPrediction(History):
    """What consume does depends on whether anybody asked before."""

    asked = 0

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        self.asked = 1
        return super().predict_next()

    def consume(self, token: int) -> None:
        super().consume(token + self.asked)
        self.asked = 0


class StateIsTheWorkingList(History):
    """get_state gives away the list that consume goes on writing to."""

    def consume(self, token: int) -> None:
        self.history.append(token)


class StateForgetsTheStart(History):
    def get_state(self) -> State:
        return self.history[-2:]


class StateHasAScratchpad(History):
    """A state that later calls write to, without any effect on scores."""

    def initialize(self, source: Source) -> None:
        super().initialize(source)
        self.notes: dict[str, int] = {}

    def get_state(self) -> State:
        return self.history, self.notes

    def set_state(self, state: State) -> None:
        self.history, self.notes = state

    def consume(self, token: int) -> None:
        super().consume(token)
        self.notes["consumed"] = len(self.history)


class SettingAStateShifts(History):
    def set_state(self, state: State) -> None:
        super().set_state(state)
        self.source += 1


class KeepsTheSentenceBefore(History):
    def initialize(self, source: Source) -> None:
        self.source += sum(source.tokens)
        self.history = []


class SentencesShareMemory(History):
    """initialize fills a list that the copies for other sentences hold, too."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[int] = []

    def initialize(self, source: Source) -> None:
        super().initialize(source)
        self.words.clear()
        self.words.extend(source.tokens)

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        self.source = sum(self.words)
        return super().predict_next()


class RowsChangePlaces(BatchTable):
    def predict_batch(
        self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None
    ) -> Scores:
        return super().predict_batch(list(reversed(states)), candidates)


class NormalizesOverTheBatch(BatchTable):
    def predict_batch(
        self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None
    ) -> Scores:
        values = super().predict_batch(states).values
        return Scores.dense(values - values.max())  # type: ignore[union-attr,operator]


class OneRowForAll(BatchTable):
    def predict_batch(
        self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None
    ) -> Scores:
        return super().predict_batch(states[:1])


class RemembersTheLastBatch(BatchTable):
    """What was consumed last counts, whichever states are asked about."""

    latest = 0

    def consume_batch(self, states: Sequence[State], tokens: Sequence[int]) -> list[State]:
        self.latest = tokens[-1]
        return super().consume_batch(states, tokens)

    def predict_batch(
        self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None
    ) -> Scores:
        return Scores.dense(self._simple.table[[prefix.last for prefix, _ in states]] + self.latest)


class OneForAllSentences(BatchTable):
    """Encodes only the first sentence of a batch."""

    def initialize_batch(self, sources: Sequence[Source]) -> list[State]:
        return [(Prefix(sum(sources[0].tokens) % V, math.inf), 1) for _ in sources]


class NeverTheSame(Table):
    numbers = count()

    def __init__(self) -> None:
        super().__init__(TABLE + next(self.numbers))


class BestThreeOnly(Table):
    """Lists its best tokens and calls the rest forbidden; asked about candidates, it scores any."""

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        row = self.table[self._state.last]
        chosen = np.argsort(-row)[:3] if candidates is None else np.array(candidates, dtype=int)
        return Scores.sparse(chosen, row[chosen])  # type: ignore[arg-type]


class NormalizesOverCandidates(Table):
    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        row = self.table[self._state.last]
        wanted = list(range(V)) if candidates is None else list(candidates)
        return Scores.sparse(wanted, row[wanted] - np.log(np.exp(row[wanted]).sum()))  # type: ignore[arg-type]


class KeepsCandidates(Table):
    """Answers about all tokens as it answered about candidates."""

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        if candidates is not None:
            self.kept = set(candidates)
        row = self.table[self._state.last]
        kept = getattr(self, "kept", range(V))
        return Scores.dense(row if candidates is not None else np.where(np.isin(range(V), list(kept)), row, -9.0))


class FirstCandidatesForAll(BatchTable):
    def predict_batch(
        self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None
    ) -> Scores:
        values = super().predict_batch(states).values
        if candidates is None:
            return Scores.dense(values)  # type: ignore[arg-type]
        wanted = [c for c in candidates if c is not None][0]
        return Scores(rows=[SparseRow(wanted, row[list(wanted)]) for row in values])  # type: ignore[union-attr,arg-type]


class BestTooLow(Table):
    def best_remaining(self, states: Sequence[Prefix]) -> list[float]:
        return [bound - 0.1 for bound in super().best_remaining(states)]


class WorstTooHigh(Table):
    def worst_remaining(self, states: Sequence[Prefix]) -> list[float]:
        return [bound + 0.1 for bound in super().worst_remaining(states)]


class CallsAWayADeadEnd(Table):
    def best_remaining(self, states: Sequence[Prefix]) -> list[float]:
        return [-math.inf if state.left < 2 else 99.0 for state in states]


class CoarseKey(Table):
    def state_key(self, states: Sequence[Prefix]) -> list[Hashable]:
        return [state.last // 2 for state in states]


class AttentionNotNormalized(BatchTable):
    def attention(self, states: Sequence[State]) -> list[Any]:
        return [row / 2 for row in super().attention(states)]


class AttentionToMore(BatchTable):
    def attention(self, states: Sequence[State]) -> list[Any]:
        return [np.append(row, 0.0) for row in super().attention(states)]


class BoundOfTheBatch(Table):
    """As a batch predictor, one bound for all states of a question."""

    def best_remaining(self, states: Sequence[Prefix]) -> list[float]:
        return [max(super().best_remaining(states))] * len(states)


class KeyConsumes(History):
    def state_key(self, states: Sequence[State]) -> list[Hashable]:
        keys: list[Hashable] = [tuple(state) for state in states]
        for state in states:
            state.append(3)
        return keys


class _BoundOfTheBatch(PassThrough.__mro__[1]):  # type: ignore[misc]
    pass


ONE = BoundOfTheBatch(TABLE)
PREDICTOR_BUGS: list[tuple[Callable[[], Predictor | BatchPredictor], str]] = [
    (lambda: TooWide(TABLE), "test_an_answer_has_one_row_a_state_and_fits_the_vocabulary"),
    (lambda: OutsideTheVocabulary(TABLE), "test_an_answer_has_one_row_a_state_and_fits_the_vocabulary"),
]
