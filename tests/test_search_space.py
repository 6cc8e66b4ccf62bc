"""The promise: what a decoder is told about a space is true: children, totals, ledgers, limits, bounds, keys, cost."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgdec.constellation import Constellation
from sgdec.context import EOS
from sgdec.errors import SgdecError, UsageError
from sgdec.node import Node
from sgdec.protocol import BatchPredictor, Candidates, Predictor, Scores, Source, State
from sgdec.ranking import Ranking
from sgdec.search import SearchSpace
from sgdec.testing import (
    BatchTable,
    Bonus,
    Forced,
    Lattice,
    Table,
    TinySpace,
    enumerate_space,
    score_path,
    tiny_spaces,
)
from sgdec.testing.tiny_spaces import LATTICE

SPACES = tiny_spaces()
INF = math.inf
in_every_space = pytest.mark.parametrize("tiny", SPACES, ids=lambda tiny: tiny.name)


def opened(tiny: TinySpace, **options: object) -> SearchSpace:
    constellation = tiny.constellation()
    (root,) = constellation.roots([tiny.source])
    return SearchSpace(constellation, root, **options)  # type: ignore[arg-type]


def open_nodes(space: SearchSpace) -> Iterator[Node]:
    """Every node of a space that is not finished, shortest first."""
    nodes = [space.root]
    while nodes:
        yield from nodes
        children = [child for found in space.expand(nodes) for child in found]
        nodes = [child for child in children if not child.finished]


def finished_nodes(space: SearchSpace) -> list[Node]:
    return [
        child
        for node in list(open_nodes(space))
        for found in space.expand([node])
        for child in found
        if child.finished
    ]


# Children.


@in_every_space
def test_a_space_holds_exactly_what_enumeration_finds(tiny: TinySpace) -> None:
    space = opened(tiny)
    found = {node.tokens[:-1]: node for node in finished_nodes(space)}
    expected = {path.tokens: path for path in enumerate_space(tiny.constellation(), tiny.source)}
    assert set(found) == set(expected)
    for tokens, path in expected.items():
        hypothesis = space.finish(found[tokens])
        assert hypothesis.score == pytest.approx(path.total)
        assert hypothesis.ledger == tuple(pytest.approx(row) for row in path.ledger)


@in_every_space
@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_a_limit_gives_the_first_of_the_lazy_children(tiny: TinySpace, limit: int) -> None:
    space = opened(tiny)
    for node in list(open_nodes(space)):
        (some,), (lazy,) = space.expand([node], limit=limit), space.expand([node])
        expected = list(itertools.islice(lazy, limit))
        assert [(c.last, c.total) for c in some] == [(c.last, c.total) for c in expected]


@in_every_space
def test_children_come_best_first_and_the_lower_token_first(tiny: TinySpace) -> None:
    space = opened(tiny)
    for node in list(open_nodes(space)):
        (children,) = space.expand([node], limit=100)
        order = [(-child.total, child.last) for child in children]
        assert order == sorted(order)


@in_every_space
def test_above_leaves_only_children_with_a_higher_total(tiny: TinySpace) -> None:
    space = opened(tiny)
    for node in list(open_nodes(space)):
        (all_children,) = space.expand([node], limit=100)
        for above in [-INF, INF, *(child.total for child in all_children), node.total - 0.3]:
            expected = [child.last for child in all_children if child.total > above]
            assert [child.last for child in space.expand([node], limit=100, above=above)[0]] == expected
            assert [child.last for child in space.expand([node], above=above)[0]] == expected


@in_every_space
def test_nodes_expanded_together_have_the_children_they_have_alone(tiny: TinySpace) -> None:
    alone, together = opened(tiny), opened(tiny)
    nodes, same = list(open_nodes(alone)), list(open_nodes(together))
    same.reverse()
    found = dict(zip((node.tokens for node in same), together.expand(same, limit=3), strict=True))
    for node in nodes:
        (children,) = alone.expand([node], limit=3)
        assert [(c.last, c.total) for c in children] == [(c.last, c.total) for c in found[node.tokens]]


def test_lazy_children_are_made_in_blocks() -> None:
    space = opened(TinySpace("wide", lambda: Constellation.of({"a": Table(np.zeros((500, 500)))}), Source(1, ())))
    (children,) = space.expand([space.root])
    assert [next(children).last for _ in range(3)] == [0, 1, 2]
    assert not isinstance(children, list)


# Ledger, total, hypothesis.


@in_every_space
def test_a_ledger_adds_up_and_forcing_the_tokens_gives_the_same_numbers(tiny: TinySpace) -> None:
    space = opened(tiny)
    for node in finished_nodes(space):
        hypothesis = space.finish(node)
        total, ledger = score_path(tiny.constellation(), tiny.source, hypothesis.tokens)
        weighted = math.fsum(
            weight * score
            for row, weights in zip(hypothesis.ledger, hypothesis.weights, strict=True)
            for weight, score in zip(weights, row, strict=True)
            if weight is not None
        )
        assert hypothesis.score == pytest.approx(weighted) == pytest.approx(total)
        assert np.allclose(hypothesis.ledger, ledger)
        assert hypothesis.scores == tuple(pytest.approx(sum(column)) for column in zip(*ledger, strict=True))


def test_only_a_finished_node_is_a_hypothesis_and_only_an_open_one_has_children() -> None:
    space = opened(SPACES[0])
    with pytest.raises(ValueError, match="only a node that ends with </s>"):
        space.finish(space.root)
    (end,) = [child for child in space.expand([space.root])[0] if child.finished]
    with pytest.raises(ValueError, match="a finished node has no continuations"):
        space.expand([end])


def test_finishing_keeps_no_states() -> None:
    """A hypothesis links to steps, and steps to tokens and scores only."""
    space = opened(SPACES[0])
    node = finished_nodes(space)[-1]
    for step in node.steps():
        assert step._fields == ("token", "scores", "weights", "previous")


# Length.


class Stubborn(Table):
    """Never lets a hypothesis end."""

    def __init__(self) -> None:
        table = np.zeros((5, 5))
        table[:, EOS] = -INF
        super().__init__(table)


@pytest.mark.parametrize("limit", [0, 1, 2])
def test_at_the_limit_only_the_end_can_follow_scored_as_usual(limit: int) -> None:
    table = np.random.default_rng(0).normal(size=(5, 5))
    tiny = TinySpace("", lambda: Constellation.of({"a": Table(table)}), Source(1, (), max_length=limit))
    space = opened(tiny)
    for node in list(open_nodes(space)):
        (children,) = space.expand([node], limit=100)
        if node.length == limit:
            assert [child.last for child in children] == [EOS]
            assert children[0].total == pytest.approx(node.total + table[node.last, EOS])
        else:
            assert len(children) == 5
    assert max(node.length for node in finished_nodes(opened(tiny))) == limit + 1


def test_a_node_that_cannot_end_at_the_limit_dies() -> None:
    source = Source(1, (), max_length=2)
    for predictor in (
        Stubborn(),
        Lattice({0: {3: (0.0, 1)}, 1: {3: (0.0, 2)}, 2: {3: (0.0, 3)}, 3: {EOS: (0.0, 9)}}),
    ):
        tiny = TinySpace("", lambda p=predictor: Constellation.of({"a": p}), source)
        assert finished_nodes(opened(tiny)) == []


# Cost and laziness.


class Counting(BatchPredictor):
    """Notes what it is asked."""

    def __init__(self) -> None:
        self.predicted: list[tuple[int, ...]] = []
        self.consumed: list[tuple[int, ...]] = []

    def initialize_batch(self, sources: Sequence[Source]) -> list[State]:
        return [()] * len(sources)

    def predict_batch(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        self.predicted += states
        return Scores.dense(np.zeros((len(states), 5)))

    def consume_batch(self, states: Sequence[State], tokens: Sequence[int]) -> list[State]:
        self.consumed += [(*state, token) for state, token in zip(states, tokens, strict=True)]
        return [(*state, token) for state, token in zip(states, tokens, strict=True)]


def test_a_token_is_consumed_only_when_its_node_is_expanded_and_only_once() -> None:
    counting = Counting()
    space = opened(TinySpace("", lambda: Constellation.of({"a": counting}), Source(1, ())))
    (children,) = space.expand([space.root], limit=5)
    assert counting.consumed == [] and counting.predicted == [()]
    for _ in range(2):
        space.expand(children[:1], limit=5)
    assert counting.consumed == [(0,)] and counting.predicted == [(), (0,), (0,)]


def test_bounds_and_keys_consume_only_where_a_predictor_has_the_ability() -> None:
    counting = Counting()
    table = Table(np.zeros((5, 5)))
    tiny = TinySpace("", lambda: Constellation.of({"a": table, "b": counting}, weights=[1.0, None]), Source(1, ()))
    space = opened(tiny)
    (children,) = space.expand([space.root], limit=5)
    space.keys(children)
    space.bound(children)
    assert counting.consumed == []


def test_every_node_that_is_expanded_or_sampled_counts() -> None:
    space = opened(SPACES[0])
    (children,) = space.expand([space.root], limit=2)
    list(space.expand([space.root])[0])
    space.expand(children, limit=1)
    space.sample([space.root] * 3, [0, 1, 2])
    space.bound(children)
    space.keys(children)
    assert space.expansions == 1 + 1 + 2 + 3


def test_one_call_asks_each_predictor_once() -> None:
    counting = Counting()
    space = opened(TinySpace("", lambda: Constellation.of({"a": counting}), Source(1, ())))
    (children,) = space.expand([space.root], limit=4)
    calls = []
    counting.predict_batch = lambda states, candidates=None: (  # type: ignore[method-assign,misc]
        calls.append(len(states)) or Counting.predict_batch(counting, states, candidates)  # type: ignore[func-returns-value]
    )
    space.expand([child for child in children if not child.finished], limit=2)
    assert calls == [3]


# Weights belong to the node.


def test_children_inherit_the_weights_of_their_parent() -> None:
    tables = [np.random.default_rng(seed).normal(size=(5, 5)) for seed in (1, 2)]
    constellation = Constellation.of({"a": Table(tables[0]), "b": Table(tables[1])}, weights=[0.7, 0.3])
    (root,) = constellation.roots([Source(1, (), max_length=3)])
    space = SearchSpace(constellation, root)
    assert space.weights == (0.7, 0.3)
    (children,) = space.expand([root.with_weights((1.0, -2.0))], limit=5)
    child = next(child for child in children if not child.finished)
    assert child.weights == (1.0, -2.0)
    (grandchildren,) = space.expand([child], limit=5)
    end = next(node for node in grandchildren if node.finished)
    expected = sum(a - 2 * b for a, b in [(t[0][1, child.last], t[1][1, child.last]) for t in [tables]])
    expected += tables[0][child.last, EOS] - 2 * tables[1][child.last, EOS]
    assert end.total == pytest.approx(expected)
    assert space.finish(end).weights == ((1.0, -2.0), (1.0, -2.0))
    assert root.weights == (0.7, 0.3)


def test_a_predictor_that_is_not_consulted_restricts_nothing_and_is_not_asked() -> None:
    counting = Counting()
    constellation = Constellation.of({"a": Lattice(LATTICE), "b": counting}, weights=[None, 1.0])
    (root,) = constellation.roots([Source(1, (), max_length=2)])
    space = SearchSpace(constellation, root)
    assert len(finished_nodes(space)) == 1 + 4 + 16
    other = SearchSpace(constellation, root.with_weights((1.0, None)))
    asked = len(counting.predicted)
    list(open_nodes(SearchSpace(constellation, other.root)))
    assert len(counting.predicted) == asked


# Bounds.


@in_every_space
def test_no_completion_beats_the_bound(tiny: TinySpace) -> None:
    space = opened(tiny)
    paths = enumerate_space(tiny.constellation(), tiny.source)
    nodes = list(open_nodes(space))
    for node, bound in zip(nodes, space.bound(nodes), strict=True):
        reached = [path.total for path in paths if path.tokens[: node.length] == node.tokens]
        assert node.total + bound >= max(reached, default=-INF) - 1e-9
        assert not math.isnan(bound)


@given(st.integers(0, 2**32), st.lists(st.sampled_from((1.0, 0.5, 0.0, -1.0, -0.3, None)), min_size=3, max_size=3))
def test_no_completion_beats_the_bound_whatever_the_weights(seed: int, weights: list[float | None]) -> None:
    rng = np.random.default_rng(seed)
    table = np.where(rng.random((5, 5)) < 0.2, -INF, rng.normal(size=(5, 5)))
    predictors: dict[str, Predictor | BatchPredictor] = {
        "a": Table(table),
        "b": Bonus({3: float(rng.normal()), EOS: 0.0}, default=float(rng.normal())),
        "c": Lattice(LATTICE),
    }
    tiny = TinySpace(
        "",
        lambda: Constellation.of(predictors, weights=weights, vocab_size=5),
        Source(1, (), max_length=3),
    )
    test_no_completion_beats_the_bound(tiny)


def test_a_single_predictor_with_exact_bounds_has_an_exact_bound() -> None:
    for weight in (1.0, -0.5):
        tiny = TinySpace(
            "",
            lambda w=weight: Constellation.of({"a": Lattice(LATTICE)}, weights=[w]),
            Source(1, ()),
        )
        space = opened(tiny)
        best = enumerate_space(tiny.constellation(), tiny.source)[0]
        assert space.bound([space.root]) == [pytest.approx(best.total)]


def test_finished_nodes_have_nothing_left_and_dead_ones_have_no_way() -> None:
    space = opened(next(tiny for tiny in SPACES if tiny.name == "the best way is a dead end"))
    (children,) = space.expand([space.root], limit=5)
    bounds = dict(zip((child.last for child in children), space.bound(children), strict=True))
    assert bounds[3] == -INF and bounds[4] > -INF
    assert space.bound(finished_nodes(space)) == [0.0]


@pytest.mark.parametrize(
    ("weight", "name"), [(1.0, "best_remaining"), (0.0, "best_remaining"), (-1.0, "worst_remaining")]
)
def test_a_bound_that_nobody_declares_is_refused_in_one_line(weight: float, name: str) -> None:
    constellation = Constellation.of({"a": Lattice(LATTICE), "mine": Forced(())}, weights=[1.0, weight])
    (root,) = constellation.roots([Source(1, ())])
    with pytest.raises(UsageError, match=f"'mine' does not declare {name}"):
        SearchSpace(constellation, root).bound([root])
    assert SearchSpace(constellation, root).bound([root.with_weights((1.0, None))]) == [pytest.approx(-1.35)]


# Recombination keys.


def futures(space: SearchSpace, node: Node) -> dict[tuple[int, ...], float]:
    """What every completion of a node adds."""
    paths = enumerate_space(space.constellation, space.source)
    return {
        path.tokens[node.length :]: round(path.total - node.total, 9)
        for path in paths
        if path.tokens[: node.length] == node.tokens
    }


@in_every_space
@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_equal_keys_have_equal_futures(tiny: TinySpace, alpha: float) -> None:
    space = opened(tiny, ranking=Ranking(alpha=alpha))
    nodes = list(open_nodes(space))
    groups: defaultdict[Hashable, list[Node]] = defaultdict(list)
    for node, key in zip(nodes, space.keys(nodes), strict=True):
        groups[key].append(node)
    for group in groups.values():
        first = futures(space, group[0])
        for node in group[1:]:
            assert futures(space, node) == pytest.approx(first)
            assert alpha == 0.0 or node.length == group[0].length


def test_equal_futures_do_recombine() -> None:
    space = opened(next(tiny for tiny in SPACES if tiny.name == "lattice alone"))
    nodes = {node.tokens: node for node in open_nodes(space)}
    same, other = space.keys([nodes[3, 4], nodes[0, 4]]), space.keys([nodes[3, 4], nodes[4, 3]])
    assert same[0] == same[1] and other[0] != other[1]


def test_weights_and_length_are_part_of_a_key_where_they_matter() -> None:
    constellation = Constellation.of({"a": Bonus({}, default=-1.0)}, vocab_size=4)
    for limit, alpha, equal in [(None, 0.0, True), (None, 1.0, False), (5, 0.0, False)]:
        (root,) = constellation.roots([Source(1, (), max_length=limit)])
        space = SearchSpace(constellation, root, ranking=Ranking(alpha=alpha))
        child = space.expand([root], limit=1)[0][0]
        keys = space.keys([root, child])
        assert (keys[0] == keys[1]) is equal
        keys = space.keys([root, root.with_weights((2.0,))])
        assert keys[0] != keys[1]


def test_coverage_is_part_of_a_key_where_it_matters() -> None:
    table = np.zeros((5, 5))
    for beta, equal in [(0.0, True), (0.5, False)]:
        constellation = Constellation.of({"a": BatchTable(table)})
        (root,) = constellation.roots([Source(1, (3, 4))])
        space = SearchSpace(constellation, root, ranking=Ranking(beta=beta))
        nodes = [root]
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
    unkeyed = opened(TinySpace("", lambda: Constellation.of({"a": Counting()}), Source(1, ())))
    assert len(set(unkeyed.keys([unkeyed.root, unkeyed.root]))) == 2


# Ranking, errors.


@given(st.integers(0, 2**32), st.sampled_from((0.0, 0.6)), st.sampled_from((0.0, 0.4)))
def test_rank_scores_are_those_of_enumeration(seed: int, alpha: float, beta: float) -> None:
    tables = np.random.default_rng(seed).normal(size=(2, 4, 4))
    ranking = Ranking(alpha, beta)
    tiny = TinySpace(
        "",
        lambda: Constellation.of({"a": BatchTable(tables[0]), "b": Table(tables[1]), "c": BatchTable(tables[1])}),
        Source(1, (3, 3, 3), max_length=2),
    )
    space = opened(tiny, ranking=ranking)
    expected = {
        path.tokens: path.rank_score(ranking)
        for path in enumerate_space(tiny.constellation(), tiny.source, ranking=ranking)
    }
    for node in finished_nodes(space):
        assert space.finish(node).rank_score == pytest.approx(expected[node.tokens[:-1]])


def test_a_coverage_penalty_without_attention_is_refused() -> None:
    with pytest.raises(UsageError, match="needs a predictor with attention"):
        opened(SPACES[0], ranking=Ranking(beta=0.2))


def test_nan_is_an_error_that_names_the_predictor() -> None:
    tiny = TinySpace(
        "",
        lambda: Constellation.of({"good": Table(np.zeros((5, 5))), "bad": Table(np.full((5, 5), math.nan))}),
        Source(1, ()),
    )
    space = opened(tiny)
    for ask in (
        lambda: space.expand([space.root], limit=1),
        lambda: next(space.expand([space.root])[0]),
        lambda: space.sample([space.root], [0]),
    ):
        with pytest.raises(SgdecError, match="'bad' gave NaN"):
            ask()


def test_sentences_of_one_constellation_share_nothing_but_the_predictors() -> None:
    tiny = next(tiny for tiny in SPACES if tiny.name == "two models in both forms")
    constellation = tiny.constellation()
    roots = constellation.roots([tiny.source, replace(tiny.source, id=2, max_length=1)])
    first, second = (SearchSpace(constellation, root) for root in roots)
    children = first.expand([first.root], limit=3)[0], second.expand([second.root], limit=3)[0]
    assert [c.total for c in children[0]] == [c.total for c in children[1]]
    open_second = [child for child in children[1] if not child.finished][0]
    assert [child.last for child in second.expand([open_second], limit=3)[0]] == [EOS]
    assert len(first.expand([child for child in children[0] if not child.finished][:1], limit=3)[0]) == 3
