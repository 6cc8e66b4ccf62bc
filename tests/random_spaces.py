"""Random constellations small enough to enumerate, and what a search must find in them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import strategies as st

from sgdec import EOS, Decoder, Predictor, Result
from sgdec.protocol import FORBIDDEN, BatchPredictor
from sgdec.search import SearchSpace
from sgdec.testing import BatchTable, Bonus, Lattice, OnDemandTable, Table, TinySpace, enumerate_space
from tests.oracles import opened, tiny

V = 4
KINDS = ("table", "falling", "batch", "on demand", "bonus", "lattice")
WEIGHTS = (1.0, 0.5, 2.0, -1.0, -0.3, 0.0)


@st.composite
def random_spaces(
    draw: st.DrawFn, kinds: Sequence[str] = KINDS, weights: Sequence[float] = WEIGHTS, highest: float = 2.0
) -> TinySpace:
    """One to three predictors; scores up to ``highest``, some forbidden, many equal; weights of both signs."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    chosen = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=3))
    coarse = draw(st.booleans())
    predictors = [_predictor(kind, rng, highest, coarse) for kind in chosen]
    given = [draw(st.sampled_from(weights)) for _ in chosen]
    limits = st.integers(0, 3)
    limit = draw(limits | st.none() if "lattice" in chosen else limits)
    return tiny(limit, given, V, **dict(zip("abc", predictors, strict=False)))


def scores(rng: np.random.Generator, shape: Sequence[int], highest: float, coarse: bool) -> np.ndarray:
    """Coarse ones are multiples of a half, so that many are equal; one in seven is forbidden."""
    values = rng.uniform(highest - 4.0, highest, shape)
    if coarse:
        values = np.floor(2 * values) / 2
    return np.where(rng.random(shape) < 1 / 7, FORBIDDEN, values)


def random_lattice(rng: np.random.Generator, highest: float, coarse: bool) -> Lattice:
    """Five states in topological order; there may be no way to the end."""
    arcs: dict[int, dict[int, tuple[float, int]]] = {}
    for state in range(5):
        tokens = rng.permutation(V)[: rng.integers(1, 4)].tolist()
        values = scores(rng, (len(tokens),), highest, coarse).tolist()
        targets = rng.integers(state + 1, 6, len(tokens)).tolist()
        arcs[state] = {
            token: (value, 9 if token == EOS else target)
            for token, value, target in zip(tokens, values, targets, strict=True)
            if value != FORBIDDEN
        }
    return Lattice(arcs)


def _predictor(kind: str, rng: np.random.Generator, highest: float, coarse: bool) -> Predictor | BatchPredictor:
    if kind == "lattice":
        return random_lattice(rng, highest, coarse)
    if kind == "bonus":
        few = scores(rng, (2,), highest, coarse).tolist()
        return Bonus({EOS: few[0], 3: few[1]}, default=min(highest, -0.5))
    table = scores(rng, (V, V), highest, coarse)
    if kind == "falling":
        return Falling(np.minimum(table, 0.0))
    return {"table": Table, "batch": BatchTable, "on demand": OnDemandTable}[kind](table)


class Falling(Table):
    """Of log-probabilities: says that no score is positive."""

    never_positive = True


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
