"""The promise of `fsttok`: a total is the best or the sum over all segmentations, exactly, for any transducer.

The oracles list the paths of a transducer by plain recursion, score each inner sequence on its own, and compose with
pynini; nothing of the wrapper's code is used.
"""

from __future__ import annotations

import itertools
import math
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sgdec_decoders.astar import AStarDecoder
from sgdec_decoders.dfs import DfsDecoder
from sgdec_predictors import fsttok
from sgdec_predictors.fst import FstPredictor
from sgdec_predictors.fsttok import FstTok

from sgdec import BOS, EOS, UNK, Context, SgdecError, Source, UsageError
from sgdec.io.transducer import OTHERWISE, UNK_LABEL, TransducerArc, read_transducer
from sgdec.lifting import lift
from sgdec.protocol import FORBIDDEN, BatchPredictor, Predictor, Scores
from sgdec.search.constellation import Constellation
from sgdec.testing import (
    BatchTable,
    Bonus,
    Lattice,
    OnDemandTable,
    Table,
    enumerate_space,
    score_path,
    walks,
)
from sgdec.testing.reading import read_row
from tests.helpers.breadth import EXHAUSTIVE, examples
from tests.helpers.drawn_transducers import Drawn
from tests.helpers.fsttok_contract import OUTER, SOURCE, FstTokContract, V, ambiguous, strings, together, total
from tests.helpers.lattice_files import Arc, write_automaton
from tests.helpers.optional import optional
from tests.helpers.oracles import opened, tiny

pytestmark = pytest.mark.slow

@st.composite
def transducers(draw: st.DrawFn, failure_arcs: bool = True) -> Drawn:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    states = int(rng.integers(1, 5))
    arcs: dict[int, list[TransducerArc]] = {}
    for state, _ in itertools.product(range(states), range(int(rng.integers(1, 5)))):
        silent = state + 1 < states and rng.random() < 0.4
        label = (OTHERWISE if failure_arcs and rng.random() < 0.4 else 0) if silent else int(rng.choice(OUTER))
        target = int(rng.integers(state + 1, states)) if silent else int(rng.integers(states))
        cost = float(np.float32(rng.choice([0.0, 0.5, 1.25, -0.75])))
        arcs.setdefault(state, []).append(TransducerArc(label, int(rng.choice([0, 3, 4, 5])), cost, target))
    final = {state: float(rng.choice([0.0, 0.5])) for state in range(states) if rng.random() < 0.6}
    return Drawn(arcs, final or {0: 0.0})


INNER = ("table", "on demand", "batch", "bonus", "lattice")


def inner_predictor(kind: str, rng: np.random.Generator) -> Predictor | BatchPredictor:
    table = rng.uniform(-3.0, 0.5, (V, V))
    table[rng.random((V, V)) < 0.1] = FORBIDDEN
    if kind == "bonus":
        return Bonus({EOS: -1.0, 3: 0.25}, default=-0.5)
    if kind == "lattice":
        ways = {q: {t: (float(table[q, t]), int(rng.integers(q + 1, 6))) for t in range(2, V)} for q in range(5)}
        return Lattice({q: {t: way for t, way in row.items() if way[0] != FORBIDDEN} for q, row in ways.items()})
    return {"table": Table, "on demand": OnDemandTable, "batch": BatchTable}[kind](table)


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None)
@given(transducers(), st.sampled_from(INNER), st.sampled_from(["tropical", "log"]), st.integers(0, 99))
def test_a_total_is_the_best_or_the_sum_over_all_segmentations(
    drawn: Drawn, kind: str, semiring: Any, seed: int
) -> None:
    inner = inner_predictor(kind, np.random.default_rng(seed))
    with tempfile.TemporaryDirectory() as folder:
        path = drawn.write(f"{folder}/t.fst")
        try:
            wrapper = FstTok(lift(inner), path, semiring=semiring)
        except SgdecError as error:
            assert "is empty" in str(error) and not any(list(drawn.paths(string)) for string in strings())
            return
    inner_total = cache(partial(total, inner))
    for string in strings():
        expected = together([score + inner_total(z) for score, z in drawn.paths(string)], semiring)
        assert total(wrapper, string) == pytest.approx(expected, abs=1e-9), string


@settings(max_examples=examples(25), deadline=None)
@given(transducers(failure_arcs=False), st.sampled_from(["tropical", "log"]), st.integers(0, 99))
def test_a_total_is_that_of_pyninis_composition(drawn: Drawn, semiring: Any, seed: int) -> None:
    pynini = optional("pynini")
    rng = np.random.default_rng(seed)
    lattice = pynini.Fst()
    lattice.add_states(4)
    lattice.set_start(0)
    for state in range(4):
        lattice.set_final(state, float(rng.uniform(0, 2)))
        for label in (3, 4, 5):
            lattice.add_arc(state, pynini.Arc(label, label, float(rng.uniform(-0.5, 2)), int(rng.integers(4))))
    with tempfile.TemporaryDirectory() as folder:
        lattice.write(f"{folder}/lattice.fst")
        path = drawn.write(f"{folder}/t.fst")
        try:
            wrapper = FstTok(FstPredictor(f"{folder}/lattice.fst"), path, semiring=semiring)
        except SgdecError:
            return
        transducer = pynini.Fst.read(path)
    for string in strings():
        acceptor = pynini.accep("".join(f"[{token}]" for token in string))
        composed = pynini.compose(pynini.compose(acceptor, transducer).arcsort("olabel"), lattice.arcsort("ilabel"))
        if semiring == "log":
            composed = pynini.arcmap(composed, map_type="to_log64")
        best = FORBIDDEN
        if composed.num_states():
            best = -float(pynini.shortestdistance(composed, reverse=True)[composed.start()])
        assert total(wrapper, string) == pytest.approx(best, abs=1e-4), string


@settings(max_examples=examples(30), deadline=None)
@given(transducers(), st.sampled_from(["table", "lattice"]), st.integers(0, 99))
def test_exact_decoders_find_the_optimum_through_a_transducer(drawn: Drawn, kind: str, seed: int) -> None:
    inner = inner_predictor(kind, np.random.default_rng(seed))
    with tempfile.TemporaryDirectory() as folder:
        path = drawn.write(f"{folder}/t.fst")
        try:
            wrapper = FstTok(lift(inner), path)
        except SgdecError:
            return
    for weight in (1.0, -0.5):
        space = tiny(3, [weight, 0.25], 9, a=wrapper, b=Bonus({3: -0.5}, default=-0.25))
        expected = [path.total for path in enumerate_space(space.constellation(), space.source)[:2]]
        for decoder in (DfsDecoder(), AStarDecoder(), DfsDecoder(recombine=True)):
            found = decoder.decode(opened(space, nbest=2))
            assert [h.score for h in found.hypotheses] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("semiring", ["tropical", "log"])
def test_wrappers_nest(tmp_path: Path, semiring: Any) -> None:
    """Characters spell pieces, pieces spell words: as the composition of the two transducers does."""
    pieces: list[Arc] = [(0, (3, 6), 0.0, 0), (0, (4, 7), 0.0, 0), (0, (3, 8), 0.0, 1), (1, (4, 0), 0.0, 0)]
    write_automaton(tmp_path / "pieces.fst", pieces, {0: 0.0})
    write_automaton(tmp_path / "words.fst", [(0, (piece, piece - 3), 0.0, 0) for piece in (6, 7, 8)], {0: 0.0})
    inner = inner_predictor("table", np.random.default_rng(5))
    nested = FstTok(
        FstTok(lift(inner), str(tmp_path / "words.fst"), semiring=semiring),
        str(tmp_path / "pieces.fst"),
        semiring=semiring,
    )
    spell: dict[tuple[int, ...], int] = {(3,): 3, (4,): 4, (3, 4): 5}

    def segmented(string: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if not string:
            yield ()
        for n in (1, 2):
            if len(string) >= n and string[:n] in spell:
                for rest in segmented(string[n:]):
                    yield (spell[string[:n]], *rest)

    for string in strings():
        expected = together([total(inner, z) for z in segmented(string)], semiring)
        assert total(nested, string) == pytest.approx(expected, abs=1e-9)


class Counted(BatchPredictor):
    """Counts the calls, and the rows, of a table."""

    max_score = 0.0

    def __init__(self) -> None:
        self._table = BatchTable(np.full((V, V), -1.0))
        self.calls: list[tuple[str, int]] = []

    def initialize_batch(self, sources: Sequence[Source]) -> list[Any]:
        return self._table.initialize_batch(sources)

    def predict_batch(self, states: Sequence[Any], candidates: Any = None) -> Scores:
        self.calls.append(("predict", len(states)))
        return self._table.predict_batch(states)

    def consume_batch(self, states: Sequence[Any], tokens: Sequence[int]) -> list[Any]:
        self.calls.append(("consume", len(states)))
        return self._table.consume_batch(states, tokens)


def test_all_rows_with_all_their_segmentations_are_one_inner_batch(tmp_path: Path) -> None:
    """Two segmentations a row: 3 may be 3 or 4."""
    write_automaton(tmp_path / "t.fst", [(0, (3, 3), 0.0, 0), (0, (3, 4), 0.0, 0)], {0: 0.0})
    inner = Counted()
    wrapper = FstTok(inner, str(tmp_path / "t.fst"))
    states = wrapper.initialize_batch([Source(n, (3,)) for n in (1, 2, 3)])
    wrapper.predict_batch(states)
    assert inner.calls == [("predict", 3)]
    states = wrapper.consume_batch(states, [3, 3, 3])
    wrapper.predict_batch(states)
    wrapper.predict_batch(states)
    assert inner.calls == [("predict", 3), ("consume", 6), ("predict", 6)]


def test_equal_inner_states_are_merged(tmp_path: Path) -> None:
    """After 3 tokens there are 8 segmentations; a bigram tells two of them from each other, and a bonus none."""
    write_automaton(tmp_path / "t.fst", [(0, (3, 3), 0.0, 0), (0, (3, 4), 0.0, 0)], {0: 0.0})
    for inner, pairs in ((Counted(), 8), (Table(np.zeros((V, V))), 2), (Bonus({3: -1.0}), 1)):
        wrapper = FstTok(lift(inner), str(tmp_path / "t.fst"))
        states = wrapper.initialize_batch([SOURCE])
        for _ in range(3):
            states = wrapper.consume_batch(states, [3])
        states_of_transducer = {pair.state for pair in states[0].pairs}
        assert len(states[0].pairs) == pairs * len(states_of_transducer)


def test_few_states_lose_segmentations_and_say_so(tmp_path: Path) -> None:
    drawn = Drawn({0: [TransducerArc(3, 3, 0.0, 0), TransducerArc(3, 4, 0.5, 0)]}, {0: 0.0})
    path = drawn.write(str(tmp_path / "t.fst"))
    table = np.full((V, V), -1.0)
    table[4, EOS] = 5.0  # what looks worse at first is better in the end
    exact, narrow, wide = (FstTok(lift(Table(table)), path, max_states=n) for n in (0, 1, 2))
    assert total(exact, (3,)) == total(wide, (3,)) == pytest.approx(3.5)
    assert total(narrow, (3,)) == pytest.approx(-2.0)
    assert exact.summary() is None and wide.summary() is None
    assert narrow.summary() == ("max_states 1 was too few for 1 of 1 prefixes: their scores miss segmentations")


def test_unknown_words_have_a_label_of_their_own_on_both_sides(tmp_path: Path) -> None:
    drawn = Drawn({0: [TransducerArc(UNK_LABEL, UNK_LABEL, 0.0, 0), TransducerArc(3, 4, 0.0, 0)]}, {0: 0.0})
    inner = Bonus({UNK: -7.0, 4: -1.0, EOS: -0.5}, default=FORBIDDEN)
    wrapper = FstTok(lift(inner), drawn.write(str(tmp_path / "t.fst")))
    assert total(wrapper, (UNK, 3)) == pytest.approx(-8.5)


def test_explicit_end_arcs_do_as_well_as_final_states(tmp_path: Path) -> None:
    drawn = Drawn({0: [TransducerArc(3, 4, 0.0, 0), TransducerArc(EOS, EOS, 0.25, 1)]}, {1: 0.5})
    wrapper = FstTok(lift(Bonus({4: -1.0, EOS: -0.5}, default=FORBIDDEN)), drawn.write(str(tmp_path / "t.fst")))
    assert total(wrapper, (3,)) == pytest.approx(-1.0 - 0.5 - 0.25 - 0.5)


def test_what_leads_nowhere_cannot_follow(tmp_path: Path) -> None:
    drawn = Drawn({0: [TransducerArc(3, 4, 0.0, 0), TransducerArc(4, 4, 0.0, 1)]}, {0: 0.0})
    wrapper = FstTok(lift(Bonus({})), drawn.write(str(tmp_path / "t.fst")))
    assert list(wrapper.predict_batch(wrapper.initialize_batch([SOURCE])).rows[0].tokens) == [EOS, 3]


def test_files_survive_writing_and_reading(tmp_path: Path) -> None:
    arcs = [TransducerArc(0, 3, 0.5, 1), TransducerArc(4, 0, 0.0, 0), TransducerArc(OTHERWISE, UNK_LABEL, 0.0, 1)]
    for name in ("t.fst", "t.fst.gz"):
        Drawn({0: arcs}, {1: 0.25}).write(str(tmp_path / name))
        read = read_transducer(tmp_path / name)
        assert read.arcs(0) == arcs and read.final.tolist() == [math.inf, 0.25]


@pytest.mark.parametrize(
    ("arcs", "final", "message"),
    [
        ([TransducerArc(0, 3, 0.0, 1), TransducerArc(3, 3, 0.0, 1)], {}, "is empty: no path leads to a final state"),
        ([TransducerArc(0, 3, 0.0, 0)], {0: 0.0}, "has a cycle of input epsilons (label 0) through state 0"),
        ([TransducerArc(9, 3, 0.0, 0)], {0: 0.0}, "state 0 has an arc 9:3; but the decoder has 6 target tokens"),
        ([TransducerArc(3, 2, 0.0, 0)], {0: 0.0}, "state 0 has an arc 3:2; </s> is read and written together"),
        ([TransducerArc(2, 4, 0.0, 0)], {0: 0.0}, "state 0 has an arc 2:4; </s> is read and written together"),
    ],
)
def test_a_transducer_that_cannot_be_used_is_one_clear_line(
    tmp_path: Path, arcs: list[TransducerArc], final: dict[int, float], message: str
) -> None:
    path = Drawn({0: arcs}, final).write(str(tmp_path / "t.fst"))
    with pytest.raises(SgdecError) as caught:
        FstTok(lift(Bonus({})), path, context=Context(vocab_size=6))
    assert str(caught.value).startswith(f"fsttok: {path}: ") and message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(SgdecError, match=r"no such file\. sgdec transducer builds one from two tokenizers"):
        FstTok(lift(Bonus({})), str(tmp_path / "none.fst"))


def test_an_output_side_that_the_inner_predictor_does_not_have_is_a_wrong_call(tmp_path: Path) -> None:
    path = Drawn({0: [TransducerArc(3, 11, 0.0, 0)]}, {0: 0.0}).write(str(tmp_path / "t.fst"))
    wrapper = FstTok(lift(Table(np.zeros((V, V)))), path)
    with pytest.raises(UsageError, match="writes token 11, but the inner predictor has 6 tokens"):
        wrapper.predict_batch(wrapper.initialize_batch([SOURCE]))


class TestFstTok(FstTokContract):
    pass


class TestFstTokInArrays(TestFstTok):
    @pytest.fixture(autouse=True)
    def _in_arrays(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(fsttok, "WIDE", 0)


class TestFstTokThatSumsInArrays(TestFstTokInArrays):
    options: ClassVar[dict[str, Any]] = {"semiring": "log"}

    def inner(self) -> Predictor | BatchPredictor:
        return inner_predictor("lattice", np.random.default_rng(4))


@pytest.mark.parametrize("semiring", ["tropical", "log"])
@pytest.mark.parametrize("kind", INNER)
def test_arrays_say_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, semiring: Any) -> None:
    rows = []
    for wide in (0, 256):
        monkeypatch.setattr(fsttok, "WIDE", wide)
        inner = inner_predictor(kind, np.random.default_rng(4))
        wrapper = FstTok(lift(inner), ambiguous(tmp_path), semiring=semiring)
        states = wrapper.initialize_batch([SOURCE])
        for token in (3, 3, 4, 3):
            rows.append(read_row(wrapper.predict_batch(states), 0, V))
            states = wrapper.consume_batch(states, [token])
    assert np.allclose(rows[:4], rows[4:], rtol=0, atol=1e-12)


class TestFstTokThatSums(TestFstTok):
    options: ClassVar[dict[str, Any]] = {"semiring": "log"}


class TestFstTokAroundLogProbabilities(TestFstTok):
    """Without keys, without bounds of its own."""

    @pytest.fixture(autouse=True)
    def _shorter(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without keys no two readings of a prefix merge, so each token of a long walk costs more than the last."""
        monkeypatch.setattr(walks, "FAR", 25)

    def inner(self) -> BatchPredictor:
        return Counted()


class TestFstTokOnDemand(TestFstTok):
    def inner(self) -> Predictor:
        return OnDemandTable(np.random.default_rng(1).uniform(-3, 1, (V, V)))


class TestFstTokAroundALattice(TestFstTok):
    def inner(self) -> Predictor | BatchPredictor:
        return inner_predictor("lattice", np.random.default_rng(4))


class TestFstTokWithFewStates(TestFstTok):
    options: ClassVar[dict[str, Any]] = {"max_states": 2}


class TestNestedFstTok(TestFstTok):
    walk_length = 6 if EXHAUSTIVE else 4
    walks = 3 if EXHAUSTIVE else 2

    def inner(self) -> BatchPredictor:
        return FstTok(lift(super().inner()), self.path)


def test_the_kit_can_rank_paths_through_a_transducer(tmp_path: Path) -> None:
    """The ledger adds up: one expansion after the other, as `score_path` walks them."""
    constellation = Constellation.of({"words": FstTok(lift(Table(np.full((V, V), -1.0))), ambiguous(tmp_path))})
    paths = enumerate_space(constellation, SOURCE)
    assert paths
    for path in paths:
        found, ledger = score_path(constellation, SOURCE, path.tokens)
        assert found == pytest.approx(path.total) == pytest.approx(sum(row[0] for row in ledger))
    assert BOS not in {token for path in paths for token in path.tokens}
