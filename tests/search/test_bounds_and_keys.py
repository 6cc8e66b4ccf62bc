"""The promise: no completion beats a bound, and nodes with equal keys have equal futures."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sgdec.context import EOS
from sgdec.errors import UsageError
from sgdec.protocol import BatchPredictor, Candidates, Predictor, Scores
from sgdec.ranking import Ranking
from sgdec.search.node import Node
from sgdec.testing import (
    BatchTable,
    Bonus,
    Forced,
    Lattice,
    Path,
    Table,
    TinySpace,
    enumerate_space,
    tiny_spaces,
)
from sgdec.testing.tiny_spaces import LATTICE
from tests.helpers.breadth import examples
from tests.helpers.oracles import finished_nodes, open_nodes, opened, tiny

SPACES = tiny_spaces()
INF = math.inf
in_every_space = pytest.mark.parametrize("case", SPACES, ids=lambda case: case.name)


@in_every_space
def test_no_completion_beats_the_bound(case: TinySpace) -> None:
    space = opened(case)
    paths = enumerate_space(case.constellation(), case.source)
    nodes = open_nodes(space)
    for node, bound in zip(nodes, space.bound(nodes), strict=True):
        reached = [path.total for path in paths if path.tokens[: node.length] == node.tokens]
        assert node.total + bound >= max(reached, default=-INF) - 1e-9
        assert not math.isnan(bound)


@pytest.mark.parametrize("highest", [0.75, 0.0, -0.5])
def test_what_can_follow_any_prefix_of_a_length_is_bounded_by_the_highest_score_alone(highest: float) -> None:
    """Where every token has that score, the bound is reached."""
    lower = np.random.default_rng(3).random((5, 5))
    for table in (np.full((5, 5), highest), highest - lower):
        predictor = Table(table)
        predictor.max_score = highest
        case = tiny(3, [2.0], 5, table=predictor)
        space, paths = opened(case), enumerate_space(case.constellation(), case.source)
        for node in open_nodes(space):
            reached = max(path.total for path in paths if path.tokens[: node.length] == node.tokens)
            above = node.total + space.most_after(node.length) - reached
            assert above == pytest.approx(0.0) if table[0, 0] == highest else above > 0.0


@settings(max_examples=examples(40))
@given(st.integers(0, 2**32), st.lists(st.sampled_from((1.0, 0.5, 0.0, -1.0, -0.3, None)), min_size=3, max_size=3))
def test_no_completion_beats_the_bound_whatever_the_weights(seed: int, weights: list[float | None]) -> None:
    rng = np.random.default_rng(seed)
    table = np.where(rng.random((5, 5)) < 0.2, -INF, rng.normal(size=(5, 5)))
    predictors: dict[str, Predictor | BatchPredictor] = {
        "a": Table(table),
        "b": Bonus({3: float(rng.normal()), EOS: 0.0}, default=float(rng.normal())),
        "c": Lattice(LATTICE),
    }
    test_no_completion_beats_the_bound(tiny(3, weights, 5, **predictors))


def test_a_single_predictor_with_exact_bounds_has_an_exact_bound() -> None:
    for weight in (1.0, -0.5):
        space = opened(tiny(weights=[weight], a=Lattice(LATTICE)))
        best = enumerate_space(space.constellation, space.source)[0]
        assert space.bound([space.root]) == [pytest.approx(best.total)]


def test_finished_nodes_have_nothing_left_and_dead_ones_have_no_way() -> None:
    space = opened(next(case for case in SPACES if case.name == "the best way is a dead end"))
    (children,) = space.expand([space.root], limit=5)
    bounds = dict(zip((child.last for child in children), space.bound(children), strict=True))
    assert bounds[3] == -INF and bounds[4] > -INF
    assert space.bound(finished_nodes(space)) == [0.0]


@pytest.mark.parametrize(("weight", "name"), [(1.0, "best_remaining"), (-1.0, "worst_remaining")])
def test_a_bound_that_nobody_declares_is_refused_in_one_line(weight: float, name: str) -> None:
    space = opened(tiny(weights=[1.0, weight], a=Lattice(LATTICE), mine=Forced(())))
    with pytest.raises(UsageError, match=f"'mine' does not declare {name}"):
        space.bound([space.root])
    assert space.bound([space.root.with_weights((1.0, None))]) == [pytest.approx(-1.25)]


class Falling(Predictor):
    """Says that no score is positive, and nothing else; must not be asked to consume."""

    max_score = 0.0

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        return Scores.dense(np.array([-1.0, -0.5, -2.0, 0.0]))

    def consume(self, token: int) -> None:
        raise AssertionError("nobody needs this state")

    def get_state(self) -> None:
        """The empty prefix is all there is."""

    def set_state(self, state: None) -> None:
        """Likewise."""


def test_what_scores_0_at_most_has_nothing_to_add_and_needs_no_state_to_say_so() -> None:
    space = opened(tiny(weights=[2.0], mine=Falling()))
    (children,) = space.expand([space.root], limit=4)
    assert space.bound(children) == [0.0] * 4
    with pytest.raises(UsageError, match="'mine' does not declare worst_remaining"):
        space.bound([space.root.with_weights((-1.0,))])


@pytest.mark.parametrize(
    ("weights", "falls"),
    [((1.0, 0.5), False), ((1.0, None), True), ((0.3, 0.0), True), ((-1.0, None), False), ((0.0, 0.0), True)],
)
def test_totals_never_rise_where_every_weighted_predictor_says_so(
    weights: tuple[float | None, ...], falls: bool
) -> None:
    assert opened(tiny(weights=weights, mine=Falling(), other=Lattice(LATTICE))).never_rises is falls


def test_a_node_that_is_asked_about_twice_has_one_bound() -> None:
    space = opened(next(case for case in SPACES if case.name == "lattice alone"))
    assert space.bound([space.root, space.root]) == 2 * space.bound([space.root])


def futures(paths: Sequence[Path], node: Node) -> dict[tuple[int, ...], float]:
    """What every completion of a node adds; ``paths``: all of its space."""
    return {
        path.tokens[node.length :]: path.total - node.total
        for path in paths
        if path.tokens[: node.length] == node.tokens
    }


@pytest.mark.slow
@in_every_space
@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_equal_keys_have_equal_futures(case: TinySpace, alpha: float) -> None:
    space = opened(case, ranking=Ranking(alpha=alpha))
    paths = enumerate_space(case.constellation(), case.source)
    nodes = open_nodes(space)
    groups: defaultdict[Hashable, list[Node]] = defaultdict(list)
    for node, key in zip(nodes, space.keys(nodes), strict=True):
        groups[key].append(node)
    for group in groups.values():
        first = futures(paths, group[0])
        for node in group[1:]:
            assert futures(paths, node) == pytest.approx(first)
            assert alpha == 0.0 or node.length == group[0].length


def test_equal_futures_do_recombine() -> None:
    space = opened(next(case for case in SPACES if case.name == "lattice alone"))
    nodes = {node.tokens: node for node in open_nodes(space)}
    same, other = space.keys([nodes[3, 4], nodes[0, 4]]), space.keys([nodes[3, 4], nodes[4, 3]])
    assert same[0] == same[1] and other[0] != other[1]


def test_weights_and_length_are_part_of_a_key_where_they_matter() -> None:
    for limit, alpha, equal in [(None, 0.0, True), (None, 1.0, False), (5, 0.0, False)]:
        space = opened(tiny(limit, None, 4, a=Bonus({}, default=-1.0)), ranking=Ranking(alpha=alpha))
        root = space.root
        child = space.expand([root], limit=1)[0][0]
        keys = space.keys([root, child])
        assert (keys[0] == keys[1]) is equal
        keys = space.keys([root, root.with_weights((2.0,))])
        assert keys[0] != keys[1]


def test_coverage_is_part_of_a_key_where_it_matters() -> None:
    for beta, equal in [(0.0, True), (0.5, False)]:
        space = opened(tiny(a=BatchTable(np.zeros((5, 5)))), ranking=Ranking(beta=beta))
        nodes = [space.root]
        for token in (3, 4, 0):
            nodes = [child for found in space.expand(nodes, limit=5) for child in found if child.last in (token, 3)]
        ends = [node for node in nodes if node.last == 0]
        other = [node for node in ends if node.tokens != ends[0].tokens]
        keys = space.keys([ends[0], other[0]])
        assert (keys[0] == keys[1]) is equal


def test_finished_nodes_and_predictors_without_keys_have_keys_of_their_own() -> None:
    space = opened(SPACES[0])
    ends = finished_nodes(space)[:2]
    assert len(set(space.keys([*ends, ends[0]]))) == 3
    unkeyed = opened(tiny(a=Forced((3,))))
    assert len(set(unkeyed.keys([unkeyed.root, unkeyed.root]))) == 2
