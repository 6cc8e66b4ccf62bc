"""`lendfs` finds the best hypothesis of each length, and nothing longer of the list than was asked for."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sgdec_decoders.dfs import DfsDecoder
from sgdec_decoders.lendfs import LenDfsDecoder

from sgdec.testing import TinySpace, enumerate_space
from tests.helpers.breadth import examples
from tests.helpers.random_spaces import random_spaces, search


@settings(max_examples=examples(40))
@given(
    space=random_spaces(),
    nbest=st.sampled_from([1, 2, 50]),
    alpha=st.sampled_from([0.0, 0.8]),
    recombine=st.booleans(),
)
def test_the_best_of_each_length_best_first(space: TinySpace, nbest: int, alpha: float, recombine: bool) -> None:
    decoder = LenDfsDecoder(alpha=alpha, recombine=recombine)
    result, _ = search(decoder, space, nbest)
    best: dict[int, float] = {}
    for path in enumerate_space(space.constellation(), space.source, ranking=decoder.ranking):
        best.setdefault(len(path.tokens), path.rank_score(decoder.ranking))
    expected = sorted(best.values(), reverse=True)[:nbest]
    assert [h.rank_score for h in result.hypotheses] == pytest.approx(expected, abs=1e-9)
    assert result.proven
    lengths = [len(h.tokens) for h in result.hypotheses]
    assert len(set(lengths)) == len(lengths)
    for hypothesis in result.hypotheses:
        assert hypothesis.rank_score == pytest.approx(best[len(hypothesis.tokens)], abs=1e-9)


@settings(max_examples=examples(20))
@given(space=random_spaces())
def test_for_one_hypothesis_it_is_dfs(space: TinySpace) -> None:
    (found, here), (expected, there) = search(LenDfsDecoder(), space), search(DfsDecoder(), space)
    assert found.hypotheses == expected.hypotheses and here.expansions == there.expansions
