"""Lengths are compared overall and by length of the reference; references without tokens do not count."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sgdec.tasks.diagnosis.lengths import compare_lengths


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60))))
def test_each_pair_with_a_reference_is_in_one_bin(pairs: list[tuple[int, int]]) -> None:
    counted = [pair for pair in pairs if pair[1]]
    found = compare_lengths(pairs)
    assert found.sentences == sum(each.sentences for each in found.bins) == len(counted)
    assert found.shorter == sum(output < reference for output, reference in counted)
    assert found.longer == sum(output > reference for output, reference in counted)
    for each in found.bins:
        inside = [p for p in counted if each.shortest <= p[1] and (each.longest is None or p[1] <= each.longest)]
        assert len(inside) == each.sentences
        assert abs(each.ratio - sum(p[0] for p in inside) / sum(p[1] for p in inside)) < 1e-12
    assert (found.ratio is None) == (not counted)


def test_a_bias_that_grows_with_length_shows_in_the_bins() -> None:
    bins = compare_lengths([(5, 5), (7, 8), (10, 14), (25, 50)]).bins
    assert [(each.shortest, each.ratio) for each in bins] == [(1, 1.0), (6, 0.875), (11, 10 / 14), (41, 0.5)]
