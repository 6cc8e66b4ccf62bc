"""`sample` draws whole hypotheses as often as their probabilities say, and the same ones for the same seed."""

from __future__ import annotations

import math
from collections import Counter
from functools import cache

import numpy as np
import pytest
from sgdec_decoders.sample import SampleDecoder

from sgdec import EOS
from sgdec.chain import Chain
from sgdec.search.space import SearchSpace
from sgdec.testing import Bonus, Lattice, Table, TinySpace, enumerate_space
from tests.helpers.oracles import opened, tiny

DRAWS = 800
CERTAIN = 3.719
"""The normal quantile at 1 - 1e-4: how sure the test is. Seeds are fixed, so it fails always or never."""


@cache
def draws(space: TinySpace, **options: float) -> Counter[tuple[int, ...]]:
    """How often each hypothesis comes, one draw a seed."""
    constellation = space.constellation()
    decoder = SampleDecoder(**options)  # type: ignore[arg-type]
    counts: Counter[tuple[int, ...]] = Counter()
    for seed in range(DRAWS):
        (root,) = constellation.roots([space.source])
        counts.update(h.tokens for h in decoder.decode(SearchSpace(constellation, root, seed=seed)).hypotheses)
    return counts


def assert_distributed(counts: Counter[tuple[int, ...]], probabilities: dict[tuple[int, ...], float]) -> None:
    """Pearson's chi-squared test, hypotheses expected less than five times counted together."""
    assert set(counts) <= set(probabilities)
    expected = {tokens: DRAWS * p for tokens, p in probabilities.items()}
    cells = [(counts[tokens], often) for tokens, often in expected.items() if often >= 5]
    rare = [(counts[tokens], often) for tokens, often in expected.items() if often < 5]
    if sum(often for _, often in rare) >= 5:
        cells.append((sum(count for count, _ in rare), sum(often for _, often in rare)))
    freedom = len(cells) - 1
    assert freedom >= 3
    statistic = sum((count - often) ** 2 / often for count, often in cells)
    # The chi-squared quantile, by the approximation of Wilson and Hilferty 1931.
    assert statistic < freedom * (1 - 2 / (9 * freedom) + CERTAIN * math.sqrt(2 / (9 * freedom))) ** 3


def of_paths(space: TinySpace) -> dict[tuple[int, ...], float]:
    return {path.tokens: math.exp(path.total) for path in enumerate_space(space.constellation(), space.source)}


@pytest.mark.slow
def test_hypotheses_come_as_often_as_the_model_says() -> None:
    """Of a normalised model, whose totals are log-probabilities of whole sentences."""
    with np.errstate(divide="ignore"):  # log 0 = -inf
        table = np.log([[0.0, 0.0, 0.6, 0.4], [0.2, 0.0, 0.3, 0.5], [0.0] * 4, [0.0, 0.0, 1.0, 0.0]])
    space = tiny(2, a=Table(table))
    probabilities = of_paths(space)
    assert probabilities == pytest.approx({(): 0.3, (0,): 0.12, (0, 3): 0.08, (3,): 0.5})
    assert_distributed(draws(space), probabilities)


LATTICE = Lattice(
    {
        0: {3: (-0.5, 1), 4: (-2.0, 2)},
        1: {3: (-0.4, 3), 4: (-2.2, 3), EOS: (-1.0, 9)},
        2: {3: (-0.1, 3), 4: (-0.2, 3)},
        3: {EOS: (0.0, 9)},
    }
)
MIXED = tiny(None, [1.0, -0.5], 5, a=LATTICE, b=Bonus({3: 0.8}, default=-0.2))


def locally_normalised(space: TinySpace, temperature: float = 1.0) -> dict[tuple[int, ...], float]:
    """By plain recursion over the children of each node."""
    here = opened(space)
    found: dict[tuple[int, ...], float] = {}
    stack = [(here.root, 1.0)]
    while stack:
        node, probability = stack.pop()
        if node.finished:
            found[node.tokens[:-1]] = probability
            continue
        children = list(here.expand([node])[0])
        weights = [math.exp((child.total - node.total) / temperature) for child in children]
        stack += [(c, probability * w / sum(weights)) for c, w in zip(children, weights, strict=True)]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_any_constellation_is_renormalised_token_by_token(temperature: float) -> None:
    assert_distributed(draws(MIXED, temperature=temperature), locally_normalised(MIXED, temperature))


def test_another_distribution_would_be_told_apart() -> None:
    with pytest.raises(AssertionError):
        assert_distributed(draws(MIXED, temperature=1.0), locally_normalised(MIXED, 0.5))


def decode(decoder: SampleDecoder, seed: int = 1, nbest: int = 1) -> list[tuple[int, ...]]:
    constellation = MIXED.constellation()
    (root,) = constellation.roots([MIXED.source])
    space = SearchSpace(constellation, root, seed=seed, nbest=nbest)
    return [hypothesis.tokens for hypothesis in decoder.decode(space).hypotheses]


def test_of_one_best_token_only_greedy_is_left() -> None:
    greedy = (3, 3)
    for options in ({"top_k": 1}, {"top_p": 1e-6}, {"temperature": 1e-3}):
        assert {decode(SampleDecoder(**options), seed)[0] for seed in range(40)} == {greedy}  # type: ignore[arg-type]


def test_the_same_seed_draws_the_same_hypotheses() -> None:
    first = [decode(SampleDecoder(), seed) for seed in range(30)]
    assert first == [decode(SampleDecoder(), seed) for seed in range(30)]
    assert len({tuple(found) for found in first}) > 1


def test_more_samples_are_listed_once_each_and_best_first() -> None:
    found = decode(SampleDecoder(samples=200), nbest=100)
    paths = enumerate_space(MIXED.constellation(), MIXED.source)
    totals = {path.tokens: path.total for path in paths}
    assert sorted(found) == sorted(totals)  # 200 draws of five hypotheses
    assert [totals[tokens] for tokens in found] == pytest.approx([path.total for path in paths])


def test_more_samples_contain_the_fewer_ones() -> None:
    few, many = decode(SampleDecoder(samples=2), nbest=9), decode(SampleDecoder(samples=4), nbest=9)
    assert set(few) <= set(many)


def test_a_dead_end_loses_its_sample() -> None:
    trap = tiny(a=Lattice({0: {3: (0.0, 1), 4: (0.0, 2)}, 1: {EOS: (0.0, 9)}}))
    here = opened(trap, nbest=5)
    assert [h.tokens for h in SampleDecoder(samples=50).decode(here).hypotheses] == [(3,)]
    nothing = opened(tiny(a=Lattice({0: {4: (0.0, 2)}})))
    assert SampleDecoder(samples=5).decode(nothing).hypotheses == []


def test_each_hypothesis_has_its_number_of_draws_and_its_probability() -> None:
    drawn = 2_000
    for options, temperature in (({}, 1.0), ({"temperature": 2.0}, 2.0)):
        result = SampleDecoder(samples=drawn, **options).decode(opened(MIXED, nbest=100))  # type: ignore[arg-type]
        counts = {h.tokens: h.count for h in result.hypotheses}
        probabilities = locally_normalised(MIXED, temperature)
        log_q = {h.tokens: h.log_q for h in result.hypotheses}
        assert log_q == pytest.approx({tokens: math.log(p) for tokens, p in probabilities.items()}, abs=1e-12)
        assert sum(count or 0 for count in counts.values()) == result.drawn == drawn
        for tokens, p in probabilities.items():
            assert abs((counts[tokens] or 0) - drawn * p) < 4 * math.sqrt(drawn * p * (1 - p))


def test_under_cuts_the_probability_is_that_among_the_tokens_left() -> None:
    (found,) = SampleDecoder(samples=9, top_k=1).decode(opened(MIXED, nbest=9)).hypotheses
    assert found.count == 9 and found.log_q == 0.0


def test_lost_draws_are_counted() -> None:
    trap = opened(tiny(a=Lattice({0: {3: (0.0, 1), 4: (0.0, 2)}, 1: {EOS: (0.0, 9)}})), nbest=5)
    result = SampleDecoder(samples=50).decode(trap)
    (found,) = result.hypotheses
    assert result.drawn == 50 and 10 < (found.count or 0) < 40 and found.log_q == pytest.approx(math.log(0.5))


def test_a_sample_takes_along_the_number_that_its_chain_keeps() -> None:
    table = np.random.default_rng(5).normal(size=(9, 9))
    chain, here = Chain.parse("mirostat=1.2:2"), opened(tiny(6, None, 9, a=Table(table)))
    for seed in range(12):
        here.seed = seed
        node, state, log_q = here.root, None, 0.0
        while not node.finished:
            (drawn,) = here.draw([node], [0], chain, [state])
            assert drawn is not None
            node, state, log_q = drawn.node, drawn.state, log_q + drawn.log_prob
        (found,) = SampleDecoder(chain=chain).decode(here).hypotheses
        assert (found.tokens, found.log_q) == (node.tokens[:-1], log_q)
