"""Weights that change from token to token: a predictor can be left out for a while, and be asked again.

The oracle are tables: what each predictor says after a prefix, whoever was asked before.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgdec import EOS, Node, SearchSpace
from tests.helpers.explicit_spaces import FORMS, Space, random_space

WEIGHTS = (1.0, 0.5, 2.0, -1.0, 0.0, None, None)


def walk(space: Space, seed: int) -> tuple[Node, float, list[tuple[float, ...]]]:
    """A random path, each step with weights of its own; its total and ledger, by the tables."""
    rng = np.random.default_rng(seed)
    constellation = space.constellation()
    searches = [SearchSpace(constellation, root) for root in constellation.roots(space.sources())]
    node, total, ledger = searches[0].root, 0.0, []
    while node.last != EOS:
        weights = [WEIGHTS[i] for i in rng.integers(len(WEIGHTS), size=len(space.tables))]
        if set(weights) == {None}:
            weights[0] = 1.0
        expected = space.combined(1, node.tokens, weights)
        # Another sentence is asked in the same batch, under weights of its own.
        asked = [node.with_weights(weights), searches[-1].root]
        children = list(searches[0].expand(asked, limit=9)[0])
        assert [(child.last, pytest.approx(child.total - node.total)) for child in children] == sorted(
            expected, key=lambda each: (-each[1], each[0])
        )
        if not children:
            break
        child = children[rng.integers(len(children))]
        rows = [table.row(1, node.tokens) for table in space.tables]
        ledger.append(tuple(0.0 if w is None else row[child.last] for row, w in zip(rows, weights, strict=True)))
        node, total = child, total + dict(expected)[child.last]
    return node, total, ledger


@given(st.integers(0, 2**32), st.sampled_from([FORMS, ("batch",), ("simple", "restricting")]))
def test_totals_are_those_of_the_tables_whoever_was_asked_before(seed: int, forms: tuple[str, ...]) -> None:
    node, total, ledger = walk(random_space(seed, forms=forms, weights=(1.0, 0.5), sentences=2), seed)
    assert node.total == pytest.approx(total)
    assert [step.scores for step in node.steps()] == [pytest.approx(scores) for scores in ledger]


def test_a_predictor_that_was_left_out_for_three_tokens_is_asked_again() -> None:
    space = Space(random_space(5, forms=("batch",), weights=(1.0,)).tables[:1] * 2, (1.0, 1.0), (5,))
    constellation = space.constellation()
    search = SearchSpace(constellation, *constellation.roots(space.sources()))
    node = search.root.with_weights((1.0, None))
    for _ in range(3):
        node = next(child for child in search.expand([node])[0] if not child.finished)
    (children,) = search.expand([node.with_weights((None, 1.0))], limit=1)
    token, score = max(space.combined(1, node.tokens, (None, 1.0)), key=lambda each: (each[1], -each[0]))
    assert (children[0].last, children[0].total) == (token, pytest.approx(node.total + score))
