"""Exact decoders under every ranking, over large vocabularies, in time, and with bounds that do not hold.

What any exact decoder promises is in `ExactDecoderContract` (`tests.decoders.test_contracts`).
The oracle is `sgdec.testing.enumerate_space`, which shares no code with searches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sgdec_decoders import _branch_and_bound
from sgdec_decoders.astar import AStarDecoder
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.bucket import BucketDecoder
from sgdec_decoders.dfs import DfsDecoder
from sgdec_decoders.lendfs import LenDfsDecoder
from sgdec_decoders.restarting import RestartingDecoder

from sgdec import BOS, EOS, Decoder, Node, Predictor, Scores, SearchSpace, SgdecError, UsageError
from sgdec.protocol import Candidates
from sgdec.testing import Lattice, Table, TinySpace
from sgdec.testing.random_spaces import CappedTable
from tests.helpers.breadth import examples
from tests.helpers.oracles import tiny
from tests.helpers.random_spaces import expect_the_nbest, random_spaces, search

Make = Callable[..., Decoder]
EXACT: dict[str, Make] = {
    "dfs": DfsDecoder,
    "astar": AStarDecoder,
    "restarting": RestartingDecoder,
    "bucket": BucketDecoder,
}
every_exact = pytest.mark.parametrize("make", [*EXACT.values(), LenDfsDecoder], ids=[*EXACT, "lendfs"])
every_nbest = pytest.mark.parametrize("make", EXACT.values(), ids=EXACT)
few = settings(max_examples=examples(30))


@every_nbest
@few
@given(
    space=random_spaces(),
    alpha=st.sampled_from([-0.5, 0.6, 1.0, 1.5]),
    normalize=st.sampled_from(["gnmt", "length"]),
    nbest=st.integers(1, 4),
    recombine=st.booleans(),
)
def test_the_true_nbest_is_found_under_any_length_normalisation(
    make: Make, space: TinySpace, alpha: float, normalize: str, nbest: int, recombine: bool
) -> None:
    decoder = make(alpha=alpha, normalize=normalize, recombine=recombine)
    result, _ = search(decoder, space, nbest)
    expect_the_nbest(result, space, decoder, nbest)
    assert result.proven


@every_nbest
@few
@given(
    space=random_spaces() | random_spaces(kinds=["falling", "capped"], weights=[1.0, 0.5]),
    block=st.integers(1, 2),
    alpha=st.sampled_from([0.0, -0.5, 1.0]),
    nbest=st.sampled_from([1, 3]),
)
def test_the_true_nbest_is_found_whatever_the_size_of_a_block(
    make: Make, space: TinySpace, block: int, alpha: float, nbest: int
) -> None:
    decoder = make(alpha=alpha)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_branch_and_bound, "BLOCK", block)
        result, _ = search(decoder, space, nbest)
    expect_the_nbest(result, space, decoder, nbest)


@every_exact
def test_a_child_in_a_later_block_may_gain_as_much_as_max_score_says(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After 3 the end adds nothing, after 0, which comes later, it gains 5."""
    table = np.full((4, 4), -9.0)
    table[BOS] = [-2.0, -9.0, -9.0, -1.0]
    table[[3, 0], EOS] = 0.0, 5.0
    monkeypatch.setattr(_branch_and_bound, "BLOCK", 1)
    result, _ = search(make(), tiny(1, a=CappedTable(table)))
    assert [h.score for h in result.hypotheses] == [3.0]


@every_exact
def test_a_child_in_a_later_block_may_be_better_than_it_looks(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    lattice = Lattice({0: {3: (-1.0, 1), 4: (-2.0, 2)}, 1: {EOS: (0.0, 9)}, 2: {EOS: (5.0, 9)}})
    monkeypatch.setattr(_branch_and_bound, "BLOCK", 1)
    result, _ = search(make(), tiny(a=lattice))
    assert [h.score for h in result.hypotheses] == [3.0]


@every_exact
def test_a_search_ends_when_its_time_is_up(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that only expansions move."""
    space = tiny(6, [1.0], 5, a=Table(np.random.default_rng(5).normal(size=(5, 5))))
    now = 0.0
    expand = SearchSpace.expand

    def slow(self: SearchSpace, nodes: Sequence[Node], *args: Any, **kwargs: Any) -> Any:
        nonlocal now
        now += 1.0 * len(nodes)
        return expand(self, nodes, *args, **kwargs)

    monkeypatch.setattr(SearchSpace, "expand", slow)
    monkeypatch.setattr(_branch_and_bound.time, "monotonic", lambda: now)
    options = {"size": 1} if make is BucketDecoder else {}
    result, here = search(make(max_seconds=4.5, **options), space, nbest=50)
    assert here.expansions == 5 and result.proven is False


class Silent(Predictor):
    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        return Scores.dense(np.array([-1.0, -1.0, -2.0]))


@every_exact
def test_a_predictor_without_a_bound_is_named_in_one_line(make: Make) -> None:
    with pytest.raises(UsageError, match="'a' does not declare best_remaining") as error:
        search(make(), tiny(3, a=Silent()))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("make", [DfsDecoder, LenDfsDecoder, AStarDecoder, RestartingDecoder])
@settings(max_examples=examples(20))
@given(space=random_spaces(kinds=["lattice"], weights=[1.0]))
def test_with_an_exact_bound_nothing_is_expanded_but_the_best_hypothesis(make: Make, space: TinySpace) -> None:
    constellation = space.constellation()
    if len(constellation.members) == 1 and space.source.max_length is None:
        result, here = search(make(), space)
        assert here.expansions == sum(len(hypothesis.tokens) + 1 for hypothesis in result.hypotheses)


def test_where_scores_can_rise_a_beam_that_stops_at_the_best_misses_what_dfs_finds() -> None:
    rising = Lattice({0: {EOS: (-1.0, 9), 3: (-2.0, 1)}, 1: {EOS: (5.0, 9)}})
    dfs, _ = search(DfsDecoder(), tiny(a=rising))
    beam, _ = search(BeamDecoder(stop="best"), tiny(a=rising))
    assert (dfs.hypotheses[0].tokens, dfs.hypotheses[0].score) == ((3,), 3.0)
    assert (beam.hypotheses[0].tokens, beam.hypotheses[0].score) == ((), -1.0)


@pytest.mark.slow
@every_nbest
def test_recombination_opens_no_future_more_often_than_the_list_is_long(make: Make) -> None:
    """Ten tokens, two ways each: 1,024 hypotheses, but one state a length."""
    ladder = Lattice({i: {3: (-1.0, i + 1), 4: (-1.1, i + 1)} for i in range(10)} | {10: {EOS: (0.0, 99)}})

    class Loose(type(ladder)):  # type: ignore[misc]
        def best_remaining(self, states: Sequence[int]) -> list[float]:
            return [0.0] * len(states)

    ladder.__class__ = Loose
    merged, here = search(make(recombine=True), tiny(a=ladder), nbest=2)
    assert [h.score for h in merged.hypotheses] == pytest.approx([-10.0, -10.1])
    assert here.expansions <= 2 * 11
    _, alone = search(make(), tiny(a=ladder), nbest=2)
    assert alone.expansions > here.expansions


class Falling(Predictor):
    """A thousand tokens, of falling scores; counts what is consumed."""

    max_score = 0.0
    consumed = 0

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        return Scores.dense(-0.01 * np.arange(1000) - 0.5)

    def consume(self, token: int) -> None:
        Falling.consumed += 1

    def get_state(self) -> None:
        return None

    def set_state(self, state: None) -> None:
        pass


@every_exact
@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_only_what_is_expanded_is_consumed_and_only_a_block_of_children_made(
    make: Make, alpha: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where predictors say that totals never rise."""
    Falling.consumed = 0
    made = 0
    bounds = _branch_and_bound.Tree.bounds

    def counted(tree: _branch_and_bound.Tree, nodes: Sequence[Node]) -> list[float]:
        nonlocal made
        made += len(nodes)
        return bounds(tree, nodes)

    monkeypatch.setattr(_branch_and_bound.Tree, "bounds", counted)
    result, here = search(make(alpha=alpha), tiny(4, a=Falling()))
    assert result.hypotheses[0].tokens == () and result.proven
    assert Falling.consumed <= here.expansions
    assert made <= 1 + 2 * 64 * here.expansions


class TooTight(Table):
    """Says that less can be added than the end alone scores."""

    def best_remaining(self, states: Sequence[Any]) -> list[float]:
        return [-2.0] * len(states)


@every_exact
def test_a_bound_that_does_not_hold_is_an_error_not_a_proof(make: Make) -> None:
    with pytest.raises(SgdecError, match=r"a hypothesis has -1, but no more than -2 was possible .*\(a\)"):
        search(make(), tiny(2, a=TooTight(np.full((4, 4), -1.0))))


def test_a_gap_is_infinite_where_a_bound_is() -> None:
    class Boundless(Table):
        def best_remaining(self, states: Sequence[Any]) -> list[float]:
            return [math.inf] * len(states)

    space = tiny(2, a=Boundless(np.full((4, 4), -1.0)))
    result, _ = search(DfsDecoder(max_expansions=1), space)
    assert result.hypotheses and result.gap == math.inf
    expect_the_nbest(search(DfsDecoder(), space)[0], space, DfsDecoder(), 1)


def test_a_search_without_a_heuristic_says_what_it_can_miss() -> None:
    said = AStarDecoder(heuristic="none").caveat(1, never_rises=False)
    assert said is not None and "totals can rise" in said
    assert AStarDecoder(heuristic="none").caveat(1, never_rises=True) is AStarDecoder().caveat(1, False) is None


class Unbounded(Table):
    """A table that knows no finite bound before the second token."""

    def best_remaining(self, states: Sequence[Any]) -> list[float]:
        known = super().best_remaining(states)
        return [math.inf if state.last == BOS else own for state, own in zip(states, known, strict=True)]


@every_exact
def test_a_search_without_a_finite_bound_and_without_a_budget_says_so_once(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    table = np.log(np.random.default_rng(1).dirichlet(np.ones(5), 5))
    caplog.set_level("INFO", "sgdec.decoders.exact")
    said: dict[str, int] = {}
    for name, predictor, budget in (("bounded", Table, 0), ("limited", Unbounded, 9), ("unbounded", Unbounded, 0)):
        _branch_and_bound._note_unbounded.cache_clear()
        caplog.clear()
        for _ in range(2):
            search(make(max_expansions=budget), tiny(3, a=predictor(table)))
        said[name] = caplog.text.count("has to exhaust the space")
    assert said == {"bounded": 0, "limited": 0, "unbounded": 1}
