"""The promise: a trace says what a search did, and every way to run the search gives the same one.

What it says of dropped nodes is compared with whole spaces in the contracts of the decoders (`sgdec.testing`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sgdec_decoders.astar import AStarDecoder
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.diverse import DiverseDecoder
from sgdec_decoders.greedy import GreedyDecoder
from sgdec_decoders.sample import SampleDecoder
from sgdec_decoders.sepbeam import SepBeamDecoder
from sgdec_decoders.stochastic import StochasticDecoder
from sgdec_decoders.vanilla import VanillaDecoder
from sgdec_predictors.fst import FstPredictor

from sgdec import EOS, Node, Result, SearchSpace
from sgdec.decoder import Decoder
from sgdec.protocol import FORBIDDEN, Source
from sgdec.search.constellation import Constellation
from sgdec.search.scheduler import Scheduler
from sgdec.testing import BatchTable, Lattice, Table, TinySpace, random_space
from sgdec.testing.random_spaces import KINDS
from sgdec.testing.toys import Bonus
from sgdec.trace.records import Fate, SentenceTrace, Tracing, unsaid
from tests.helpers.automata import compiled

FEW = Tracing(children=3)
OPEN_KINDS = tuple(kind for kind in KINDS if kind not in ("lattice", "on demand"))


def traces(
    tiny: TinySpace, decoder: Decoder, *, sentences: int = 3, nbest: int = 2, tracing: Tracing = FEW, **more: Any
) -> list[SentenceTrace | None]:
    """Those of several copies of the sentence."""
    sources = [replace(tiny.source, id=number) for number in range(1, sentences + 1)]
    scheduler = Scheduler(tiny.constellation(), decoder, nbest=nbest, tracing=tracing, **more)
    return [outcome.trace for outcome in scheduler.run(sources)]


def only(found: list[SentenceTrace | None]) -> SentenceTrace:
    (trace,) = found
    assert trace is not None
    return trace


# The same trace in every way.

BEAMS = st.fixed_dictionaries({
    "size": st.integers(1, 4),
    "stop": st.sampled_from(["best", "full", "length", "proven"]),
    "alpha": st.sampled_from([0.0, 0.7]),
    "prune_local": st.sampled_from([0.0, 0.5]),
    "prune_final": st.sampled_from([0.0, 0.3]),
})  # fmt: skip


@given(seed=st.integers(0, 2**32), options=BEAMS, batch_size=st.sampled_from([1, 4]))
def test_vanilla_gives_the_trace_of_beam(seed: int, options: dict[str, Any], batch_size: int) -> None:
    tiny = random_space(np.random.default_rng(seed), kinds=OPEN_KINDS)
    if tiny.source.max_length is None:
        tiny = replace(tiny, source=replace(tiny.source, max_length=3))
    of_beam, of_arrays = (
        traces(tiny, decoder(**options), batch_size=batch_size) for decoder in (BeamDecoder, VanillaDecoder)
    )
    assert of_beam == of_arrays
    assert None not in of_beam


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [1, 32])
@pytest.mark.parametrize("seed", range(5))
def test_automata_on_arrays_give_the_trace_that_nodes_give(tmp_path: Path, seed: int, batch_size: int) -> None:
    rng = np.random.default_rng(seed)
    pairs = [(at, label) for at in range(4) for label in range(3, 8) if rng.random() < 0.7]
    arcs = [f"{at} {at + 1} {label} {rng.normal():.3f}" for at, label in pairs]
    path = str(tmp_path / "x.fst")
    compiled("\n".join([*arcs, "0 1 8", "1 2 8", "2 3 8", "3 4 8", "4 0.5", "2 1.5", ""])).write(path)
    tiny = TinySpace("lattice", lambda: Constellation.of({"fst": FstPredictor(path)}), SOURCE)
    for stop in ("best", "full", "length", "proven"):
        options: dict[str, Any] = {"size": 3, "stop": stop}
        of_beam, of_arrays = (
            traces(tiny, decoder(**options), batch_size=batch_size) for decoder in (BeamDecoder, VanillaDecoder)
        )
        assert of_beam == of_arrays


@given(seed=st.integers(0, 2**32), decoder=st.sampled_from([BeamDecoder(3), GreedyDecoder(), SampleDecoder(2)]))
def test_batches_change_no_trace(seed: int, decoder: Decoder) -> None:
    tiny = random_space(np.random.default_rng(seed))
    if tiny.source.max_length is None:
        tiny = replace(tiny, source=replace(tiny.source, max_length=3))
    alone = traces(tiny, decoder, batch_size=1)
    assert alone == traces(tiny, decoder, batch_size=2)
    assert alone == traces(tiny, decoder, batch_size=8, max_rows=1)


def test_only_the_sentences_that_are_asked_for_are_traced() -> None:
    tiny = random_space(np.random.default_rng(3), kinds=("table",))
    found = traces(tiny, BeamDecoder(2), sentences=5, tracing=Tracing(first=2, last=3))
    assert [None if trace is None else trace.id for trace in found] == [None, 2, 3, None, None]


# The content.

SOURCE = Source(1, (3,), max_length=3)


@pytest.fixture
def two() -> TinySpace:
    """Two tables over five tokens; the first forbids token 3, the second token 4."""
    rows = np.array([[-2.0, -9.0, -1.5, FORBIDDEN, -0.1], [-1.0, -9.0, -2.0, -0.2, FORBIDDEN]])
    tables = [np.tile(row, (5, 1)) for row in rows]
    return TinySpace("two", lambda: Constellation.of(dict(zip("ab", map(Table, tables), strict=True))), SOURCE)


def test_children_are_the_best_ones_with_the_scores_of_each_predictor(two: TinySpace) -> None:
    first = only(traces(two, BeamDecoder(2), sentences=1)).expansions[0]
    assert (first.parent, first.token, first.candidates, first.ending) == (None, None, 5, False)
    assert first.tokens == (0, 2, 1)
    assert first.totals == (-3.0, -3.5, -18.0)
    assert first.scores == ((-2.0, -1.0), (-1.5, -2.0), (-9.0, -9.0))
    assert first.fates == (1, Fate.LISTED, Fate.BEAM)


def test_a_predictor_alone_chooses_its_best_token_and_others_forbid_it(two: TinySpace) -> None:
    trace = only(traces(two, GreedyDecoder(), sentences=1))
    a, b = trace.expansions[0].alone
    assert a is not None and (a.token, a.score, a.forbidden_by) == (4, -0.1, (1,))
    assert b is not None and (b.token, b.score, b.forbidden_by) == (3, -0.2, (0,))
    last = trace.expansions[-1]
    assert last.ending and last.tokens == (2,)


@pytest.mark.parametrize(("weight", "wanted"), [(1.0, (4, -0.1)), (-0.5, (1, -9.0)), (0.0, None)])
@pytest.mark.parametrize("dense", [True, False])
def test_a_predictor_alone_prefers_by_the_sign_of_its_weight(
    weight: float, wanted: tuple[int, float] | None, dense: bool
) -> None:
    scores = {0: -2.0, 1: -9.0, 2: -1.5, 4: -0.1}  # and token 3 is forbidden

    def make() -> Constellation:
        row = [scores.get(token, FORBIDDEN) for token in range(5)]
        one = Table(np.tile(row, (5, 1))) if dense else Bonus(scores, default=FORBIDDEN)
        return Constellation.of({"a": one, "b": Table(np.zeros((5, 5)))}, weights=(weight, 1.0))

    first = only(traces(TinySpace("signed", make, SOURCE), GreedyDecoder(), sentences=1)).expansions[0]
    assert wanted == (None if first.alone[0] is None else (first.alone[0].token, first.alone[0].score))


def test_a_predictor_that_rewards_all_tokens_but_one_prefers_none() -> None:
    def make() -> Constellation:
        words = Bonus({2: 0.0}, default=-1.0)
        return Constellation.of({"wc": words, "b": Table(np.zeros((5, 5)))}, weights=(-3.0, 1.0))

    first = only(traces(TinySpace("rewarded", make, SOURCE), GreedyDecoder(), sentences=1)).expansions[0]
    assert first.alone[0] is None


def test_a_lattice_forbids_what_it_does_not_list() -> None:
    def make() -> Constellation:
        row = np.log([0.05, 0.05, 0.1, 0.5, 0.3])
        lattice = Lattice({0: {4: (0.0, 1)}, 1: {2: (0.0, 2)}})
        return Constellation.of({"model": Table(np.tile(row, (5, 1))), "fst": lattice})

    first = only(traces(TinySpace("with a lattice", make, SOURCE), GreedyDecoder(), sentences=1)).expansions[0]
    model, lattice = first.alone
    assert model is not None and (model.token, model.forbidden_by) == (3, (1,))
    assert lattice is not None and (lattice.token, lattice.forbidden_by) == (4, ())
    assert (first.candidates, first.tokens, dict(first.place)) == (1, (4,), {"fst": "0"})


def test_other_tokens_that_a_decoder_draws_are_children_too() -> None:
    tiny = TinySpace("flat", lambda: Constellation.of({"a": Table(np.zeros((9, 9)))}), SOURCE)
    trace = only(traces(tiny, SampleDecoder(30), sentences=1, tracing=Tracing(children=1)))
    first = trace.expansions[0]
    assert len(first.tokens) > 3 and first.tokens[0] == 0
    assert first.rest == Fate.UNDRAWN
    assert {trace.expansions[fate].token for fate in first.fates if isinstance(fate, int)} <= set(first.tokens)


def test_groups_and_draws_are_noted(two: TinySpace) -> None:
    trace = only(traces(two, DiverseDecoder(2, strength=9.0), sentences=1))
    assert trace.expansions[0].notes == {0: ("group 1",), 2: ("group 2",)}
    trace = only(traces(two, DiverseDecoder(2, strength=0.0), sentences=1))
    assert trace.expansions[0].notes == {0: ("group 1", "group 2")}
    for decoder in (StochasticDecoder(3), SampleDecoder(3)):
        trace = only(traces(two, decoder, sentences=1))
        drawn = {note for each in trace.expansions for notes in each.notes.values() for note in notes}
        assert drawn == {"draw 1", "draw 2", "draw 3"}


def test_the_note_of_a_lost_draw_is_where_it_was_lost() -> None:
    """Nothing follows 4."""
    trap = Lattice({0: {3: (0.0, 1), 4: (0.0, 2)}, 1: {EOS: (0.0, 9)}})
    tiny = TinySpace("trap", lambda: Constellation.of({"a": trap}, vocab_size=9), SOURCE)
    trace = only(traces(tiny, SampleDecoder(20), sentences=1))
    root, others = trace.expansions[0], [each for each in trace.expansions if each.token == 3]
    lost, ended = set(root.notes[4]), set(others[0].notes[EOS])
    assert lost and ended and not lost & ended and set(root.notes) == {4}
    assert lost | ended == {f"draw {number}" for number in range(1, 21)}


def test_each_system_of_a_separate_beam_has_a_root_with_its_weights(two: TinySpace) -> None:
    trace = only(traces(two, SepBeamDecoder(3), sentences=1))
    roots = [expansion for expansion in trace.expansions if expansion.parent is None]
    assert [root.weights for root in roots] == [(1.0, None), (None, 1.0)]
    assert roots[0].alone[1] is None


def test_later_expansions_are_only_counted(two: TinySpace) -> None:
    whole = only(traces(two, BeamDecoder(3, stop="full"), sentences=1))
    some = only(traces(two, BeamDecoder(3, stop="full"), sentences=1, tracing=Tracing(children=3, expansions=2)))
    assert some.counted == whole.counted > 3
    assert len(some.expansions) == 2
    assert [each.tokens for each in some.expansions] == [each.tokens for each in whole.expansions[:2]]
    assert some.hypotheses[0].tokens == whole.hypotheses[0].tokens
    assert all(fate < 2 for each in some.expansions for fate in each.fates if isinstance(fate, int))


class SecondBest(Decoder):
    """Looks at two children of each node, takes the second, and says nothing."""

    def decode(self, space: SearchSpace) -> Result:
        node: Node = space.root
        while not node.finished:
            (children,) = space.expand([node], limit=2)
            node = children[-1]
        return Result([space.finish(node)])


def test_a_node_of_which_nothing_is_said_is_seen(two: TinySpace) -> None:
    trace = only(traces(two, SecondBest(), sentences=1, nbest=1))
    silent = unsaid(trace)
    assert [(expansion.number, child.token) for expansion, child in silent] == [(0, 0)]
    assert trace.stopped is None


def test_a_search_without_a_hypothesis_has_a_trace() -> None:
    def make() -> Constellation:
        return Constellation.of({"a": Table(np.full((5, 5), FORBIDDEN))})

    trace = only(traces(TinySpace("empty", make, SOURCE), GreedyDecoder(), sentences=1))
    assert trace.error is not None and trace.stopped == "dead end"
    assert trace.expansions[0].tokens == ()
    assert trace.hypotheses == ()


class Distracted(BatchTable):
    """Its attention is not a number."""

    def attention(self, states: Sequence[Any]) -> list[Any]:
        return [np.full(2, np.nan) for _ in states]


def test_attention_that_is_not_a_number_is_left_out() -> None:
    tiny = TinySpace("nan", lambda: Constellation.of({"a": Distracted(np.zeros((5, 5)))}), SOURCE)
    first = only(traces(tiny, GreedyDecoder(), sentences=1)).expansions[0]
    assert (dict(first.attention), dict(first.place)) == ({}, {"a": "after 1"})


def test_the_bound_of_a_best_first_search_falls_to_the_optimum() -> None:
    tiny = random_space(np.random.default_rng(1), kinds=("table",), highest=0.0)
    tiny = replace(tiny, source=replace(tiny.source, max_length=3))
    trace = only(traces(tiny, AStarDecoder(), sentences=1))
    assert trace.bounds[0].expansions == 0
    assert trace.bounds[-1].bound == trace.bounds[-1].best
    bounds = [bound.bound for bound in trace.bounds]
    assert bounds == sorted(bounds, reverse=True) and len(bounds) > 2
