"""`fsttok` with lookahead: the score of a prefix has what may come next, and totals stay the same.

The oracle lists paths of drawn transducers by plain recursion.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sgdec_decoders.astar import AStarDecoder
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.dfs import DfsDecoder
from sgdec_predictors import fsttok
from sgdec_predictors.fsttok import FstTok
from sgdec_predictors.wrapping.transducer import SILENT

from sgdec import BOS, EOS, SgdecError
from sgdec.io.transducer import OTHERWISE, TransducerArc, write_transducer
from sgdec.lifting import lift
from sgdec.protocol import FORBIDDEN, BatchPredictor, Predictor
from sgdec.testing import BatchTable, Bonus, Lattice, OnDemandTable, Table, enumerate_space
from sgdec.testing.reading import read_row
from tests.helpers.breadth import examples
from tests.helpers.drawn_transducers import Drawn
from tests.helpers.fsttok_contract import OUTER, SOURCE, FstTokContract, V, strings, together, total
from tests.helpers.oracles import opened, tiny
from tests.helpers.random_spaces import search

KINDS = ("table", "batch", "lattice")
SEMIRINGS = ("tropical", "log")
AHEAD = ("best", "sum")


@st.composite
def transducers(draw: st.DrawFn) -> Drawn:
    """Without negative costs."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    states = int(rng.integers(1, 6))
    arcs: dict[int, list[TransducerArc]] = {}
    for _ in range(states * int(rng.integers(1, 5))):
        state = int(rng.integers(states))
        silent = state + 1 < states and rng.random() < 0.3
        label = int(rng.choice([OTHERWISE, 0])) if silent else int(rng.choice(OUTER))
        target = int(rng.integers(state + 1, states)) if silent else int(rng.integers(states))
        cost = float(np.float32(rng.choice([0.0, 0.0, 0.5, 1.25])))
        arcs.setdefault(state, []).append(TransducerArc(label, int(rng.choice([0, 0, 3, 4, 5])), cost, target))
    final = {state: float(rng.choice([0.0, 0.5])) for state in range(states) if rng.random() < 0.6}
    return Drawn(arcs, final or {0: 0.0})


def inner_predictor(kind: str, seed: int) -> BatchPredictor:
    """Scores are never positive."""
    rng = np.random.default_rng(seed)
    table = rng.uniform(-3.0, 0.0, (V, V))
    table[rng.random((V, V)) < 0.1] = FORBIDDEN
    if kind == "lattice":
        rows = {q: {t: (float(table[q, t]), int(rng.integers(q + 1, 6))) for t in range(2, V)} for q in range(5)}
        return lift(Lattice({q: {t: to for t, to in row.items() if to[0] != FORBIDDEN} for q, row in rows.items()}))
    predictor = lift(Table(table) if kind == "table" else BatchTable(table))
    predictor.max_score = 0.0
    return predictor


def wrapped(drawn: Drawn, kind: str, seed: int, **options: Any) -> FstTok | None:
    """None if no path leads to an end."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            return FstTok(inner_predictor(kind, seed), drawn.write(f"{folder}/t.fst"), **options)
        except SgdecError as error:
            assert "is empty" in str(error)
            return None


def leads_to_an_end(drawn: Drawn, state: int) -> bool:
    seen = {state}
    for _ in range(6):
        seen.update(arc.target for each in seen.copy() for arc in drawn.arcs.get(each, []))
    return not seen.isdisjoint(drawn.final)


def ends(drawn: Drawn, tokens: Sequence[int]) -> list[tuple[float, tuple[int, ...], int, bool]]:
    """Of each path up to the arc that reads the last token: score, inner tokens, state, whether that arc wrote."""

    def walk(state: int, left: Sequence[int], barred: frozenset[int]) -> Any:
        own = drawn.arcs.get(state, [])
        read_here = frozenset(arc.input for arc in own) | ({EOS} if state in drawn.final else set())
        for arc in own:
            if not leads_to_an_end(drawn, arc.target):
                continue
            written = (arc.output,) if arc.output else ()
            if arc.input == 0:
                further = walk(arc.target, left, barred)
            elif arc.input == OTHERWISE:
                further = () if left[0] in read_here else walk(arc.target, left, barred | read_here)
            elif arc.input != left[0] or left[0] in barred:
                further = ()
            elif left[1:]:
                further = walk(arc.target, left[1:], frozenset())
            else:
                further = [(0.0, (), arc.target, bool(written))]
            for score, rest, state_after, wrote_last in further:
                yield score - arc.cost, (*written, *rest), state_after, wrote_last

    return list(walk(0, tokens, frozenset())) if tokens else [(0.0, (), 0, True)]


def next_outputs(drawn: Drawn, state: int, steps: int = 6) -> dict[int, float]:
    """By inner token the best path that writes it first, which has few steps; `SILENT` if it comes to the start."""
    if state == 0:
        return {SILENT: 0.0}
    found = {EOS: -drawn.final[state]} if state in drawn.final else {}
    for arc in drawn.arcs.get(state, []) if steps else ():
        after = {arc.output: 0.0} if arc.output else next_outputs(drawn, arc.target, steps - 1)
        if leads_to_an_end(drawn, arc.target):
            for token, score in after.items():
                found[token] = max(found.get(token, FORBIDDEN), score - arc.cost)
    return found


def scores_of(inner: BatchPredictor) -> Callable[[tuple[int, ...]], float]:
    """By inner tokens the sum of their scores, asked for once each."""

    @cache
    def after(tokens: tuple[int, ...]) -> tuple[float, Any, list[float]]:
        if not tokens:
            before, states = 0.0, inner.initialize_batch([SOURCE])
        else:
            total_before, state, row = after(tokens[:-1])
            before = total_before + row[tokens[-1]]
            if before == FORBIDDEN or tokens[-1] == EOS:
                return before, None, []
            states = inner.consume_batch([state], tokens[-1:])
        return before, states[0], read_row(inner.predict_batch(states), 0, V).tolist()

    def score(tokens: tuple[int, ...]) -> float:
        before = next((n for n in range(len(tokens)) if after(tokens[:n])[0] == FORBIDDEN), None)
        return after(tokens)[0] if before is None else FORBIDDEN

    return score


@pytest.mark.parametrize("wide", [0, 16])
@settings(max_examples=examples(15), deadline=None)
@given(transducers(), st.sampled_from(KINDS), st.sampled_from(SEMIRINGS), st.sampled_from(AHEAD), st.integers(0, 99))
def test_a_prefix_has_what_may_come_next_and_totals_are_the_same(
    wide: int, drawn: Drawn, kind: str, semiring: Any, lookahead: Any, seed: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fsttok, "WIDE_LOOKAHEAD", wide)
        wrapper = wrapped(drawn, kind, seed, semiring=semiring, lookahead=lookahead)
        if wrapper is None:
            return
        highest = math.inf if kind == "lattice" else 0.0
        inner = scores_of(inner_predictor(kind, seed))
        for string in strings():
            expected = []
            for score, z, state, wrote in ends(drawn, string):
                if inner(z) == FORBIDDEN:
                    continue
                outputs = next_outputs(drawn, state).items()
                hopes = [s if w == SILENT else s + inner((*z, w)) - inner(z) for w, s in outputs]
                ahead = 0.0 if wrote else min(together(hopes, "log" if lookahead == "sum" else "tropical"), highest)
                expected.append(score + inner(z) + ahead)
            assert prefix_score(wrapper, string) == pytest.approx(together(expected, semiring), abs=1e-9)
            complete = [score + inner((*z, EOS)) for score, z in drawn.paths(string)]
            assert total(wrapper, string) == pytest.approx(together(complete, semiring), abs=1e-9)


def prefix_score(predictor: BatchPredictor, tokens: Sequence[int]) -> float:
    states, found = predictor.initialize_batch([SOURCE]), 0.0
    for token in tokens:
        found += predictor.predict_batch(states).rows[0].get(token)
        if found == FORBIDDEN:
            return FORBIDDEN
        states = predictor.consume_batch(states, [token])
    return found


@settings(max_examples=examples(15), deadline=None)
@given(transducers(), st.sampled_from(KINDS), st.sampled_from(AHEAD), st.integers(0, 99))
def test_exact_decoders_stay_exact(drawn: Drawn, kind: str, lookahead: Any, seed: int) -> None:
    wrapper = wrapped(drawn, kind, seed, lookahead=lookahead)
    if wrapper is None:
        return
    space = tiny(3, [1.0, 0.25], 9, a=wrapper, b=Bonus({3: -0.5}, default=-0.25))
    expected = [path.total for path in enumerate_space(space.constellation(), space.source)[:2]]
    for decoder in (DfsDecoder(), AStarDecoder(), DfsDecoder(recombine=True)):
        found = decoder.decode(opened(space, nbest=2))
        assert found.proven
        assert [h.score for h in found.hypotheses] == pytest.approx(expected, abs=1e-9)


def tree(folder: Path) -> str:
    """3 4 4 spells word 3 and 3 4 5 word 4, which are written at their ends; 5 5 5 spells word 5."""
    spelled = {(3, 4, 4): 3, (3, 4, 5): 4, (5, 5, 5): 5}
    arcs: list[tuple[int, TransducerArc]] = []
    places: dict[tuple[int, ...], int] = {(): 0}
    for spelling, word in spelled.items():
        for end in range(1, 4):
            if spelling[:end] not in places:
                target = 0 if end == 3 else places.setdefault(spelling[:end], len(places))
                arc = TransducerArc(spelling[end - 1], word if end == 3 else 0, 0.0, target)
                arcs.append((places[spelling[: end - 1]], arc))
    path = str(folder / "tree.fst")
    write_transducer(path, arcs, {0: 0.0})
    return path


def of_words(**scores: float) -> BatchPredictor:
    """A predictor of words 3, 4 and 5 that has these scores everywhere. An output is not empty."""
    table = np.array([[FORBIDDEN, FORBIDDEN, -0.5, *(scores[word] for word in ("three", "four", "five"))]] * V)
    table[BOS, EOS] = FORBIDDEN
    predictor = lift(BatchTable(table))
    predictor.max_score = 0.0
    return predictor


def row_after(wrapper: FstTok, tokens: Sequence[int]) -> dict[int, float]:
    states = wrapper.initialize_batch([SOURCE])
    for token in tokens:
        states = wrapper.consume_batch(states, [token])
    return dict(wrapper.predict_batch(states).rows[0].lookup)


def test_the_first_character_is_charged_what_words_may_come_and_the_next_ones_correct_it(tmp_path: Path) -> None:
    words = partial(FstTok, of_words(three=-1.0, four=-4.0, five=-7.0), tree(tmp_path))
    best = words(lookahead="best")
    assert row_after(best, ()) == {3: -1.0, 5: -7.0}
    assert row_after(best, (3,)) == {4: 0.0}
    assert row_after(best, (3, 4)) == {4: 0.0, 5: -3.0}
    both = float(np.logaddexp(-1.0, -4.0))
    assert row_after(words(), ()) == pytest.approx({3: both, 5: -7.0})
    assert row_after(words(), (3, 4)) == pytest.approx({4: -1.0 - both, 5: -4.0 - both})
    without = words(lookahead="none")
    assert row_after(without, ()) == {3: 0.0, 5: 0.0}
    assert row_after(without, (3, 4)) == {4: -1.0, 5: -4.0}


def test_sums_of_scores_that_are_no_probabilities_do_not_rise(tmp_path: Path) -> None:
    wrapper = FstTok(of_words(three=-0.1, four=-0.1, five=-0.1), tree(tmp_path))
    assert row_after(wrapper, ()) == {3: 0.0, 5: -0.1}
    assert wrapper.max_score == 0.0


@pytest.mark.parametrize(
    ("words", "costs"),
    [(Bonus({3: 1.0}, default=-1.0), 0.0), (OnDemandTable(np.zeros((V, V))), 0.0), (Bonus({}), -1.0)],
)
def test_where_it_is_impossible_there_is_none(tmp_path: Path, words: Predictor, costs: float) -> None:
    """Scores that rise without a bound, a predictor on demand, a cost below 0."""
    arcs = {0: [TransducerArc(3, 0, 0.0, 1)], 1: [TransducerArc(4, 3, costs, 0), TransducerArc(5, 4, 0.0, 0)]}
    path = Drawn(arcs, {0: 0.0}).write(str(tmp_path / "t.fst"))
    inner = lift(words)
    inner.best_remaining = None  # type: ignore[attr-defined]
    first, second = (FstTok(inner, path, lookahead=lookahead) for lookahead in ("sum", "none"))  # type: ignore[arg-type]
    for tokens in ((), (3,), (3, 4)):
        assert row_after(first, tokens) == row_after(second, tokens)


def test_a_narrow_beam_keeps_the_better_word_though_its_characters_score_worse(tmp_path: Path) -> None:
    """Beside it a model of characters prefers the first character of the bad word."""
    letters = Bonus({3: -1.5, 5: -0.5}, default=-0.5)
    best = {}
    for lookahead in ("sum", "best", "none"):
        words = FstTok(of_words(three=-1.0, four=-4.0, five=-7.0), tree(tmp_path), lookahead=lookahead)  # type: ignore[arg-type]
        result, _ = search(BeamDecoder(size=1), tiny(3, None, V, words=words, letters=letters))
        best[lookahead] = result.hypotheses[0].tokens
    assert best == {"sum": (3, 4, 4), "best": (3, 4, 4), "none": (5, 5, 5)}


def test_few_states_are_chosen_with_lookahead(tmp_path: Path) -> None:
    """3 spells word 3, or begins word 4, whose score is worse, but which is not written yet."""
    drawn = Drawn({0: [TransducerArc(3, 3, 0.0, 2), TransducerArc(3, 0, 0.0, 1)], 1: [TransducerArc(4, 4, 0.0, 2)]},
                  {2: 0.0})  # fmt: skip
    path = drawn.write(str(tmp_path / "t.fst"))
    kept = {}
    for lookahead in ("sum", "none"):
        words = of_words(three=-1.0, four=-4.0, five=-7.0)
        wrapper = FstTok(words, path, max_states=1, lookahead=lookahead)  # type: ignore[arg-type]
        (state,) = wrapper.consume_batch(wrapper.initialize_batch([SOURCE]), [3])
        kept[lookahead] = [pair.state for pair in state.pairs]
    assert kept == {"sum": [2], "none": [1]}


INSIDE = "prefixes that could only end, mostly at the length limit, but stood inside a word: 2"


def test_a_search_that_ends_inside_a_word_says_so(tmp_path: Path) -> None:
    wrapper = FstTok(of_words(three=-1.0, four=-4.0, five=-7.0), tree(tmp_path))
    for length, said in ((3, None), (2, INSIDE)):
        result, _ = search(BeamDecoder(size=2), tiny(length, None, V, words=wrapper))
        assert bool(result.hypotheses) == (said is None) and wrapper.summary() == said


def test_only_prefixes_that_have_to_end_are_counted(tmp_path: Path) -> None:
    wrapper = FstTok(of_words(three=-1.0, four=-4.0, five=-7.0), tree(tmp_path))
    states = wrapper.consume_batch(wrapper.initialize_batch([SOURCE]), [3])
    for wanted in ([4], [EOS, 4], [3, 4, 5]):
        wrapper.predict_batch(states, [wanted])
    assert wrapper.summary() is None
    wrapper.predict_batch(states, [[EOS]])
    assert wrapper.summary() == INSIDE.replace("2", "1")


def test_paths_that_lead_to_forbidden_words_alone_are_left(tmp_path: Path) -> None:
    """3 begins words 3 and 4, which are written after 4 4 and 4 5; another path writes word 5 with it."""
    arcs = {
        0: [TransducerArc(3, 0, 0.0, 1), TransducerArc(3, 5, 0.0, 0)],
        1: [TransducerArc(4, 0, 0.0, 2)],
        2: [TransducerArc(4, 3, 0.0, 0), TransducerArc(5, 4, 0.0, 0)],
    }
    words = of_words(three=FORBIDDEN, four=FORBIDDEN, five=-1.0)
    wrapper = FstTok(words, Drawn(arcs, {0: 0.0}).write(str(tmp_path / "t.fst")))
    (state,) = wrapper.consume_batch(wrapper.initialize_batch([SOURCE]), [3])
    assert [pair.state for pair in state.pairs] == [0]


class TestFstTokLookingAhead(FstTokContract):
    def inner(self) -> BatchPredictor:
        return inner_predictor("batch", 1)


class TestFstTokLookingAheadInArrays(TestFstTokLookingAhead):
    options: ClassVar[dict[str, Any]] = {"semiring": "log"}

    @pytest.fixture(autouse=True)
    def _in_arrays(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(fsttok, "WIDE_LOOKAHEAD", 0)


class TestFstTokWithoutLookahead(TestFstTokLookingAhead):
    options: ClassVar[dict[str, Any]] = {"lookahead": "none"}
