"""The children that rows of few arcs offer together, against a plain sort."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sgdec.context import EOS
from sgdec.protocol import FORBIDDEN
from sgdec.search.combination.choosing import Choice, choose_rows
from tests.helpers.breadth import examples

SCORES = st.sampled_from([FORBIDDEN, -2.0, -1.0, -0.5, -0.25])
TOTALS = st.sampled_from([0.0, -1.0, -1.5, -1e17])
"""To the last of these a score adds nothing, so that totals are equal and scores are not."""
ROWS = st.dictionaries(st.integers(EOS, 9), SCORES, max_size=6)


@pytest.mark.slow
@settings(max_examples=examples(250))
@given(
    st.lists(st.tuples(ROWS, TOTALS, st.booleans()), min_size=1, max_size=6),
    st.integers(1, 5),
    st.integers(1, 5),
    st.sampled_from([math.inf, 0.5]),
    st.booleans(),
)
def test_children_are_those_of_a_plain_sort(
    nodes: list[tuple[dict[int, float], float, bool]], size: int, each: int, width: float, all_ends: bool
) -> None:
    rows = [dict(sorted(row.items())) for row, _, _ in nodes]
    groups = np.cumsum([begins for _, _, begins in nodes])
    flat = [(i, token, score) for i, row in enumerate(rows) for token, score in row.items()]
    row, token = (np.array([arc[place] for arc in flat], np.int64) for place in (0, 1))
    score = np.array([arc[2] for arc in flat], np.float64)
    total = np.array([nodes[i][1] + s for i, _, s in flat], np.float64)
    choice = Choice(size, each, width, all_ends)
    found = choose_rows(row, token, score, total, [score, -score], groups, choice)
    expected = [arc for group in sorted({*groups.tolist()}) for arc in plain(nodes, groups == group, choice)]
    assert list(zip(found.row.tolist(), found.token.tolist(), strict=True)) == expected
    assert found.ledger.tolist() == [[rows[i][t], -rows[i][t]] for i, t in expected]
    assert found.total.tolist() == [nodes[i][1] + rows[i][t] for i, t in expected]


def plain(
    nodes: list[tuple[dict[int, float], float, bool]], of_group: np.ndarray, choice: Choice
) -> list[tuple[int, int]]:
    """Rows and tokens: best total first, then the earlier row, then the better score, then the lower token."""
    offers = []
    for i in np.flatnonzero(of_group).tolist():
        row, before, _ = nodes[i]
        ranked = sorted((-score, token) for token, score in row.items() if score > FORBIDDEN)[: choice.each]
        best = before - ranked[0][0] if ranked else 0.0
        offers += [(-(before - s), i, s, token) for s, token in ranked if before - s >= best - choice.width]
    chosen, opened = [], 0
    for _, i, _, token in sorted(offers):
        if opened < choice.size or (choice.all_ends and token == EOS):
            chosen.append((i, token))
        opened += token != EOS
    return chosen
