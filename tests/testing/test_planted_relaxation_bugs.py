"""The promise: the conformance kit catches a breach of every rule for relaxations and for automata known as a whole.

Each class below is right but for one planted bug.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from sgdec.arcs import Automaton
from sgdec.arrays import Floats, Ints
from sgdec.protocol import FORBIDDEN, State
from sgdec.relaxations import Constant, Relaxation
from sgdec.testing.relaxation_checks import RelaxationChecks
from tests.helpers.planted_bugs import Make, Planted, V, promises
from tests.helpers.relaxing import LastToken, Trigrams, WholeLattice, random_automaton

PLANTED = Planted(np.zeros((V, V)))
breaks = PLANTED.breaks
UNSEEN = 5
"""A token that never follows 3 4; all other scores are finite."""


def trigrams() -> Floats:
    table = np.random.default_rng(3).normal(size=(V, V, V))
    table[3, 4, UNSEEN] = FORBIDDEN
    return table


class Right(Trigrams):
    def __init__(self) -> None:
        super().__init__(trigrams(), self.chosen(trigrams()))

    def chosen(self, table: Floats) -> Sequence[Relaxation]:
        return [LastToken(table), Constant(float(table[table > FORBIDDEN].min()), float(table.max()))]


class Whole(WholeLattice):
    def __init__(self) -> None:
        rng = np.random.default_rng(4)
        super().__init__([random_automaton(rng, 6, V, cyclic=True) for _ in range(3)])


@breaks("test_no_score_is_outside_its_relaxation")
class HighestOfTheBackOff(Right):
    """The scores of one history instead of the highest over all."""

    def chosen(self, table: Floats) -> Sequence[Relaxation]:
        relaxation = LastToken(table)
        relaxation._highest = table[1]
        return [relaxation]


@breaks("test_no_score_is_outside_its_relaxation")
class AnUlpBelow(Right):
    def chosen(self, table: Floats) -> Sequence[Relaxation]:
        relaxation = LastToken(table)
        relaxation._highest = np.nextafter(relaxation._highest, FORBIDDEN)
        return [relaxation]


@breaks("test_no_score_is_outside_its_relaxation")
class ForgetsTheEnd(Right):
    def chosen(self, table: Floats) -> Sequence[Relaxation]:
        relaxation = LastToken(table)
        relaxation._highest[:, 2] = FORBIDDEN
        return [relaxation]


@breaks("test_no_score_is_outside_its_relaxation")
class HighestForLowest(Right):
    def chosen(self, table: Floats) -> Sequence[Relaxation]:
        relaxation = LastToken(table)
        relaxation._lowest = relaxation._highest
        return [relaxation]


@breaks("test_no_score_is_outside_its_relaxation")
class OnlyTheCoarseOne(Right):
    """The second relaxation is wrong."""

    def chosen(self, table: Floats) -> Sequence[Relaxation]:
        return [LastToken(table), Constant(0.0, 0.0)]


class LastButOne(LastToken):
    """Its states are the last tokens but one, which cannot be followed."""

    memory = None

    def of(self, states: Sequence[State]) -> list[int]:
        return [last for last, _ in states]


@breaks("test_relaxed_states_follow_the_tokens")
class CannotBeFollowed(Right):
    def chosen(self, table: Floats) -> Sequence[Relaxation]:
        relaxation = LastButOne(table)
        relaxation._highest[:], relaxation._lowest[:] = np.inf, FORBIDDEN
        return [relaxation]


class Shifted(LastToken):
    """Its states begin with 1."""

    def of(self, states: Sequence[State]) -> list[int]:
        return [last + 1 for _, last in states]

    def after(self, states: Ints, tokens: Ints) -> Ints:
        return tokens + 1

    def highest(self, states: Ints, tokens: Ints) -> Floats:
        return super().highest(states - 1, tokens)

    def lowest(self, states: Ints, tokens: Ints) -> Floats:
        return super().lowest(states - 1, tokens)


@breaks("test_relaxed_states_are_numbers_below_the_size")
class OffByOne(Right):
    def chosen(self, table: Floats) -> Sequence[Relaxation]:
        return [Shifted(table)]


class Counting(Relaxation):
    """Says that it remembers one token, and counts. ``size``: the last state stands for longer prefixes."""

    size = 9
    memory = 1

    def of(self, states: Sequence[State]) -> list[int]:
        return [min(sum(state), 8) for state in states]

    def after(self, states: Ints, tokens: Ints) -> Ints:
        return (states + 1) % self.size

    def highest(self, states: Ints, tokens: Ints) -> Floats:
        return np.full(len(tokens), np.inf)

    def lowest(self, states: Ints, tokens: Ints) -> Floats:
        return np.full(len(tokens), FORBIDDEN)


@breaks("test_relaxed_states_depend_on_the_last_tokens_alone")
class SaysThatItRemembersOne(Right):
    def chosen(self, table: Floats) -> Sequence[Relaxation]:
        return [Counting()]


@breaks("test_relaxations_get_coarser")
class FinerAndFiner(Right):
    def chosen(self, table: Floats) -> Sequence[Relaxation]:
        return super().chosen(table)[::-1]


@breaks("test_relaxations_get_coarser")
class NoneAtAll(Right):
    def chosen(self, table: Floats) -> Sequence[Relaxation]:
        return []


@breaks("test_relaxations_are_the_same_objects_in_all_states_of_a_sentence")
class BuiltAgain(Right):
    def relaxations(self, state: State) -> Sequence[Relaxation]:
        return self.chosen(self.table)


@breaks("test_relaxations_are_the_same_objects_in_all_states_of_a_sentence")
class OthersAfterAWhile(Right):
    def __init__(self) -> None:
        super().__init__()
        self.others = self.chosen(self.table)

    def relaxations(self, state: State) -> Sequence[Relaxation]:
        return self.others if state[0] == 4 else super().relaxations(state)


class Redrawn(Whole):
    """``whole`` gives a changed automaton, always the same one."""

    def __init__(self) -> None:
        super().__init__()
        self.changed: dict[int, Automaton] = {}

    def whole(self, state: State) -> tuple[Automaton, int]:
        automaton, first = super().whole(state)
        if first not in self.changed:
            parts = {name: getattr(automaton, name).copy() for name in ("offsets", "tokens", "scores", "after")}
            self.change(**parts)
            self.changed[first] = Automaton(**parts)
        return self.changed[first], first

    def change(self, offsets: Ints, tokens: Ints, scores: Floats, after: Ints) -> None:
        pass

    def release(self, roots: Sequence[State]) -> None:
        for root in roots:
            self.changed.pop(root, None)
        super().release(roots)


@breaks("test_a_whole_automaton_is_what_predicting_and_consuming_say")
class ArcsOfOtherScores(Redrawn):
    def change(self, offsets: Ints, tokens: Ints, scores: Floats, after: Ints) -> None:
        scores[:] = np.nextafter(scores, 0.0)


@breaks("test_a_whole_automaton_is_what_predicting_and_consuming_say")
class ArcsToOtherStates(Redrawn):
    def change(self, offsets: Ints, tokens: Ints, scores: Floats, after: Ints) -> None:
        after[:] = np.where(after > 0, after - 1, after)


@breaks("test_a_whole_automaton_is_what_predicting_and_consuming_say")
class OneArcTooFew(Redrawn):
    def change(self, offsets: Ints, tokens: Ints, scores: Floats, after: Ints) -> None:
        offsets[1:] -= 1


@breaks("test_a_whole_automaton_is_what_predicting_and_consuming_say")
class StatesOfOthers(Whole):
    """All sentences begin with state 0."""

    def whole(self, state: State) -> tuple[Automaton, int]:
        return super().whole(state)[0], 0


@breaks("test_a_whole_automaton_is_what_predicting_and_consuming_say")
class CopiesOfTheWhole(Whole):
    def whole(self, state: State) -> tuple[Automaton, int]:
        automaton, first = super().whole(state)
        parts: list[Any] = [getattr(automaton, name) for name in ("offsets", "tokens", "scores", "after")]
        return Automaton(*parts), first


@breaks("test_released_sentences_leave_nothing")
class KeepsRelaxations(WholeLattice):
    """One for each sentence, for ever."""

    def __init__(self) -> None:
        rng = np.random.default_rng(4)
        super().__init__([random_automaton(rng, 6, V, cyclic=True) for _ in range(3)])
        self.kept: dict[int, Sequence[Relaxation]] = {}

    def relaxations(self, state: State) -> Sequence[Relaxation]:
        return self.kept.setdefault(self.whole(state)[1], (Constant(FORBIDDEN, np.inf),))


@pytest.mark.slow
@pytest.mark.parametrize("make", [Right, Whole, Redrawn])
def test_every_promise_holds_for_what_is_right(make: Make) -> None:
    PLANTED.require_right(make)


@pytest.mark.parametrize("name", sorted(PLANTED.bugs))
def test_every_planted_bug_is_caught_by_the_test_that_is_named_for_it(name: str) -> None:
    PLANTED.require_caught(name)


def test_every_promise_has_a_bug_that_breaks_it() -> None:
    assert set(promises(RelaxationChecks)) <= PLANTED.broken


def test_a_failure_names_predictor_token_and_state() -> None:
    message = PLANTED.require_caught("AnUlpBelow")
    assert message.startswith("AnUlpBelow: relaxation 0 must bound each score: token ")
    assert message.endswith("(sentence 1, after <s>), in state (1, 1)")
