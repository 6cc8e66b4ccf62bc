"""The promise: IBM Model 1 as its equations say, for any text; and a shortlist keeps the likely and the frequent."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sgdec.estimation import lexicon
from sgdec.estimation.lexicon import NULL, Lexicon, estimate_lexicon, shortlist_of

V = 7
TOKENS = st.integers(3, V - 1)
PAIRS = st.lists(st.tuples(st.lists(TOKENS, max_size=4), st.lists(TOKENS, max_size=4)), min_size=1, max_size=8)
Pairs = list[tuple[list[int], list[int]]]


def by_hand(pairs: Pairs, iterations: int) -> dict[tuple[int, int], float]:
    """Brown et al. 1993, equations 14, 15 and 17, one link at a time."""
    pairs = [([NULL, *source], target) for source, target in pairs if source and target]
    table = {(s, t): 1.0 for source, target in pairs for s in source for t in target}
    for _ in range(iterations):
        counts: dict[tuple[int, int], float] = defaultdict(float)
        for source, target in pairs:
            for t in target:
                total = sum(table[s, t] for s in source)
                for s in source:
                    counts[s, t] += table[s, t] / total
        of_source: dict[int, float] = defaultdict(float)
        for (s, _), count in counts.items():
            of_source[s] += count
        table = {(s, t): count / of_source[s] for (s, t), count in counts.items()}
    return table


@pytest.mark.parametrize("at_once", [1, 5, 1 << 22])
@example([([3], [4]), ([5, 3], [6, 3]), ([], [4]), ([4], [6])], 2)
@given(PAIRS, st.integers(1, 4))
def test_the_table_is_that_of_the_equations_whatever_the_blocks(at_once: int, pairs: Pairs, iterations: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lexicon, "LINKS_AT_ONCE", at_once)
        found = estimate_lexicon(pairs, V, iterations=iterations)
    expected = by_hand(pairs, iterations)
    entries = zip(found.sources.tolist(), found.targets.tolist(), found.probabilities, strict=True)
    assert {(s, t): p for s, t, p in entries} == pytest.approx(expected)
    used = Counter(token for source, target in pairs if source and target for token in target)
    assert found.counts.tolist() == [used[token] for token in range(V)]


@given(PAIRS)
def test_probabilities_of_a_source_add_up_and_fall(pairs: Pairs) -> None:
    found = estimate_lexicon(pairs, V)
    for source in set(found.sources.tolist()):
        row = found.probabilities[found.sources == source]
        assert row.sum() == pytest.approx(1)
        assert (np.diff(row) <= 0).all()


def test_a_shortlist_has_the_likeliest_of_each_source_and_the_most_frequent() -> None:
    table = Lexicon(
        np.array([NULL, 3, 3, 3, 5]), np.array([6, 4, 5, 6, 3]), np.array([1.0, 0.5, 0.3, 0.2, 1.0]),
        np.array([0, 0, 0, 2, 9, 2, 0]),
    )  # fmt: skip
    found = shortlist_of(table, 6, k=2, frequent=5)
    assert found.starts.tolist() == [0, 0, 0, 0, 2, 2, 3]
    assert found.tokens.tolist() == [4, 5, 3]
    assert found.frequent.tolist() == [4, 3, 5]  # as often: the smaller token; what never occurs is not listed
    assert found.best(1).tokens.tolist() == [4, 3]
    assert found.translations((5, 3, 3)).tolist() == [3, 4, 5]
    assert found.translations((4,)).tolist() == []
