"""`astar` expands only what its heuristic cannot rule out, and is uniform-cost search without one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from sgdec_decoders.astar import AStarDecoder

from sgdec import EOS, Node, Predictor, Scores, SearchSpace
from sgdec.protocol import Candidates
from sgdec.testing import Lattice, TinySpace, enumerate_space
from tests.helpers.breadth import examples
from tests.helpers.oracles import opened, tiny
from tests.helpers.random_spaces import expect_the_nbest, random_spaces, search


class Recorded(SearchSpace):
    """Notes what is expanded."""

    def expand(self, nodes: Sequence[Node], *args: object, **kwargs: object) -> list:  # type: ignore[override,type-arg]
        self.seen = [*getattr(self, "seen", []), *nodes]
        return super().expand(nodes, *args, **kwargs)  # type: ignore[call-overload,no-any-return]


@settings(max_examples=examples(30))
@given(space=random_spaces(), nbest=st.integers(1, 4))
def test_no_prefix_is_expanded_whose_bound_is_below_the_last_of_the_list(space: TinySpace, nbest: int) -> None:
    (root,) = space.constellation().roots([space.source])
    here = Recorded(space.constellation(), root, nbest=nbest)
    hypotheses = AStarDecoder().decode(here).hypotheses
    if len(hypotheses) == nbest:
        bounds = [node.total + more for node, more in zip(here.seen, here.bound(here.seen), strict=True)]
        assert min(bounds) >= hypotheses[-1].score - 1e-9


@settings(max_examples=examples(30))
@given(
    space=random_spaces(kinds=["table", "batch", "on demand", "lattice"], weights=[1.0, 0.5], highest=0.0),
    nbest=st.integers(1, 4),
    recombine=st.booleans(),
)
def test_without_a_heuristic_it_is_uniform_cost_search(space: TinySpace, nbest: int, recombine: bool) -> None:
    decoder = AStarDecoder(heuristic="none", recombine=recombine)
    result, here = search(decoder, space, nbest)
    expect_the_nbest(result, space, decoder, nbest)
    assert result.proven is (True if here.never_rises else None) and result.gap is None


class Silent(Predictor):
    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        return Scores.dense(np.array([-1.0, -1.5, -2.0]))


class SaysSo(Silent):
    max_score = 0.0


def test_without_a_heuristic_there_is_a_proof_only_where_predictors_say_that_scores_never_rise() -> None:
    assert search(AStarDecoder(heuristic="none"), tiny(3, a=Silent()))[0].proven is None
    assert search(AStarDecoder(heuristic="none"), tiny(3, a=SaysSo()))[0].proven is True
    cut, _ = search(AStarDecoder(heuristic="none", max_expansions=1), tiny(3, a=SaysSo()), 5)
    assert cut.proven is False and cut.gap is not None


def test_without_a_heuristic_no_bound_is_needed() -> None:
    result, _ = search(AStarDecoder(heuristic="none"), tiny(3, a=Silent()))
    assert [h.score for h in result.hypotheses] == [-2.0]


def test_a_heuristic_saves_expansions() -> None:
    lattice = Lattice({0: {3: (-1.0, 1), 4: (-1.5, 2)}, 1: {3: (-9.0, 3)}, 2: {3: (-1.0, 3)}, 3: {EOS: (0.0, 9)}})
    with_it, some = search(AStarDecoder(), tiny(a=lattice))
    without, all_of_them = search(AStarDecoder(heuristic="none"), tiny(a=lattice))
    assert with_it.hypotheses == without.hypotheses
    assert some.expansions == 3 and all_of_them.expansions == 4


@settings(max_examples=examples(30))
@given(space=random_spaces(), capacity=st.integers(1, 4), nbest=st.integers(1, 3))
def test_what_a_full_queue_drops_is_in_the_gap(space: TinySpace, capacity: int, nbest: int) -> None:
    decoder = AStarDecoder(capacity=capacity)
    result, _ = search(decoder, space, nbest)
    if result.proven:
        expect_the_nbest(result, space, decoder, nbest)
    elif result.hypotheses:
        assert result.gap is not None
        optimum = enumerate_space(space.constellation(), space.source)[0].total
        assert optimum <= result.hypotheses[0].score + result.gap + 1e-9


class Loose(Lattice):
    """Scores never rise, and that is all it knows."""

    def best_remaining(self, states: Sequence[int]) -> list[float]:
        return [0.0] * len(states)


def test_a_queue_of_one_loses_the_way_back() -> None:
    """Before "3 3" turns out to be bad, it has pushed "4" out."""
    steps = {0: {3: (-1.0, 1), 4: (-2.0, 3)}, 1: {3: (-0.5, 2)}, 2: {3: (-2.5, 3)}, 3: {EOS: (0.0, 9)}}
    trap = Loose(steps)
    one, _ = search(AStarDecoder(capacity=1), tiny(a=trap))
    free, _ = search(AStarDecoder(), tiny(a=trap))
    assert free.hypotheses[0].score == -2.0 and free.proven
    assert one.proven is False and one.hypotheses[0].score == -4.0 and one.gap == 2.0


def test_of_equal_bounds_the_longer_prefix_goes_first() -> None:
    """Two to the tenth hypotheses with one score; the first one is as good as any."""
    even = Lattice({i: {3: (-1.0, i + 1), 4: (-1.0, i + 1)} for i in range(10)} | {10: {EOS: (0.0, 99)}})
    result, here = search(AStarDecoder(), tiny(a=even))
    assert result.proven and here.expansions == 11


def test_an_opened_space_is_as_good_as_any() -> None:
    space = opened(tiny(a=Lattice({0: {EOS: (-1.0, 9)}})), nbest=3)
    assert [h.score for h in AStarDecoder().decode(space).hypotheses] == [-1.0]
