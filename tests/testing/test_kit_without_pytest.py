"""The promise of the kit to graders: promises as values, breaches in one line, random spaces that can be repeated."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sgdec_decoders.beam import BeamDecoder

from sgdec import Decoder, Predictor, Result, Scores, SearchSpace, Source
from sgdec.protocol import Candidates
from sgdec.testing import (
    DecoderContract,
    Lattice,
    PredictorContract,
    Table,
    breach,
    enumerate_space,
    promises,
    random_space,
    tiny_spaces,
)

HERE = Path(__file__)


class Endless(Decoder):
    def decode(self, space: SearchSpace) -> Result:
        while True:
            space.expand([space.root], limit=1)


class EndlessContract(DecoderContract):
    def make(self) -> Decoder:
        return Endless()


class BeamContract(DecoderContract):
    def make(self) -> Decoder:
        return BeamDecoder()


class KeepsItsPlace(Table):
    """Forgets the sentence before only where that came to its end."""

    def initialize(self, source: Source) -> None:
        if self._state.left <= 0:
            super().initialize(source)


class KeepsItsPlaceContract(PredictorContract):
    vocab_size = 5
    sources = (Source(1, (3, 4), max_length=4), Source(2, (4,), max_length=4))

    def make(self) -> KeepsItsPlace:
        predictor = KeepsItsPlace(np.random.default_rng(1).normal(size=(5, 5)))
        predictor.set_state(predictor.get_state()._replace(left=0))
        return predictor


@pytest.mark.slow
def test_every_promise_of_a_contract_is_listed_and_can_be_checked() -> None:
    listed = promises(BeamContract())
    assert sorted(f"test_{promise.text.replace(' ', '_')}" for promise in listed) == [
        name for name in dir(DecoderContract) if name.startswith("test_")
    ]
    assert [promise.text for promise in listed if breach(promise.check)] == []


class ChangesItsState(Predictor):
    """The state is a list that `consume` changes, so states of other prefixes change, too."""

    def initialize(self, source: Source) -> None:
        self.tokens: list[int] = []

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        return Scores.dense(np.full(5, -1.0 - len(self.tokens)))

    def consume(self, token: int) -> None:
        self.tokens.append(token)

    def get_state(self) -> list[int]:
        return self.tokens

    def set_state(self, state: list[int]) -> None:
        self.tokens = state


class ChangesItsStateContract(PredictorContract):
    vocab_size = 5

    def make(self) -> ChangesItsState:
        return ChangesItsState()


def test_the_first_broken_promise_is_the_simplest_that_tells_the_mistake() -> None:
    broken = [promise.text for promise in promises(ChangesItsStateContract()) if breach(promise.check)]
    assert broken[:2] == ["restoring a state restores its scores", "a state is a value that later calls leave alone"]
    assert "a batch says what single prefixes say" in broken


WITHOUT_PYTEST = """
import sys
sys.modules.update(pytest=None, hypothesis=None)
from sgdec.testing import BeamContract, ExactDecoderContract, PredictorSearchContract, Table, breach, promises
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.dfs import DfsDecoder

class Exact(ExactDecoderContract):
    random_spaces = 5
    def make(self):
        return DfsDecoder()
    def make_limited(self, max_expansions):
        return DfsDecoder(max_expansions=max_expansions)

class Beam(BeamContract):
    random_spaces = 5
    def make_beam(self, size):
        return BeamDecoder(size, stop="full")

class InSearch(PredictorSearchContract):
    vocab_size, spaces = 4, 5
    def draw(self, rng):
        return Table(rng.normal(size=(4, 4)))

for contract in (Exact(), Beam(), InSearch()):
    listed = promises(contract)
    print(len(listed), [promise.text for promise in listed if breach(promise.check) is not None])
assert "torch" not in sys.modules
"""


@pytest.mark.slow
def test_contracts_need_neither_pytest_nor_hypothesis_nor_torch() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_PYTEST], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    own = len(promises(BeamContract()))
    assert done.stdout.splitlines() == [f"{own + 7} []", f"{own + 4} []", "3 []"]


def test_a_search_without_end_fails_in_one_line() -> None:
    contract = EndlessContract()
    contract.most_expansions = 50
    assert breach(contract.test_two_runs_are_equal) == (
        "a search must end: this one expanded more than 50 nodes of a small space"
    )


def test_a_sentence_left_in_the_middle_must_be_forgotten_too() -> None:
    found = breach(KeepsItsPlaceContract().test_initialize_starts_a_sentence_afresh)
    assert found is not None and found.startswith("initialize must forget the previous sentence")


def fails() -> None:
    raise KeyError(7)


def leaves() -> None:
    raise SystemExit(3)


def asserts() -> None:
    raise AssertionError


def asserts_in_words() -> None:
    raise AssertionError("two\nlines")


@pytest.mark.parametrize(
    ("check", "expected"),
    [
        (fails, "KeyError: 7 (test_kit_without_pytest.py, line {line})"),
        (leaves, "SystemExit: 3 (test_kit_without_pytest.py, line {line})"),
        (asserts, "an assertion failed (test_kit_without_pytest.py, line {line})"),
        (asserts_in_words, "two lines"),
        (dict, None),
    ],
)
def test_a_breach_is_one_line_with_its_place(check: object, expected: str | None) -> None:
    line = check.__code__.co_firstlineno + 1 if hasattr(check, "__code__") else 0
    assert breach(check, HERE) == (expected and expected.format(line=line))  # type: ignore[arg-type]


def test_what_interrupts_the_tester_is_left_alone() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        breach(interrupt)


def test_random_spaces_are_small_and_the_same_for_the_same_seed() -> None:
    def draw(seed: int) -> list[object]:
        rng = np.random.default_rng(seed)
        spaces = [random_space(rng) for _ in range(30)]
        return [
            (space.name, [path.total for path in enumerate_space(space.constellation(), space.source)])
            for space in spaces
        ]

    assert draw(3) == draw(3) != draw(4)
    assert any(len(totals) > 5 for _, totals in draw(3))  # type: ignore[misc]


def test_a_tiny_space_opens_afresh_each_time() -> None:
    tiny = tiny_spaces()[0]
    first, second = tiny.open(nbest=2), tiny.open()
    first.expand([first.root], limit=1)
    assert (first.expansions, second.expansions, first.nbest) == (1, 0, 2)


def test_a_lattice_with_a_cycle_is_refused() -> None:
    with pytest.raises(ValueError, match=r"must have no cycle; these have \[[01], [01], [01]\]"):
        Lattice({0: {3: (0.0, 1)}, 1: {4: (0.0, 0), 2: (0.0, 1)}})
    Lattice({0: {3: (0.0, 1)}, 1: {2: (0.0, 0)}})  # nothing is entered by </s>
