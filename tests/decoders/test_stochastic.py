"""`stochastic` draws without replacement, or with evenly spread codes, as its two papers say.

The oracle is enumeration: the probabilities of all leaves, dead ends among them, by plain recursion.
"""

from __future__ import annotations

import math
from collections import Counter
from functools import cache
from itertools import pairwise, permutations

import numpy as np
import pytest
from sgdec_decoders.sample import SampleDecoder
from sgdec_decoders.stochastic import (
    PartialDraw,
    StochasticDecoder,
    arithmetic,
    gumbel_top_k,
    log_inclusion,
    with_maximum,
)

from sgdec import EOS, Result, Source
from sgdec.chain import UNCHAINED, Chain
from sgdec.search.constellation import Constellation
from sgdec.search.scheduler import Scheduler
from sgdec.search.space import SearchSpace
from sgdec.testing import Bonus, Lattice, Table
from tests.helpers.breadth import examples
from tests.helpers.chi_squared import critical, statistic
from tests.helpers.oracles import leaves, opened, tiny

RUNS = examples(3000)
LATTICE = Lattice(
    {
        0: {3: (0.0, 1), 4: (-1.6, 2)},
        1: {3: (0.2, 3), 4: (-1.9, 3), EOS: (-1.7, 9)},
        2: {3: (-0.1, 3), 4: (-0.2, 8)},  # nothing follows 4 4
        3: {EOS: (0.0, 9)},
    }
)
SPACE = tiny(None, [1.0, -0.5], 5, a=LATTICE, b=Bonus({3: 0.8}, default=-0.2))
DEAD = (4, 4)

Tokens = tuple[int, ...]

Q = leaves(SPACE)


@cache
def constellation() -> Constellation:
    return SPACE.constellation()


def opened_with(seed: int) -> SearchSpace:
    (root,) = constellation().roots([SPACE.source])
    return SearchSpace(constellation(), root, seed=seed, nbest=99)


@cache
def drawn_two() -> list[tuple[list[PartialDraw], float]]:
    return [gumbel_top_k(opened_with(seed), 2) for seed in range(RUNS)]


@pytest.mark.slow
def test_the_ordered_draw_is_one_without_replacement() -> None:
    law = {(a, b): Q[a] * Q[b] / (1 - Q[a]) for a, b in permutations(Q, 2)}
    counts = Counter((a.node.tokens, b.node.tokens) for (a, b), _ in drawn_two())
    found, freedom = statistic(counts, law)
    assert freedom > 12 and found < critical(freedom)
    different_of_two = {(a, b): Q[a] * Q[b] / (1 - sum(p * p for p in Q.values())) for a, b in law}
    assert statistic(counts, different_of_two)[0] > critical(freedom)  # a law that is close is told apart


@pytest.mark.slow
def test_weighted_sums_are_unbiased() -> None:
    """Of the indicator of each hypothesis, so of any function; a dead end's place is not filled by others."""
    estimates = np.zeros((RUNS, len(Q)))
    for run, (draws, threshold) in enumerate(drawn_two()):
        drawn = {draw.node.tokens for draw in draws}
        for at, (leaf, p) in enumerate(Q.items()):
            if leaf in drawn:
                estimates[run, at] = math.exp(math.log(p) - log_inclusion(math.log(p), threshold))
    errors = estimates.std(axis=0) / math.sqrt(RUNS)
    assert np.all(np.abs(estimates.mean(axis=0) - list(Q.values())) < 4 * errors)
    highest = [draws[0].perturbed for draws, _ in drawn_two()]  # a Gumbel variable; the draw itself does not need it
    assert abs(np.mean(highest) - np.euler_gamma) < 4 * math.pi / math.sqrt(6 * RUNS)


def hypotheses(method: str, samples: int, seed: int = 1, chain: Chain = UNCHAINED) -> Result:
    decoder = StochasticDecoder(samples=samples, method=method, chain=chain)  # type: ignore[arg-type]
    return decoder.decode(opened_with(seed))


def test_a_hypothesis_has_its_probability_and_its_weight() -> None:
    for seed in range(20):
        result, (draws, threshold) = hypotheses("gumbel", 3, seed), gumbel_top_k(opened_with(seed), 3)
        assert {(*h.tokens, EOS) for h in result.hypotheses} == {d.node.tokens for d in draws} - {DEAD}
        assert result.drawn == 3
        for found in result.hypotheses:
            q = Q[(*found.tokens, EOS)]
            assert found.count is None and math.exp(found.log_q or 0.0) == pytest.approx(q)
            assert math.exp(found.log_weight or 0.0) == pytest.approx(q / -math.expm1(-q * math.exp(-threshold)))


def test_more_draws_begin_with_the_fewer_ones_and_the_next_one_is_the_threshold() -> None:
    for seed in range(20):
        runs = [gumbel_top_k(opened_with(seed), k) for k in range(1, 7)]
        for (few, threshold), (more, _) in pairwise(runs):
            order = [draw.node.tokens for draw in more]
            assert [draw.node.tokens for draw in few] == order[: len(few)]
            assert (more[-1].perturbed if len(more) > len(few) else -math.inf) == threshold


def test_if_all_leaves_are_drawn_weights_are_probabilities() -> None:
    result = hypotheses("gumbel", 50)
    assert result.drawn == len(Q) == len(result.hypotheses) + 1
    for found in result.hypotheses:
        assert found.log_weight == found.log_q == pytest.approx(math.log(Q[(*found.tokens, EOS)]))
    assert [h.score for h in result.hypotheses] == sorted((h.score for h in result.hypotheses), reverse=True)


@pytest.mark.slow
def test_each_arithmetic_draw_has_the_distribution() -> None:
    by_number: list[Counter[Tokens]] = [Counter() for _ in range(3)]
    for seed in range(RUNS):
        for counts, draw in zip(by_number, arithmetic(opened_with(seed), 3), strict=True):
            counts[draw.node.tokens] += 1
    for counts in by_number:
        found, freedom = statistic(counts, Q)
        assert freedom == len(Q) - 1 and found < critical(freedom)


def test_arithmetic_draws_are_spread_evenly() -> None:
    """Codes are 1 / (n + 1) apart, at one place twice that."""
    n = 40
    for seed in range(10):
        result = hypotheses("arithmetic", n, seed)
        counts = {(*h.tokens, EOS): h.count or 0 for h in result.hypotheses}
        counts[DEAD] = n - sum(counts.values())
        assert result.drawn == n and all(h.log_weight is None for h in result.hypotheses)
        for leaf, p in Q.items():
            assert abs(counts[leaf] - (n + 1) * p) <= 2


def test_arithmetic_draws_stay_exact_when_a_code_has_no_bits_left() -> None:
    """After nine choices of one of 64 all random bits of a code are used up; those after them are even too."""
    uniform = tiny(40, vocab_size=67, a=Table([[-math.inf] * 3 + [0.0] * 64] * 67))
    late = [draw.node.tokens[10:-1] for draw in arithmetic(opened(uniform), 30)]
    assert len(set(late)) == 30
    counts = Counter(token for tokens in late for token in tokens)
    found, freedom = statistic(counts, dict.fromkeys(range(3, 67), 1 / 64))
    assert freedom == 63 and found < critical(freedom)


def test_the_chain_changes_the_distribution() -> None:
    chain = Chain.parse("temperature=2+top_k=2+mirostat=1")
    for method in ("gumbel", "arithmetic"):
        (only,) = hypotheses(method, 9, chain=Chain.parse("top_k=1")).hypotheses
        assert only.log_q == 0.0 and only.tokens == (3, 3)
        found = hypotheses(method, 9, chain=chain).hypotheses
        drawn = SampleDecoder(samples=200, chain=chain).decode(opened_with(3)).hypotheses
        known = {h.tokens: h.log_q for h in drawn}
        assert found and all(h.log_q == pytest.approx(known[h.tokens]) for h in found)


@pytest.mark.parametrize("method", ["gumbel", "arithmetic"])
def test_batches_and_their_order_change_nothing(method: str) -> None:
    decoder = StochasticDecoder(samples=3, method=method)  # type: ignore[arg-type]
    sources = [Source(number, (3, 4, 3)) for number in range(1, 9)]

    def run(batch_size: int, order: int) -> dict[int, Result]:
        scheduler = Scheduler(constellation(), decoder, nbest=9, batch_size=batch_size, seed=5)
        return {outcome.source.id: outcome.result for outcome in scheduler.run(sources[::order])}

    alone = run(1, 1)
    assert alone == run(5, -1)
    assert len({tuple(h.tokens for h in result.hypotheses) for result in alone.values()}) > 1


def test_noise_is_stable_where_probabilities_are_tiny() -> None:
    """Of a prefix with probability exp(-2000), whose best leaf is near 0."""
    with np.errstate(over="raise", invalid="raise"):
        sums = with_maximum(np.array([-2001.0, -2000.5, -2003.0]), 0.3)
    assert sums[1] == 0.3 and np.all(np.isfinite(sums)) and sums[0] == pytest.approx(-2000.5, abs=1.0)
    assert log_inclusion(-2000.0, 0.0) == -2000.0 and log_inclusion(-3.0, -math.inf) == 0.0
    assert log_inclusion(-40.0 - 1e-9, 0.0) == pytest.approx(log_inclusion(-40.0 + 1e-9, 0.0))


def test_nothing_is_drawn_from_an_empty_space() -> None:
    nothing = tiny(a=Lattice({0: {4: (0.0, 2)}}))
    for method, drawn in (("gumbel", 1), ("arithmetic", 3)):  # one leaf; three draws of it
        result = StochasticDecoder(samples=3, method=method).decode(opened(nothing))  # type: ignore[arg-type]
        assert result.hypotheses == [] and result.drawn == drawn
