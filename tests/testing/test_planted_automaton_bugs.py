"""The promise: the conformance kit catches a breach of every rule for automata, by the test that is named for it.

Each class below is right but for one planted bug.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from sgdec.arcs import Automata, Automaton
from sgdec.arrays import Ints
from sgdec.protocol import Arcs, BatchPredictor, Candidates, Listed, Scores, Source, SparseRow, State, Steps
from sgdec.testing import BatchTable
from sgdec.testing.release_checks import ReleaseChecks
from tests.helpers.planted_bugs import Make, Planted, V, promises

PLANTED = Planted(np.random.default_rng(5).normal(-1.0, 1.0, (V, V)))
breaks = PLANTED.breaks


class Numbered(BatchPredictor):
    """Right: each sentence has a random automaton of its own, with states that are numbers."""

    independent_rows = True

    def __init__(self) -> None:
        self.automata = Automata[Automaton]()

    def initialize_batch(self, sources: Sequence[Source]) -> list[int]:
        return [self.automata.add(self.draw(np.random.default_rng(source.id))) for source in sources]

    def draw(self, rng: np.random.Generator) -> Automaton:
        """Four states; each has ``</s>`` and a few other tokens."""
        rows = [[2, *sorted(rng.choice([0, 3, 4, 5], 3, replace=False).tolist())] for _ in range(4)]
        tokens = np.array([sorted(row) for row in rows])
        scores = rng.normal(size=tokens.shape).ravel()
        return Automaton(np.arange(0, 17, 4), tokens.ravel(), scores, rng.integers(4, size=16))

    def row(self, state: int) -> dict[int, tuple[float, int]]:
        """Scores and states after each token."""
        automaton, start = self.automata.find(state)
        arcs = range(*automaton.offsets[state - start : state - start + 2].tolist())
        return {int(automaton.tokens[i]): (float(automaton.scores[i]), int(automaton.after[i]) + start) for i in arcs}

    def predict_batch(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        rows = map(self.row, states)
        return Scores(rows=[SparseRow(list(row), [score for score, _ in row.values()]) for row in rows])

    def consume_batch(self, states: Sequence[State], tokens: Sequence[int]) -> list[State]:
        return [self.row(state)[token][1] for state, token in zip(states, tokens, strict=True)]

    def steps(self, state: State, candidates: Candidates | None) -> Steps:
        row = self.row(state)
        tokens = list(row) if candidates is None else list(candidates)
        found = [row.get(token, (-math.inf, -1)) for token in tokens]
        return tokens, [score for score, _ in found], [after for _, after in found]

    def arcs(self, states: Ints, candidates: Listed | None) -> Arcs:
        return self.automata.arcs(states, candidates)

    def release(self, roots: Sequence[State]) -> None:
        for root in roots:
            self.automata.release(root)


class Counted(BatchPredictor):
    """Right: an automaton with open rows; its state is a number of tokens."""

    restricts = False

    def initialize_batch(self, sources: Sequence[Source]) -> list[int]:
        return [0] * len(sources)

    def predict_batch(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        return Scores(rows=[SparseRow([2], [-0.1 * state], default=-1.0) for state in states])

    def consume_batch(self, states: Sequence[State], tokens: Sequence[int]) -> list[State]:
        return [state + 1 for state in states]

    def arcs(self, states: Ints, candidates: Listed | None) -> Arcs:
        assert candidates is not None
        offsets, tokens = candidates
        before = np.repeat(states, np.diff(offsets))
        return offsets, tokens, np.where(tokens == 2, -0.1 * before, -1.0), before + 1


@breaks("test_steps_are_what_predicting_and_consuming_say")
class StepsOnTheSpot(BatchTable):
    def steps(self, state: State, candidates: Candidates | None) -> Steps:
        tokens = list(range(V)) if candidates is None else list(candidates)
        scores = self._simple.table[state[0].last][tokens].tolist()
        return tokens, scores, [state] * len(tokens)


@breaks("test_an_automaton_that_lists_what_can_follow_has_no_open_row")
class ClaimsToRestrict(Counted):
    restricts = True


@breaks("test_arcs_are_what_predicting_and_consuming_say")
class LastBitOfArcs(Numbered):
    """The last bit of one score, and only among candidates."""

    def arcs(self, states: Ints, candidates: Listed | None) -> Arcs:
        offsets, tokens, scores, after = super().arcs(states, candidates)
        if candidates is not None:
            scores[-1:] = np.nextafter(scores[-1:], 0.0)
        return offsets, tokens, scores, after


@breaks("test_arcs_are_what_predicting_and_consuming_say")
class ArcsOfAnotherSentence(Numbered):
    """The states after an arc are those of the first sentence."""

    def arcs(self, states: Ints, candidates: Listed | None) -> Arcs:
        offsets, tokens, scores, after = super().arcs(states, candidates)
        return offsets, tokens, scores, after % 4


@breaks("test_arcs_are_what_predicting_and_consuming_say")
class ArcsOnTheSpot(Counted):
    def arcs(self, states: Ints, candidates: Listed | None) -> Arcs:
        offsets, tokens, scores, after = super().arcs(states, candidates)
        return offsets, tokens, scores, after - 1


@breaks("test_arcs_are_what_predicting_and_consuming_say")
class ArcsUnlikeSteps(Numbered):
    """Steps lead to states of equal futures with other numbers."""

    def row(self, state: int) -> dict[int, tuple[float, int]]:
        return super().row(state % 1000)

    def steps(self, state: State, candidates: Candidates | None) -> Steps:
        tokens, scores, after = super().steps(state, candidates)
        return tokens, scores, [number + 1000 for number in after]


@breaks("test_arcs_are_what_predicting_and_consuming_say")
class OffsetsOffByOne(Numbered):
    def arcs(self, states: Ints, candidates: Listed | None) -> Arcs:
        offsets, *columns = super().arcs(states, candidates)
        return (np.append(offsets[1:], offsets[-1]), *columns)  # type: ignore[return-value]


@breaks("test_arcs_are_what_predicting_and_consuming_say")
class OneOffsetTooFew(Numbered):
    def arcs(self, states: Ints, candidates: Listed | None) -> Arcs:
        offsets, *columns = super().arcs(states, candidates)
        return (offsets[:-1], *columns)  # type: ignore[return-value]


@breaks("test_arcs_are_what_predicting_and_consuming_say")
class TokensNotAscending(Numbered):
    def arcs(self, states: Ints, candidates: Listed | None) -> Arcs:
        offsets, *columns = super().arcs(states, candidates)
        if candidates is not None:
            return (offsets, *columns)  # type: ignore[return-value]
        row = np.repeat(np.arange(len(states)), np.diff(offsets))
        order = np.lexsort((-columns[0], row))
        return (offsets, *(column[order] for column in columns))  # type: ignore[return-value]


@breaks("test_arcs_are_what_predicting_and_consuming_say")
class LeavesOutTheForbidden(Numbered):
    def arcs(self, states: Ints, candidates: Listed | None) -> Arcs:
        offsets, tokens, scores, after = super().arcs(states, candidates)
        kept = np.flatnonzero(scores > -np.inf)
        return np.searchsorted(kept, offsets), tokens[kept], scores[kept], after[kept]


@breaks("test_arcs_are_what_predicting_and_consuming_say")
class FirstCandidatesForEachRow(Numbered):
    def arcs(self, states: Ints, candidates: Listed | None) -> Arcs:
        if candidates is not None and len(states):
            first = candidates[1][: candidates[0][1]]
            candidates = np.arange(len(states) + 1) * len(first), np.tile(first, len(states))
        return super().arcs(states, candidates)


@breaks("test_arcs_are_what_predicting_and_consuming_say")
class NarrowTokens(Numbered):
    def arcs(self, states: Ints, candidates: Listed | None) -> Arcs:
        offsets, tokens, scores, after = super().arcs(states, candidates)
        return offsets, tokens.astype(np.int32), scores, after  # type: ignore[return-value]


@breaks("test_arcs_are_what_predicting_and_consuming_say")
class NarrowScores(Counted):
    """Scores that float32 holds exactly."""

    def predict_batch(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        return Scores(rows=[SparseRow([2], [0.0], default=-1.0) for _ in states])

    def arcs(self, states: Ints, candidates: Listed | None) -> Arcs:
        offsets, tokens, _, after = super().arcs(states, candidates)
        return offsets, tokens, np.where(tokens == 2, 0.0, -1.0).astype(np.float32), after  # type: ignore[return-value]


@breaks("test_arcs_are_what_predicting_and_consuming_say")
class ArcsAsLists(Numbered):
    def arcs(self, states: Ints, candidates: Listed | None) -> Arcs:
        return tuple(part.tolist() for part in super().arcs(states, candidates))  # type: ignore[return-value]


@breaks("test_arcs_are_what_predicting_and_consuming_say")
class NeedsAState(Numbered):
    def arcs(self, states: Ints, candidates: Listed | None) -> Arcs:
        assert states.max() >= 0  # ValueError without states
        return super().arcs(states, candidates)


@breaks("test_arcs_are_what_predicting_and_consuming_say")
class StatesAsTuples(Numbered):
    def initialize_batch(self, sources: Sequence[Source]) -> list[Any]:
        return [(state,) for state in super().initialize_batch(sources)]

    def row(self, state: Any) -> dict[int, Any]:
        return {token: (score, (after,)) for token, (score, after) in super().row(state[0]).items()}


@breaks("test_arcs_change_neither_their_arguments_nor_earlier_results")
class ShiftsItsArguments(Numbered):
    def arcs(self, states: Ints, candidates: Listed | None) -> Arcs:
        found = super().arcs(states.copy(), candidates)
        states -= states.min(initial=0)
        states *= 0
        return found


@breaks("test_arcs_change_neither_their_arguments_nor_earlier_results")
class WritesIntoOneArray(Counted):
    """The scores of all calls are a view of one array."""

    def __init__(self) -> None:
        self.scores = np.zeros(1 << 10)

    def arcs(self, states: Ints, candidates: Listed | None) -> Arcs:
        offsets, tokens, scores, after = super().arcs(states, candidates)
        self.scores[: len(scores)] = scores
        return offsets, tokens, self.scores[: len(scores)], after


@breaks("test_a_number_stands_for_the_same_state_in_all_sentences")
class NumbersFromZero(Numbered):
    """Begins again with 0 as soon as no sentence is in flight."""

    def release(self, roots: Sequence[State]) -> None:
        super().release(roots)
        self.automata = Automata()


@breaks("test_releasing_a_sentence_changes_no_other")
class ReleasesAll(Numbered):
    def release(self, roots: Sequence[State]) -> None:
        self.automata = Automata()


@breaks("test_releasing_a_sentence_changes_no_other")
class ReleasesTheFirst(Numbered):
    def release(self, roots: Sequence[State]) -> None:
        for _ in roots:
            self.automata.release(0)


@breaks("test_released_sentences_leave_nothing")
class KeepsAllSentences(Numbered):
    def release(self, roots: Sequence[State]) -> None:
        pass


@breaks("test_released_sentences_leave_nothing")
class KeepsOneNumber(Numbered):
    """Of each sentence a number stays."""

    def __init__(self) -> None:
        super().__init__()
        self.released: list[int] = []

    def release(self, roots: Sequence[State]) -> None:
        super().release(roots)
        self.released.extend(roots)


class OfTensors(Numbered):
    """Right: `Automata` answers for tensors, too."""

    arcs_of_tensors = True


@breaks("test_arcs_of_tensors_are_those_of_arrays")
class ArraysForTensors(OfTensors):
    def arcs(self, states: Any, candidates: Any) -> Arcs:
        listed = None if candidates is None else (np.asarray(candidates[0]), np.asarray(candidates[1]))
        return super().arcs(np.asarray(states), listed)


@breaks("test_arcs_of_tensors_are_those_of_arrays")
class NarrowTensors(OfTensors):
    def arcs(self, states: Any, candidates: Any) -> Arcs:
        offsets, tokens, scores, after = super().arcs(states, candidates)
        return offsets, tokens, scores if isinstance(scores, np.ndarray) else scores.float(), after


@breaks("test_arcs_of_tensors_are_those_of_arrays")
class KnowsNoTensors(Numbered):
    arcs_of_tensors = True

    def arcs(self, states: Any, candidates: Any) -> Arcs:
        return super().arcs(states.astype(np.int64), candidates)


@breaks("test_arcs_of_tensors_are_those_of_arrays")
class OldCopies(OfTensors):
    """For tensors, the first sentences stay those in flight."""

    def __init__(self) -> None:
        super().__init__()
        self.copied: Automata[Automaton] | None = None

    def arcs(self, states: Any, candidates: Any) -> Arcs:
        if isinstance(states, np.ndarray):
            return super().arcs(states, candidates)
        self.copied = self.copied or copy.deepcopy(self.automata)
        return self.copied.arcs(states, candidates)


RIGHT: dict[str, Make] = {"Numbered": Numbered, "Counted": Counted, "OfTensors": OfTensors}


@pytest.mark.slow
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_predictor_passes_every_test(name: str) -> None:
    PLANTED.require_right(RIGHT[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED.bugs)
def test_the_kit_catches(name: str) -> None:
    message = PLANTED.require_caught(name)
    assert "sentence" in message or "(0 prefixes)" in message, f"the failure should say where: {message}"


def test_every_promise_has_a_planted_bug() -> None:
    assert PLANTED.broken == set(promises(ReleaseChecks))
