"""The layout has no overlaps and no crossings, is tidy, and has the best hypothesis as a straight line on top."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from sgdec.trace.records import SentenceTrace
from sgdec.view.layout import best_place, overview, path, rows
from sgdec.view.tree import TreePrefix, prefixes
from tests.helpers.traced_runs import random_traces


@st.composite
def drawings(draw: st.DrawFn) -> tuple[list[TreePrefix], list[int]]:
    """A tree and a part of it that contains all parents."""
    tree = prefixes(draw(random_traces()))
    shown = {at for end in draw(st.sets(st.integers(0, len(tree) - 1))) for at in path(tree, end)}
    return tree, sorted(shown)


@given(drawings())
def test_no_two_prefixes_overlap_and_columns_keep_the_order(drawing: tuple[list[TreePrefix], list[int]]) -> None:
    tree, shown = drawing
    found = rows(tree, shown)
    assert sorted(found) == shown
    for one, other in combinations(shown, 2):
        if tree[one].length == tree[other].length:
            assert found[one] < found[other]


@given(drawings())
def test_edges_lead_to_the_next_column_never_up_and_never_cross(drawing: tuple[list[TreePrefix], list[int]]) -> None:
    tree, shown = drawing
    found = rows(tree, shown)
    edges = [(parent, at) for at in shown if (parent := tree[at].parent) is not None]
    for parent, at in edges:
        assert tree[at].length == tree[parent].length + 1 and found[at] >= found[parent]
    for (parent, at), (other_parent, other) in combinations(edges, 2):
        if tree[at].length == tree[other].length:
            assert (found[parent] - found[other_parent]) * (found[at] - found[other]) >= 0


@given(drawings())
def test_a_first_child_is_beside_its_parent_and_no_other_subtree_can_move_up(
    drawing: tuple[list[TreePrefix], list[int]],
) -> None:
    tree, shown = drawing
    found = rows(tree, shown)
    for parent in [None, *shown]:
        children = [at for at in shown if tree[at].parent == parent]
        if children:
            assert found[children[0]] == (0 if parent is None else found[parent])
        for number, child in enumerate(children[1:], 1):
            above = {
                (tree[at].length, found[at])
                for sibling in children[:number]
                for at in shown
                if sibling in path(tree, at)
            }
            own = {(tree[at].length, found[at]) for at in shown if child in path(tree, at)}
            assert any((length, row - 1) in above for length, row in own)


@given(random_traces())
def test_the_best_hypothesis_is_the_first_row(trace: SentenceTrace) -> None:
    tree = prefixes(trace)
    found = rows(tree, range(len(tree)))
    assert {found[at] for at in path(tree, best_place(tree))} <= {0}


@given(random_traces(), st.integers(1, 9))
def test_an_overview_has_the_best_hypothesis_and_the_largest_subtrees(trace: SentenceTrace, limit: int) -> None:
    tree = prefixes(trace)
    best = path(tree, best_place(tree))
    kept = [at for at, prefix in enumerate(tree) if prefix.expansions or prefix.rank is not None]
    found = overview(tree, limit)
    assert found == sorted(found) and set(found) <= set(kept)
    assert len(found) == min(len(kept), max(limit, len(best))) and set(best) <= set(found)
    assert all(parent in found for at in found if (parent := tree[at].parent) is not None)
    left_out = [tree[at].below for at in kept if at not in found]
    assert max(left_out, default=0) <= min((tree[at].below for at in found if at not in best), default=len(tree))
