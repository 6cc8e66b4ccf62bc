"""The promise: what a decoder is told about a space is true: children, totals, ledgers, limits, cost."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sgdec.context import EOS
from sgdec.errors import SgdecError, UsageError
from sgdec.protocol import BatchPredictor, Candidates, Scores, Source, State
from sgdec.ranking import Ranking
from sgdec.search.constellation import Constellation
from sgdec.search.node import Node
from sgdec.search.requests import Request, answer
from sgdec.search.sampling import Draw, Drawn
from sgdec.search.space import ENDLESS, SearchSpace
from sgdec.testing import BatchTable, Lattice, Table, TinySpace, enumerate_space, score_path, tiny_spaces
from sgdec.testing.tiny_spaces import LATTICE
from tests.helpers.breadth import examples, some
from tests.helpers.oracles import finished_nodes, open_nodes, opened, tiny

SPACES = tiny_spaces()
INF = math.inf
in_every_space = pytest.mark.parametrize("case", SPACES, ids=lambda case: case.name)


# Children.


@in_every_space
def test_a_space_holds_exactly_what_enumeration_finds(case: TinySpace) -> None:
    space = opened(case)
    found = {node.tokens[:-1]: node for node in finished_nodes(space)}
    expected = {path.tokens: path for path in enumerate_space(case.constellation(), case.source)}
    assert set(found) == set(expected)
    for tokens, path in expected.items():
        hypothesis = space.finish(found[tokens])
        assert hypothesis.score == pytest.approx(path.total)
        assert hypothesis.ledger == tuple(pytest.approx(row) for row in path.ledger)


@pytest.mark.slow
@in_every_space
def test_a_limit_gives_the_first_of_the_lazy_children(case: TinySpace) -> None:
    space = opened(case)
    for place, node in enumerate(open_nodes(space)):
        for limit in some([1, 2, 3, 100], place):
            (first,), (lazy,) = space.expand([node], limit=limit), space.expand([node])
            expected = list(itertools.islice(lazy, limit))
            assert [(c.last, c.total) for c in first] == [(c.last, c.total) for c in expected]


@pytest.mark.slow
@in_every_space
def test_children_come_best_first_and_the_lower_token_first(case: TinySpace) -> None:
    space = opened(case)
    for node in open_nodes(space):
        (children,) = space.expand([node], limit=100)
        order = [(-child.total, child.last) for child in children]
        assert order == sorted(order)


@pytest.mark.slow
@in_every_space
def test_above_leaves_only_children_with_a_higher_total(case: TinySpace) -> None:
    space = opened(case)
    for place, node in enumerate(open_nodes(space)):
        (all_children,) = space.expand([node], limit=100)
        for above in some([-INF, INF, *(child.total for child in all_children), node.total - 0.3], place):
            expected = [child.last for child in all_children if child.total > above]
            assert [child.last for child in space.expand([node], limit=100, above=above)[0]] == expected
            assert [child.last for child in space.expand([node], above=above)[0]] == expected


@pytest.mark.slow
@in_every_space
def test_nodes_expanded_together_have_the_children_they_have_alone(case: TinySpace) -> None:
    alone, together = opened(case), opened(case)
    nodes, same = open_nodes(alone), open_nodes(together)
    same.reverse()
    found = dict(zip((node.tokens for node in same), together.expand(same, limit=3), strict=True))
    for node in nodes:
        (children,) = alone.expand([node], limit=3)
        assert [(c.last, c.total) for c in children] == [(c.last, c.total) for c in found[node.tokens]]


def test_lazy_children_are_made_in_blocks() -> None:
    space = opened(tiny(a=Table(np.zeros((500, 500)))))
    (children,) = space.expand([space.root])
    assert [next(children).last for _ in range(3)] == [0, 1, 2]
    assert not isinstance(children, list)


# Ledger, total, hypothesis.


@pytest.mark.slow
@in_every_space
def test_a_ledger_adds_up_and_forcing_the_tokens_gives_the_same_numbers(case: TinySpace) -> None:
    space = opened(case)
    for node in finished_nodes(space):
        hypothesis = space.finish(node)
        total, ledger = score_path(case.constellation(), case.source, hypothesis.tokens)
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
    space = opened(tiny(limit, a=Table(table)))
    for node in open_nodes(space):
        (children,) = space.expand([node], limit=100)
        if node.length == limit:
            assert [child.last for child in children] == [EOS]
            assert children[0].total == pytest.approx(node.total + table[node.last, EOS])
        else:
            assert len(children) == 5
    assert max(node.length for node in finished_nodes(space)) == limit + 1


def test_a_node_that_cannot_end_at_the_limit_dies() -> None:
    too_long = Lattice({0: {3: (0.0, 1)}, 1: {3: (0.0, 2)}, 2: {3: (0.0, 3)}, 3: {EOS: (0.0, 9)}})
    for predictor in (Stubborn(), too_long):
        assert finished_nodes(opened(tiny(2, a=predictor))) == []


# Cost and laziness.


class Counting(BatchPredictor):
    """Notes what it is asked."""

    def __init__(self) -> None:
        self.predicted: list[tuple[int, ...]] = []
        self.consumed: list[tuple[int, ...]] = []
        self.rows_by_call: list[int] = []

    def initialize_batch(self, sources: Sequence[Source]) -> list[State]:
        return [()] * len(sources)

    def predict_batch(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        self.predicted += states
        self.rows_by_call.append(len(states))
        return Scores.dense(np.zeros((len(states), 5)))

    def consume_batch(self, states: Sequence[State], tokens: Sequence[int]) -> list[State]:
        self.consumed += [(*state, token) for state, token in zip(states, tokens, strict=True)]
        return [(*state, token) for state, token in zip(states, tokens, strict=True)]


def test_a_token_is_consumed_only_when_its_node_is_expanded_and_only_once() -> None:
    counting = Counting()
    space = opened(tiny(a=counting))
    (children,) = space.expand([space.root], limit=5)
    assert counting.consumed == [] and counting.predicted == [()]
    for _ in range(2):
        space.expand(children[:1], limit=5)
    assert counting.consumed == [(0,)] and counting.predicted == [(), (0,), (0,)]


def test_bounds_and_keys_consume_only_where_a_predictor_has_the_ability() -> None:
    counting = Counting()
    space = opened(tiny(weights=[1.0, None], a=Table(np.zeros((5, 5))), b=counting))
    (children,) = space.expand([space.root], limit=5)
    space.keys(children)
    space.bound(children)
    assert counting.consumed == []


def test_every_node_that_is_expanded_or_sampled_counts() -> None:
    space = opened(SPACES[0])
    children = [child for child in space.expand([space.root], limit=4)[0] if not child.finished][:2]
    list(space.expand([space.root])[0])
    space.expand(children, limit=1)
    space.sample([space.root] * 3, [0, 1, 2])
    space.bound(children)
    space.keys(children)
    assert space.expansions == 1 + 1 + 2 + 3


def test_who_asks_the_predictors_itself_is_counted_and_limited_alike() -> None:
    space = opened(SPACES[0])
    space.expand([space.root], limit=1)
    space.count_expansions(3, 1)
    assert space.expansions == 1 + 3
    endless = opened(tiny(None, a=Table(np.zeros((5, 5)))))
    endless.count_expansions(2, ENDLESS - 1)
    with pytest.raises(SgdecError, match="no end after 10,000 tokens"):
        endless.count_expansions(1, ENDLESS)
    assert endless.expansions == 2
    limited = opened(tiny(2, a=Table(np.zeros((5, 5)))))
    limited.count_expansions(1, 2)
    with pytest.raises(ValueError, match="of 3 tokens, but at most 2 may"):
        limited.count_expansions(1, 3)
    few = tiny(a=Table(np.zeros((5, 5)))).open(most=4)
    few.count_expansions(4, 1)
    with pytest.raises(AssertionError, match="more than 4 nodes"):
        few.count_expansions(1, 2)


def test_one_call_asks_each_predictor_once() -> None:
    counting = Counting()
    space = opened(tiny(a=counting))
    (children,) = space.expand([space.root], limit=4)
    space.expand([child for child in children if not child.finished], limit=2)
    assert counting.rows_by_call == [1, 3]


# Weights belong to the node.


def test_children_inherit_the_weights_of_their_parent() -> None:
    tables = [np.random.default_rng(seed).normal(size=(5, 5)) for seed in (1, 2)]
    space = opened(tiny(3, weights=[0.7, 0.3], a=Table(tables[0]), b=Table(tables[1])))
    root = space.root
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
    space = opened(tiny(2, weights=[None, 1.0], a=Lattice(LATTICE), b=counting))
    assert len(finished_nodes(space)) == 1 + 4 + 16
    asked = len(counting.predicted)
    space = SearchSpace(space.constellation, space.root.with_weights((1.0, None)))
    assert {node.tokens[0] for node in open_nodes(space)[1:]} == {0, 3, 4}
    assert len(counting.predicted) == asked


# Ranking, errors, sentences.


@settings(max_examples=examples(25))
@given(st.integers(0, 2**32), st.sampled_from((0.0, 0.6)), st.sampled_from((0.0, 0.4)))
def test_rank_scores_are_those_of_enumeration(seed: int, alpha: float, beta: float) -> None:
    tables = np.random.default_rng(seed).normal(size=(2, 4, 4))
    ranking = Ranking(alpha, beta)
    space = opened(tiny(2, a=BatchTable(tables[0]), b=Table(tables[1]), c=BatchTable(tables[1])), ranking=ranking)
    expected = {
        path.tokens: path.rank_score(ranking)
        for path in enumerate_space(space.constellation, space.source, ranking=ranking)
    }
    for node in finished_nodes(space):
        assert space.finish(node).rank_score == pytest.approx(expected[node.tokens[:-1]])


def test_a_coverage_penalty_without_attention_is_refused() -> None:
    with pytest.raises(UsageError, match="needs a predictor with attention"):
        opened(SPACES[0], ranking=Ranking(beta=0.2))


def test_nan_is_an_error_that_names_the_predictor() -> None:
    space = opened(tiny(good=Table(np.zeros((5, 5))), bad=Table(np.full((5, 5), math.nan))))
    for ask in (
        lambda: space.expand([space.root], limit=1),
        lambda: next(space.expand([space.root])[0]),
        lambda: space.sample([space.root], [0]),
    ):
        with pytest.raises(SgdecError, match="'bad' gave NaN"):
            ask()


def test_requests_of_many_searches_are_answered_as_each_alone() -> None:
    """Several limits, lists that are lazy, samples, bounds and keys, of two sentences, as one job a predictor."""
    case = next(case for case in SPACES if case.name == "two models in both forms")
    constellation = case.constellation()
    roots = constellation.roots([case.source, replace(case.source, id=2)])
    requests: list[Request] = [
        Request("children", [roots[0]], ([1], [-INF]), (False, False)),
        Request("children", [roots[1], roots[0]], ([3, 3], [-0.5, -0.5]), (False, False)),
        Request("draw", [roots[1]], ([Draw(seed=1, number=4)],), (False,)),
        Request("children", [roots[1]], ([None], [-INF]), (True, False)),
        Request("bounds", [roots[1], roots[0]]),
        Request("children", [roots[0]], ([2], [-INF]), (True, False)),
        Request("keys", [roots[0]], shared=(Ranking(),)),
    ]

    def told(reply: Any) -> Any:
        if isinstance(reply, Drawn):
            return told(reply.node), reply.log_prob, reply.state
        if isinstance(reply, Node):
            return reply.tokens, reply.total, reply.source.id
        return reply if isinstance(reply, float | tuple) else [told(part) for part in reply]

    together = [told(reply) for reply in answer(constellation.perform, requests)]
    alone = [told(answer(constellation.perform, [request])[0]) for request in requests]
    assert together == alone
    assert [len(children) for children in together[0] + together[5]] == [1, 2]


def test_sentences_of_one_constellation_share_nothing_but_the_predictors() -> None:
    case = next(case for case in SPACES if case.name == "two models in both forms")
    constellation = case.constellation()
    roots = constellation.roots([case.source, replace(case.source, id=2, max_length=1)])
    first, second = (SearchSpace(constellation, root) for root in roots)
    children = first.expand([first.root], limit=3)[0], second.expand([second.root], limit=3)[0]
    assert [c.total for c in children[0]] == [c.total for c in children[1]]
    open_second = next(child for child in children[1] if not child.finished)
    assert [child.last for child in second.expand([open_second], limit=3)[0]] == [EOS]
    assert len(first.expand([child for child in children[0] if not child.finished][:1], limit=3)[0]) == 3


def test_a_space_inside_another_shares_what_watches_it_and_counts_there() -> None:
    constellation = Constellation.of({"a": Table(np.zeros((5, 5)))})
    (root,) = constellation.roots([Source(1, (3,), max_length=3)])
    outer = SearchSpace(constellation, root, seed=7, text_of=str)
    outer.watched = True
    with outer.inside(Ranking(alpha=0.5), 4, distinct=False) as inner:
        assert (inner.nbest, inner.seed, inner.text_of, inner.ranking.alpha) == (4, 7, None, 0.5)
        assert inner.watched and inner.expansions == 0
        (children,) = inner.expand([inner.root], limit=3)
        inner.expand([child for child in children if not child.finished], limit=1)
    assert outer.expansions == inner.expansions == 3 and outer.longest is inner.longest
    with outer.inside(Ranking(), 1, seed=3) as other:
        assert other.seed == 3 and other.text_of is str
