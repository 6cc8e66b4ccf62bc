"""Searches find in random tables what plain recursion finds there, several sentences at a time.

Positive scores, predictors that are not consulted, rows in every form and precision, budgets and their gaps, systems
one by one, words as steps, and the distribution of samples. See `explicit_spaces` for what is random.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sgdec.plugins.host import Host
from sgdec.search.outcome import Outcome
from sgdec.search.scheduler import Scheduler
from tests.helpers.breadth import examples, some
from tests.helpers.chi_squared import critical
from tests.helpers.explicit_spaces import DENSE, EOS, FORMS, OTHER, Space, Tokens, random_space, rank_score

pytestmark = pytest.mark.slow

HOST = Host(autoload=False)
WIDE = {"size": 200, "stop": "proven"}
RANKINGS = st.tuples(
    st.sampled_from([0.0, 0.7, -0.4]), st.sampled_from([0.0, 0.0, 0.3]), st.sampled_from(["gnmt", "length"])
)
"""alpha, beta and normalize"""
SEEDS, NBEST = st.integers(0, 2**32), st.integers(1, 4)
BATCH_SIZES = st.sampled_from([1, 2, 64])
Ranked = tuple[float, float, str]
EXACT: dict[str, dict[str, Any]] = {
    "dfs": {}, "lendfs": {}, "restarting": {}, "astar": {}, "bucket": {"size": 2}, "beam": WIDE, "vanilla": WIDE,
}  # fmt: skip
DRAWS = 800


def named(ranking: Ranked) -> dict[str, Any]:
    return dict(zip(("alpha", "beta", "normalize"), ranking, strict=True))


def ranked(
    space: Space, sentence: int, ranking: Ranked, weights: Sequence[float | None] | None = None
) -> list[tuple[Tokens, float, float]]:
    """Every hypothesis with its total and its rank score."""
    alpha, beta, normalize = ranking
    return [
        (
            tokens,
            total,
            rank_score(total, tokens, alpha, normalize)
            + (beta * space.coverage_penalty(sentence, tokens, weights) if beta else 0.0),
        )
        for tokens, total in space.hypotheses(sentence, weights)
    ]


def decode(
    space: Space, decoder: str, options: dict[str, Any], *, nbest: int = 1, batch_size: int = 3
) -> list[Outcome]:
    made = HOST.load("decoder", decoder)(**options)
    scheduler = Scheduler(space.constellation(), made, nbest=nbest, batch_size=batch_size)
    return list(scheduler.run(space.sources()))


def expect_the_best(outcome: Outcome, expected: Sequence[tuple[Tokens, float, float]], nbest: int) -> None:
    """The rank scores of the ``nbest`` best; tokens may differ where these are equal, but are what they score."""
    ranks = sorted((rank for _, _, rank in expected), reverse=True)
    found = outcome.result.hypotheses
    assert [hypothesis.rank_score for hypothesis in found] == pytest.approx(ranks[:nbest], abs=1e-9)
    for hypothesis in found:
        totals = [total for tokens, total, _ in expected if tokens == hypothesis.tokens]
        assert min(abs(total - hypothesis.score) for total in totals) < 1e-9


@pytest.mark.parametrize("name", EXACT)
@settings(max_examples=examples(40))
@given(seed=SEEDS, ranking=RANKINGS, nbest=NBEST, batch_size=BATCH_SIZES, recombine=st.booleans())
def test_exact_searches_find_the_nbest(
    name: str, seed: int, ranking: Ranked, nbest: int, batch_size: int, recombine: bool
) -> None:
    space = random_space(seed, forms=DENSE if name == "vanilla" else FORMS)
    options = {**EXACT[name], **named(ranking)}
    if name != "vanilla":
        options["recombine"] = recombine
    if name == "lendfs" or (name == "beam" and recombine):
        nbest = 1
    for outcome in decode(space, name, options, nbest=nbest, batch_size=batch_size):
        expect_the_best(outcome, ranked(space, outcome.source.id, ranking), nbest)
        if name not in ("beam", "vanilla"):
            assert outcome.result.proven is True


@pytest.mark.parametrize("name", ["dfs", "lendfs", "restarting", "astar", "bucket"])
@settings(max_examples=examples(60))
@given(seed=SEEDS, ranking=RANKINGS, nbest=st.integers(1, 3), budget=st.integers(1, 12), recombine=st.booleans())
def test_what_a_budget_leaves_open_is_within_the_gap(
    name: str, seed: int, ranking: Ranked, nbest: int, budget: int, recombine: bool
) -> None:
    space = random_space(seed)
    options = {**named(ranking), "max_expansions": budget, "recombine": recombine}
    for outcome in decode(space, name, options, nbest=1 if name == "lendfs" else nbest):
        expected, result = ranked(space, outcome.source.id, ranking), outcome.result
        best = max((rank for _, _, rank in expected), default=-math.inf)
        assert result.proven in (True, False)
        if result.proven:
            expect_the_best(outcome, expected, 1 if name == "lendfs" else nbest)
        elif result.hypotheses:
            assert result.gap is not None
            assert best <= result.hypotheses[0].rank_score + result.gap + 1e-9
            totals = {tokens: total for tokens, total, _ in expected}
            assert all(found.score == pytest.approx(totals[found.tokens], abs=1e-9) for found in result.hypotheses)


@settings(max_examples=examples(60))
@given(seed=SEEDS, ranking=RANKINGS, nbest=NBEST)
def test_separate_beams_find_the_best_of_single_systems(seed: int, ranking: Ranked, nbest: int) -> None:
    """Those of weight None and 0 are no systems."""
    space = random_space(seed)
    if not any(space.weights):
        return
    options = {**WIDE, **named(ranking)}
    for outcome in decode(space, "sepbeam", options, nbest=nbest):
        alone = [
            [weight if other == k else None for other in range(len(space.weights))]
            for k, weight in enumerate(space.weights)
            if weight
        ]
        expected = [found for weights in alone for found in ranked(space, outcome.source.id, ranking, weights)]
        expect_the_best(outcome, expected, nbest)


def words(tokens: Tokens) -> list[int]:
    """The lengths of the words of an output, which end with `OTHER` or ``</s>``."""
    lengths = [0]
    for token in (*tokens, EOS):
        lengths[-1] += 1
        if token == OTHER:
            lengths.append(0)
    return lengths


@settings(max_examples=examples(60))
@given(seed=SEEDS, ranking=RANKINGS, nbest=NBEST, longest=st.integers(1, 4))
def test_synchronised_beams_find_the_best_of_what_has_no_long_word(
    seed: int, ranking: Ranked, nbest: int, longest: int
) -> None:
    space = random_space(seed)
    options = {**WIDE, **named(ranking), "symbol": OTHER, "max_word_length": longest}
    for outcome in decode(space, "syncbeam", options, nbest=nbest):
        everything = ranked(space, outcome.source.id, ranking)
        expected = [found for found in everything if max(words(found[0])) <= longest]
        expect_the_best(outcome, expected, nbest)


@pytest.mark.parametrize(
    ("seed", "temperature"), some([*((seed, 1.0) for seed in range(10)), (0, 0.6), (3, 0.6)], first=1)
)
def test_samples_come_as_often_as_they_should(seed: int, temperature: float) -> None:
    """Pearson's chi-squared test over whole hypotheses, the lost samples among them."""
    space = random_space(seed, weights=(1.0, 0.5, None), sentences=DRAWS, same=True)
    outcomes = decode(space, "sample", {"temperature": temperature}, batch_size=250)
    drawn = Counter(found.tokens for outcome in outcomes for found in outcome.result.hypotheses)
    likely = distribution(space, (), temperature)
    assert drawn.keys() <= likely.keys()
    cells = [(DRAWS * p, drawn[tokens]) for tokens, p in likely.items() if DRAWS * p >= 5]
    cells.append((DRAWS - sum(e for e, _ in cells), DRAWS - sum(o for _, o in cells)))  # rare ones, and lost samples
    statistic = sum((observed - e) ** 2 / e for e, observed in cells if e > 1e-6)
    assert statistic < critical(sum(e > 1e-6 for e, _ in cells) - 1)


def distribution(space: Space, prefix: Tokens, temperature: float) -> dict[Tokens, float]:
    """How likely each hypothesis with this prefix is, token by token."""
    combined = space.combined(1, prefix)
    if not combined:
        return {}
    likely: dict[Tokens, float] = {}
    weights = np.exp([score / temperature for _, score in combined])
    for (token, _), p in zip(combined, weights / weights.sum(), strict=True):
        after = {prefix: 1.0} if token == EOS else distribution(space, (*prefix, token), temperature)
        likely |= {tokens: float(p) * q for tokens, q in after.items()}
    return likely
