"""Random constellations small enough to enumerate, and what a search must find in them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import strategies as st

from sgdec import Decoder, Result
from sgdec.search.space import SearchSpace
from sgdec.testing import TinySpace, enumerate_space
from sgdec.testing.random_spaces import KINDS, WEIGHTS, V, needs_no_limit, random_predictor
from tests.helpers.oracles import opened, tiny


@st.composite
def random_spaces(
    draw: st.DrawFn, kinds: Sequence[str] = KINDS, weights: Sequence[float] = WEIGHTS, highest: float = 2.0
) -> TinySpace:
    """One to three predictors; scores up to ``highest``, some forbidden, many equal; weights of both signs."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    chosen = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=3))
    coarse = draw(st.booleans())
    predictors = [random_predictor(kind, rng, highest, coarse) for kind in chosen]
    given = [draw(st.sampled_from(weights)) for _ in chosen]
    limits = st.integers(0, 3)
    limit = draw(limits | st.none() if needs_no_limit(chosen, given) else limits)
    return tiny(limit, given, V, **dict(zip("abc", predictors, strict=False)))


def search(decoder: Decoder, space: TinySpace, nbest: int = 1) -> tuple[Result, SearchSpace]:
    """The result, and the space with its count of expansions."""
    here = opened(space, ranking=decoder.ranking, nbest=nbest)
    return decoder.decode(here), here


def expect_the_nbest(result: Result, space: TinySpace, decoder: Decoder, nbest: int) -> None:
    """The rank scores that enumeration finds; tokens may differ where these are equal, but are what they score."""
    paths = enumerate_space(space.constellation(), space.source, ranking=decoder.ranking)
    expected = [path.rank_score(decoder.ranking) for path in paths[:nbest]]
    assert [h.rank_score for h in result.hypotheses] == pytest.approx(expected, abs=1e-9)
    totals = {path.tokens: path.total for path in paths}
    for hypothesis in result.hypotheses:
        assert hypothesis.score == pytest.approx(totals[hypothesis.tokens], abs=1e-9)
    assert len({hypothesis.tokens for hypothesis in result.hypotheses}) == len(result.hypotheses)
