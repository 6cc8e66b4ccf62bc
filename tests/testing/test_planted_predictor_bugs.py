"""The promise: the conformance kit catches a breach of every rule, by the test that is named for it.

Each class below is right but for one planted bug.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from itertools import count
from typing import Any

import numpy as np
import pytest
import torch

from sgdec.protocol import Candidates, Predictor, Scores, Source, SparseRow, State
from sgdec.testing import BatchTable, Bonus, Lattice, OnDemandTable, PredictorContract, Table
from sgdec.testing.relaxation_checks import RelaxationChecks
from sgdec.testing.release_checks import ReleaseChecks
from sgdec.testing.tiny_spaces import LATTICE
from sgdec.testing.toys import Prefix
from tests.helpers.planted_bugs import Make, Planted, V, contract, promises

TABLE = np.random.default_rng(5).normal(-1.0, 1.0, (V, V))
PLANTED = Planted(TABLE)
breaks = PLANTED.breaks


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


@breaks("test_state_labels_are_texts_or_none")
class NamesStatesByNumbers(Table):
    def state_label(self, states: Sequence[State]) -> list[Any]:
        return list(range(len(states)))


class Counts(Table):
    """Progress that breaks no promise: there is nothing to meet."""

    met, needed, tokens = 0, 0, ()

    def progress(self, states: Sequence[State]) -> list[tuple[int, int]]:
        return [(self.met, self.needed)] * len(states)

    def advancing(self, states: Sequence[State]) -> list[Any]:
        return [self.tokens] * len(states)


@breaks("test_progress_is_complete_where_an_output_can_end")
class EndsTooEarly(Counts):
    needed = 1


@breaks("test_advancing_tokens_make_progress")
class AdvancesNowhere(Counts):
    tokens = (3,)  # type: ignore[assignment]


@breaks("test_its_class_keeps_to_the_protocol")
class MisspellsAnAbility(Table):
    def atention(self, states: Sequence[State]) -> list[Any]:
        return []


@breaks("test_an_answer_has_one_row_a_state_and_fits_the_vocabulary")
class TooWide(Table):
    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        return Scores.dense(np.zeros(V + 1))


@breaks("test_an_answer_has_one_row_a_state_and_fits_the_vocabulary")
class OutsideTheVocabulary(Table):
    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        return Scores.sparse((3, V), (0.0, 0.0), default=-1.0)


@breaks("test_an_answer_has_one_row_a_state_and_fits_the_vocabulary")
class TwoRows(Table):
    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        return Scores.dense(np.zeros((2, V)))


@breaks("test_an_answer_has_one_row_a_state_and_fits_the_vocabulary")
class KeepsGradients(Table):
    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        return Scores.dense(torch.tensor(self.table[self._state.last], requires_grad=True))


@breaks("test_no_score_is_nan")
class NanScore(Table):
    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        return Scores.dense(np.where(np.arange(V) == 4, math.nan, self.table[self._state.last]))


@breaks("test_no_score_is_nan")
class NanDefault(Table):
    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        return Scores.sparse(tuple(range(V)), (0.0,) * V, default=math.nan)


@breaks("test_no_score_is_nan")
class InfiniteScore(Table):
    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        return Scores.sparse((4,), (math.inf,), default=0.0)


@breaks("test_a_sparse_row_lists_each_token_once")
class TokenListedTwice(Table):
    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        return Scores.sparse((3, 4, 3), (-1.0, -1.0, -1.0), default=0.0)


@breaks("test_a_sparse_row_lists_each_token_once")
class TokensAsText(Table):
    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        return Scores.sparse(("3", "4"), (0.0, 0.0), default=-1.0)  # type: ignore[arg-type]


@breaks("test_predict_next_may_be_called_never_once_or_often")
class PredictionMovesOn(History):
    """The second question is answered as if something had been consumed."""

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        scores = super().predict_next()
        self.source += 1
        return scores


@breaks("test_predict_next_may_be_called_never_once_or_often")
class ConsumeNeedsPrediction(History):
    """What consume does depends on whether anybody asked before."""

    asked = 0

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        self.asked = 1
        return super().predict_next()

    def consume(self, token: int) -> None:
        super().consume(token + self.asked)
        self.asked = 0


@breaks("test_restoring_a_state_restores_its_scores")
class StateIsTheWorkingList(History):
    """get_state gives away the list that consume goes on writing to."""

    def consume(self, token: int) -> None:
        self.history.append(token)


@breaks("test_restoring_a_state_restores_its_scores")
class StateForgetsTheStart(History):
    def get_state(self) -> State:
        return self.history[-1:]


@breaks("test_a_state_is_a_value_that_later_calls_leave_alone")
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


@breaks("test_setting_the_state_just_got_changes_nothing")
class SettingAStateShifts(History):
    def set_state(self, state: State) -> None:
        super().set_state(state)
        self.source += 1


@breaks("test_initialize_starts_a_sentence_afresh")
class KeepsTheSentenceBefore(History):
    def initialize(self, source: Source) -> None:
        self.source += sum(source.tokens)
        self.history = []


@breaks("test_sentences_in_flight_do_not_disturb_each_other")
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


@breaks("test_a_batch_says_what_single_prefixes_say")
class RowsChangePlaces(BatchTable):
    def predict_batch(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        return super().predict_batch(list(reversed(states)), candidates)


@breaks("test_a_batch_says_what_single_prefixes_say")
class NormalizesOverTheBatch(BatchTable):
    def predict_batch(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        values = super().predict_batch(states).values
        return Scores.dense(values - values.max())  # type: ignore[union-attr,operator]


@breaks("test_a_batch_says_what_single_prefixes_say")
class OneRowForAll(BatchTable):
    def predict_batch(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        return super().predict_batch(states[:1])


@breaks("test_inside_a_wrapper_it_says_the_same")
class RemembersTheLastBatch(BatchTable):
    """What was consumed last counts, whichever states are asked about."""

    latest = 0

    def consume_batch(self, states: Sequence[State], tokens: Sequence[int]) -> list[State]:
        self.latest = tokens[-1]
        return super().consume_batch(states, tokens)

    def predict_batch(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        return Scores.dense(self._simple.table[[prefix.last for prefix, _ in states]] + self.latest)


@breaks("test_a_batch_says_what_single_prefixes_say")
class OneForAllSentences(BatchTable):
    """Encodes only the first sentence of a batch."""

    def initialize_batch(self, sources: Sequence[Source]) -> list[State]:
        return [(Prefix(sum(sources[0].tokens) % V, math.inf), 1) for _ in sources]


@breaks("test_two_fresh_instances_agree")
class NeverTheSame(Table):
    numbers = count()

    def __init__(self, table: Any) -> None:
        super().__init__(table + next(self.numbers))


@breaks("test_candidates_score_as_they_do_among_all_tokens")
class BestThreeOnly(Table):
    """Lists its best tokens and calls the rest forbidden; asked about candidates, it scores any."""

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        row = self.table[self._state.last]
        chosen = np.argsort(-row)[:3] if candidates is None else np.array(candidates, dtype=int)
        return Scores.sparse(chosen, row[chosen])  # type: ignore[arg-type]


@breaks("test_candidates_score_as_they_do_among_all_tokens")
class NormalizesOverCandidates(Table):
    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        row = self.table[self._state.last]
        wanted = list(range(V)) if candidates is None else list(candidates)
        return Scores.sparse(wanted, row[wanted] - np.logaddexp.reduce(row[wanted]))


@breaks("test_candidates_score_as_they_do_among_all_tokens")
class KeepsCandidates(Table):
    """Answers about all tokens as it answered about candidates."""

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        if candidates is not None:
            self.kept = set(candidates)
        row = self.table[self._state.last]
        kept = getattr(self, "kept", range(V))
        return Scores.dense(row if candidates is not None else np.where(np.isin(range(V), list(kept)), row, -9.0))


@breaks("test_each_row_of_a_batch_has_candidates_of_its_own")
class FirstCandidatesForAll(BatchTable):
    def predict_batch(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        values = super().predict_batch(states).values
        if candidates is None:
            return super().predict_batch(states)
        wanted = next(c for c in candidates if c is not None)
        return Scores(rows=[SparseRow(wanted, row[list(wanted)]) for row in values])  # type: ignore[union-attr]


@breaks("test_rows_said_to_be_independent_are_equal_bit_for_bit")
class LastBitOfTheBatch(BatchTable):
    """A last bit depends on how many rows there are."""

    independent_rows = True

    def predict_batch(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        rows = self._simple.table[[prefix.last for prefix, _ in states]]
        return Scores.dense(rows * (1 + 1e-15 * (len(states) - 1)))


@breaks("test_best_remaining_is_never_exceeded")
class BestTooLow(Table):
    def best_remaining(self, states: Sequence[Prefix]) -> list[float]:
        return [bound - 0.1 for bound in super().best_remaining(states)]


@breaks("test_worst_remaining_is_never_undercut")
class WorstTooHigh(Table):
    def worst_remaining(self, states: Sequence[Prefix]) -> list[float]:
        return [bound + 0.1 for bound in super().worst_remaining(states)]


@breaks("test_no_score_is_above_max_score")
class PositiveAfterAll(Table):
    """One token gains a little."""

    max_score = 0.0

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        return Scores.dense(np.where(np.arange(V) == 4, 0.1, np.minimum(self.table[self._state.last], 0.0)))


class FarOut(Predictor):
    """Right: nothing for a long while, then a gain with each token; the state counts tokens."""

    def __init__(self) -> None:
        self.length = 0

    def initialize(self, source: Source) -> None:
        self.length = 0

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        return Scores.dense(np.full(V, 0.0 if self.length < 20 else 0.5))

    def consume(self, token: int) -> None:
        self.length += 1

    def get_state(self) -> State:
        return self.length

    def set_state(self, state: State) -> None:
        self.length = state


@breaks("test_no_score_is_above_max_score")
class PositiveFarOut(FarOut):
    max_score = 0.0


@breaks("test_best_remaining_is_never_exceeded")
class GainsFarOut(FarOut):
    def best_remaining(self, states: Sequence[State]) -> list[float]:
        return [0.0] * len(states)


class Secret(Predictor):
    """Gains after one sequence of tokens that chance does not find."""

    SECRET = (3, 5, 3, 3, 5, 4)

    def __init__(self) -> None:
        self.history: tuple[int, ...] = ()

    def initialize(self, source: Source) -> None:
        self.history = ()

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        return Scores.dense(np.full(V, 0.5 if self.history == self.SECRET else -1.0))

    def consume(self, token: int) -> None:
        self.history = (*self.history, token)

    def get_state(self) -> State:
        return self.history

    def set_state(self, state: State) -> None:
        self.history = state


class PositiveInSecret(Secret):
    max_score = 0.0


class GainsInSecret(Secret):
    def best_remaining(self, states: Sequence[State]) -> list[float]:
        return [-1.0] * len(states)  # the end alone


@breaks("test_best_remaining_is_never_exceeded")
class CallsAWayADeadEnd(Table):
    def best_remaining(self, states: Sequence[Prefix]) -> list[float]:
        return [-math.inf if state.left < 2 else 99.0 for state in states]


@breaks("test_equal_state_keys_have_equal_futures")
class CoarseKey(Table):
    def state_key(self, states: Sequence[Prefix]) -> list[Hashable]:
        return [state.last // 2 for state in states]


@breaks("test_equal_state_keys_have_equal_futures")
class KeyIsAList(Table):
    def state_key(self, states: Sequence[Prefix]) -> list[Hashable]:
        return [[state.last] for state in states]  # type: ignore[list-item]


@breaks("test_attention_is_a_distribution_over_the_source")
class AttentionNotNormalized(BatchTable):
    def attention(self, states: Sequence[State]) -> list[Any]:
        return [row / 2 for row in super().attention(states)]


@breaks("test_attention_is_a_distribution_over_the_source")
class AttentionToMore(BatchTable):
    def attention(self, states: Sequence[State]) -> list[Any]:
        return [np.append(row, 0.0) for row in super().attention(states)]


@breaks("test_abilities_answer_each_state_on_its_own")
class BoundOfTheBatch(BatchTable):
    """One bound for all states of a question."""

    def best_remaining(self, states: Sequence[State]) -> list[float]:
        return [max(super().best_remaining(states))] * len(states)


@breaks("test_abilities_change_nothing")
class KeyConsumes(History):
    def state_key(self, states: Sequence[State]) -> list[Hashable]:
        keys: list[Hashable] = [tuple(state) for state in states]
        for state in states:
            state.append(3)
        return keys


@breaks("test_two_fresh_instances_agree")
class OnlyOne(Table):
    """make gives the same object each time."""

    one: Any = None

    def __new__(cls, table: Any) -> Any:
        cls.one = cls.one or super().__new__(cls)
        return cls.one


@breaks("test_a_batch_of_single_prefixes_says_what_single_prefixes_say")
class CountsRows(BatchTable):
    """Right only for more than one row at a time."""

    def predict_batch(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        self.calls = getattr(self, "calls", 0) + 1
        return Scores.dense(self._simple.table[[prefix.last for prefix, _ in states]] + self.calls)


RIGHT: dict[str, Make] = {
    "History": History,
    "Table": lambda: Table(TABLE),
    "OnDemandTable": lambda: OnDemandTable(TABLE),
    "BatchTable": lambda: BatchTable(TABLE),
    "Lattice": lambda: Lattice(LATTICE),
    "Bonus": lambda: Bonus({3: 0.5, 5: -math.inf}, default=-0.1),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_predictor_passes_every_test(name: str) -> None:
    PLANTED.require_right(RIGHT[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED.bugs)
def test_the_kit_catches(name: str) -> None:
    PLANTED.require_caught(name)


@pytest.mark.parametrize(
    ("make", "test"),
    [
        (PositiveInSecret, "test_no_score_is_above_max_score"),
        (GainsInSecret, "test_best_remaining_is_never_exceeded"),
    ],
)
def test_what_only_an_extreme_shows_is_caught_where_the_author_names_it(make: Make, test: str) -> None:
    subject = contract(make)
    getattr(subject, test)()
    subject.extremes = [Secret.SECRET]
    with pytest.raises(AssertionError, match="must"):
        getattr(subject, test)()


def test_every_promise_has_a_planted_bug() -> None:
    of_automata = set(promises(ReleaseChecks))  # their bugs are in test_planted_automaton_bugs.py
    of_relaxations = set(promises(RelaxationChecks))  # and in test_planted_relaxation_bugs.py
    assert PLANTED.broken == set(promises(PredictorContract)) - of_automata - of_relaxations
