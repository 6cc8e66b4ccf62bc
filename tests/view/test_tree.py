"""The prefix tree has what the trace has, each prefix once, in the order in which it is drawn."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given

from sgdec.context import EOS
from sgdec.trace.records import SentenceTrace
from sgdec.view.layout import path
from sgdec.view.tree import TreePrefix, prefixes
from tests.helpers.traced_runs import random_traces, traced


def tokens_of(tree: list[TreePrefix], place: int) -> tuple[int, ...]:
    return tuple(token for at in path(tree, place) if (token := tree[at].token) is not None)


@given(random_traces())
def test_every_expansion_and_child_is_a_prefix_and_nothing_else(trace: SentenceTrace) -> None:
    tree = prefixes(trace)
    roots = [expansion.number for expansion in trace.expansions if expansion.parent is None]

    def root_of(number: int) -> int:
        parent = trace.expansions[number].parent
        return number if parent is None else root_of(parent)

    expected: Counter[tuple[int, tuple[int, ...]]] = Counter((root, ()) for root in roots)
    for expansion, child in trace.nodes():
        expected[root_of(expansion.number), (*trace.path(expansion.number), child.token)] += 1
    found = Counter((tree[path(tree, at)[0]].expansions[0], tokens_of(tree, at)) for at in range(len(tree)))
    assert found == expected and set(found.values()) == {1}


@given(random_traces())
def test_a_prefix_has_what_the_trace_says_of_it(trace: SentenceTrace) -> None:
    tree = prefixes(trace)
    places = {number: at for at, prefix in enumerate(tree) for number in prefix.expansions}
    assert set(places) == {expansion.number for expansion in trace.expansions}
    for expansion, child in trace.nodes():
        (at,) = (
            at
            for at, prefix in enumerate(tree)
            if prefix.parent == places[expansion.number] and prefix.token == child.token
        )
        assert (tree[at].total, tree[at].scores) == (child.total, child.scores)
        assert tree[at].expansions == ((child.fate,) if isinstance(child.fate, int) else ())
        assert tree[at].fate == (None if isinstance(child.fate, int) else child.fate)
    for rank, hypothesis in enumerate(trace.hypotheses):
        (at,) = (at for at, prefix in enumerate(tree) if prefix.rank == rank)
        assert tokens_of(tree, at) == (*hypothesis.tokens, EOS)


@given(random_traces())
def test_the_order_is_depth_first_with_the_best_hypothesis_on_top(trace: SentenceTrace) -> None:
    tree = prefixes(trace)
    for at, prefix in enumerate(tree):
        above = path(tree, at)
        assert prefix.length == len(above) - 1
        if at:
            assert prefix.parent is None or prefix.parent in path(tree, at - 1), "each follows its parent's subtree"
        below = [other for other in range(len(tree)) if other != at and at in path(tree, other)]
        assert prefix.below == sum(bool(tree[other].expansions) for other in below)
    if trace.hypotheses:
        end = next(at for at, prefix in enumerate(tree) if prefix.rank == 0)
        assert path(tree, end) == list(range(end + 1))

    def best_rank(at: int) -> float:
        ranks = [tree[other].rank for other in range(len(tree)) if at in path(tree, other)]
        return min((rank for rank in ranks if rank is not None), default=math.inf)

    for parent in range(len(tree)):
        keys = [(best_rank(at), -(tree[at].total or 0.0)) for at in range(len(tree)) if tree[at].parent == parent]
        assert keys == sorted(keys)


def test_samples_share_the_prefixes_that_they_have_in_common() -> None:
    (trace,) = traced("sample", sources=[[3, 4]], nbest=8, samples=8).sentences
    tree = prefixes(trace)
    everything = [tokens_of(tree, at) for at in range(len(tree))]
    assert len(everything) == len(set(everything))
    assert sum(len(prefix.expansions) for prefix in tree) == len(trace.expansions)


def test_a_prefix_that_was_expanded_too_late_to_be_recorded_says_so() -> None:
    (trace,) = traced(sources=[[3, 4]]).sentences
    cut = replace(trace, expansions=trace.expansions[:3], hypotheses=())
    lost = [child for _, child in cut.nodes() if isinstance(child.fate, int) and child.fate >= 3]
    tree = prefixes(cut)
    assert lost and sum(prefix.fate == "unrecorded" for prefix in tree) == len(lost)


@pytest.mark.parametrize("decoder", ["greedy", "beam", "sample", "sepbeam"])
def test_totals_add_up_along_every_path(decoder: str) -> None:
    run = traced(decoder)
    for trace in run.sentences:
        tree = prefixes(trace)
        for prefix in tree:
            if prefix.parent is None:
                continue
            above = tree[prefix.parent]
            weights = trace.expansions[above.expansions[0]].weights or run.header.weights
            gain = sum((weight or 0.0) * score for weight, score in zip(weights, prefix.scores, strict=True))
            assert prefix.total == pytest.approx((above.total or 0.0) + gain)
