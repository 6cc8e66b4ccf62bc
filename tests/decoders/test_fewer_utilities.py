"""Pruning and halving choose what plain loops of the papers' algorithms choose; with all references, the best."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sgdec_decoders._fewer_utilities import Estimates, halve, losses, prune

from sgdec.arrays import Floats
from tests.helpers.chi_squared import critical, statistic


class Case(NamedTuple):
    """Utilities of C candidates for R references, and the weights of these."""

    matrix: Floats
    weights: Floats

    @property
    def expected(self) -> list[float]:
        """The expected utilities, by a plain loop."""
        return [sum(u * w for u, w in zip(row, self.weights, strict=True)) for row in self.matrix.tolist()]


def case(seed: int, candidates: int, references: int, weighted: bool = True, step: float = 0.0) -> Case:
    """Random utilities; with a ``step`` they are multiples of it, so that some are equal. Some weights are 0."""
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(candidates, 1)) + rng.normal(size=(1, references))
    matrix = matrix + rng.normal(size=(candidates, references))
    if step:
        matrix = np.round(matrix / step) * step
    weights = rng.exponential(size=references) ** 2 if weighted else np.ones(references)
    if weighted and references > 2:
        weights[rng.random(references) < 0.2] = 0.0
        weights[rng.integers(references)] = 1.0
    return Case(matrix, weights / weights.sum())


class Asked:
    """Answers with parts of a matrix, and counts how often each pair is asked about."""

    def __init__(self, matrix: Floats) -> None:
        self.matrix, self.times = matrix, np.zeros(matrix.shape, int)

    def __call__(self, candidates: Any, references: Any) -> Any:
        self.times[np.ix_(candidates, references)] += 1
        return self.matrix[np.ix_(candidates, references)]


def estimates(case: Case, seed: int = 0) -> tuple[Estimates, Asked]:
    asked = Asked(case.matrix)
    return Estimates(asked, len(case.matrix), case.weights, generator(seed, 0)), asked


def generator(seed: int, step: int) -> np.random.Generator:
    return np.random.default_rng((seed, step))


class Plain:
    """The same by loops over single candidates and references."""

    def __init__(self, case: Case, seed: int) -> None:
        self.matrix, self.seed = case.matrix.tolist(), seed
        weights = {r: w for r, w in enumerate(case.weights.tolist()) if w > 0}
        noise = generator(seed, 0).gumbel(size=len(weights)).tolist()
        self.p = weights
        self.phi = {r: math.log(w) + g for (r, w), g in zip(weights.items(), noise, strict=True)}
        self.order = sorted(weights, key=lambda r: -self.phi[r])
        self.left = list(range(len(self.matrix)))
        self.estimate: dict[int, float] = {}
        self.dropped: list[list[int]] = []

    def weights(self, t: int) -> dict[int, float]:
        """Of the first t references: p / (1 - exp(-exp(log p - kappa))), kappa the sum of the next one."""
        if t == len(self.order):
            return self.p
        kappa = self.phi[self.order[t]]
        return {r: self.p[r] / -math.expm1(-math.exp(math.log(self.p[r]) - kappa)) for r in self.order[:t]}

    def compare(self, t: int) -> None:
        weights = self.weights(t)
        for c in self.left:
            self.estimate[c] = sum(w * self.matrix[c][r] for r, w in weights.items()) / sum(weights.values())

    def best_first(self, candidates: list[int]) -> list[int]:
        return sorted(candidates, key=lambda c: (-round(self.estimate[c], 9), c))

    def keep(self, kept: list[int]) -> None:
        self.dropped.append([c for c in self.left if c not in kept])
        self.left = kept

    def ranking(self) -> list[int]:
        return [c for group in [self.left, *reversed(self.dropped)] for c in self.best_first(group)]


def pruned_plainly(case: Case, seed: int, first: int, alpha: float, resamples: int) -> Plain:
    run, t, step = Plain(case, seed), 0, 0
    while t < len(run.order) and (len(run.left) > 1 or t == 0):
        t = min(2 * t or first, len(run.order))
        run.compare(t)
        if t < len(run.order):
            step += 1
            weights, best = run.weights(t), run.best_first(run.left)[0]
            wins = dict.fromkeys(run.left, 0)
            for times in generator(seed, step).multinomial(t, [1 / t] * t, resamples).tolist():
                for c in run.left:
                    above = sum(
                        times[i] * weights[r] * (run.matrix[c][r] - run.matrix[best][r])
                        for i, r in enumerate(run.order[:t])
                    )
                    wins[c] += above >= -1e-12
            run.keep([c for c in run.left if wins[c] / resamples > 1 - alpha + 1e-9])
    return run


def halved_plainly(case: Case, seed: int, budget: int) -> Plain:
    run, t, spent = Plain(case, seed), 0, 0
    m, n = len(run.order), len(case.matrix)
    rounds = 0
    while 2**rounds < n:
        rounds += 1
    while t < m and (len(run.left) > 1 or t == 0):
        more = max(1, math.floor(budget / (len(run.left) * max(1, rounds))))
        if len(run.left) * (m - t) <= budget - spent or more > m - t:
            more = m - t
        t += more
        spent += len(run.left) * more
        run.compare(t)
        if t < m:
            run.keep(sorted(run.best_first(run.left)[: math.ceil(len(run.left) / 2)]))
    return run


CASES = st.builds(
    case,
    st.integers(0, 10**6),
    st.integers(1, 12),
    st.integers(1, 24),
    st.booleans(),
    st.sampled_from([0.0, 0.5]),
)


@settings(max_examples=150)
@given(CASES, st.integers(0, 99), st.integers(1, 8), st.sampled_from([0.3, 0.7, 0.95, 1.0]), st.integers(1, 20))
def test_pruning_is_a_plain_loop(case: Case, seed: int, first: int, alpha: float, resamples: int) -> None:
    found, _ = estimates(case, seed)
    prune(found, first, alpha, resamples, lambda step: generator(seed, step))
    expected = pruned_plainly(case, seed, first, alpha, resamples)
    same(found, expected)


@settings(max_examples=150)
@given(CASES, st.integers(0, 99), st.integers(1, 400))
def test_halving_is_a_plain_loop(case: Case, seed: int, budget: int) -> None:
    found, _ = estimates(case, seed)
    halve(found, budget)
    same(found, halved_plainly(case, seed, budget))


def same(found: Estimates, expected: Plain) -> None:
    """Equal estimates, and an equal order where no rounding decides about it."""
    assert found.left.tolist() == expected.left
    assert found.expected.tolist() == pytest.approx([expected.estimate[c] for c in range(len(expected.matrix))])
    ours, theirs = found.ranking().tolist(), expected.ranking()
    ties = len(set(np.round(found.expected, 7))) < len(found.expected)
    assert ours == theirs or (ties and sorted(ours) == sorted(theirs))


ALGORITHMS: dict[str, Callable[[Estimates, int], None]] = {
    "pruned": lambda found, first: prune(found, first, 0.9, 50, lambda step: generator(1, step)),
    "halving": halve,
}


@given(CASES, st.sampled_from(sorted(ALGORITHMS)), st.integers(0, 3))
def test_with_all_references_at_once_the_choice_is_exact(case: Case, algorithm: str, above: int) -> None:
    found, asked = estimates(case)
    there = np.count_nonzero(case.weights)
    ALGORITHMS[algorithm](found, above + there * (len(case.matrix) if algorithm == "halving" else 1))
    assert found.expected.tolist() == pytest.approx(case.expected)
    best = max(case.expected)
    assert case.expected[found.ranking()[0]] == pytest.approx(best)
    assert (asked.times == (case.weights > 0)).all()  # those without weight are not asked for


@given(CASES, st.integers(1, 400))
def test_halving_computes_no_more_than_its_budget_and_no_pair_twice(case: Case, budget: int) -> None:
    found, asked = estimates(case)
    halve(found, budget)
    rounds = [len(case.matrix)]  # the candidates of each, of which one reference is the least
    while rounds[-1] > 2:
        rounds.append((rounds[-1] + 1) // 2)
    above = 0 if budget >= rounds[0] * len(rounds) else sum(rounds)
    assert asked.times.max() == 1 and asked.times.sum() <= budget + above


@given(CASES, st.integers(1, 8))
def test_pruning_computes_no_pair_twice(case: Case, first: int) -> None:
    found, asked = estimates(case)
    ALGORITHMS["pruned"](found, first)
    assert asked.times.max() == 1
    assert (asked.times[:, case.weights == 0] == 0).all()


def test_halving_leaves_half_and_then_uses_what_its_budget_still_allows() -> None:
    found, asked = estimates(case(3, 16, 100, weighted=False))
    halve(found, 400)
    # 4 rounds of 100 utilities: 6 references for 16, 12 for 8, 25 for 4, 50 for 2; 57 would cost more than the rest
    assert sorted(asked.times.sum(axis=1).tolist()) == [6] * 8 + [18] * 4 + [43] * 2 + [93] * 2
    assert asked.times.sum() == 392
    found, asked = estimates(case(3, 16, 100, weighted=False))
    halve(found, 500)
    # 7, 15 and 31; the rest of 144 pays for 47 more of 2: all references
    assert sorted(asked.times.sum(axis=1).tolist()) == [7] * 8 + [22] * 4 + [53] * 2 + [100] * 2
    assert found.expected[found.left].tolist() == pytest.approx(np.mean(found.matrix, axis=1))


def test_pruning_takes_twice_as_many_references_in_each_step() -> None:
    found, asked = estimates(Case(np.zeros((3, 40)), np.full(40, 1 / 40)))
    sizes = []
    compare = found.compare

    def counted(more: int) -> None:
        compare(more)
        sizes.append(found.used)

    found.compare = counted  # type: ignore[method-assign]
    ALGORITHMS["pruned"](found, 3)
    assert sizes == [3, 6, 12, 24, 40] and asked.times.sum() == 120  # equal candidates are never pruned
    assert found.ranking().tolist() == [0, 1, 2]


def test_a_confidence_of_1_prunes_those_that_never_win_and_no_others() -> None:
    matrix = np.zeros((3, 64))
    matrix[1, :] = -1.0  # never wins
    matrix[2, ::2] = -1.0
    matrix[2, 1::2] = 0.9  # wins in many resamples
    for alpha, left in ((1.0, [0, 2]), (0.1, [0])):
        found, asked = estimates(Case(matrix, np.full(64, 1 / 64)), 1)
        prune(found, 32, alpha, 500, lambda step: generator(5, step))
        assert asked.times.sum(axis=1).tolist() == [64 if c in left and len(left) > 1 else 32 for c in range(3)]
        assert found.ranking().tolist() == [0, 2, 1]


def test_ties_in_a_resample_are_wins_and_no_rounding_decides_them() -> None:
    rng = np.random.default_rng(2)
    matrix = rng.integers(0, 3, size=(40, 30)).astype(float)
    found, _ = estimates(Case(matrix, np.full(30, 1 / 30)))
    found.compare(23)
    times = generator(4, 1).multinomial(23, np.full(23, 1 / 23), 200)
    sums = found.matrix.astype(int) @ times.T
    expected = (sums < sums[np.argmax(found.matrix.sum(axis=1))]).mean(axis=1)
    assert losses(found, 200, generator(4, 1)).tolist() == expected.tolist()


def test_references_come_in_the_order_of_draws_without_replacement() -> None:
    weights = np.array([0.5, 0.3, 0.15, 0.05])
    counts: Counter[tuple[int, int]] = Counter()
    for seed in range(4000):
        found, asked = estimates(Case(np.zeros((1, 4)), weights), seed)
        found.compare(2)
        first, second = found._references[:2]
        assert asked.times[0, [first, second]].tolist() == [1, 1]
        counts[int(first), int(second)] += 1
    shares = {(a, b): weights[a] * weights[b] / (1 - weights[a]) for a, b in permutations(range(4), 2)}
    found_statistic, freedom = statistic(counts, shares)
    assert found_statistic < critical(freedom)


@pytest.mark.parametrize("t", [2, 5, 8])
def test_estimates_from_a_part_of_unequal_references_have_little_bias(t: int) -> None:
    """They are off by 0.014 at most; plain means by 0.05, 0.22 and 0.35, and means with p by 0.15, 0.13 and 0.034."""
    weights = np.array([0.4, 0.2, 0.1, 0.1, 0.05, 0.05, 0.04, 0.03, 0.02, 0.01])
    utilities = np.array([[1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]])
    found = []
    for seed in range(3000):
        part, _ = estimates(Case(utilities, weights), seed)
        part.compare(t)
        found.append(part.expected[0])
    assert np.mean(found) == pytest.approx(0.6, abs=0.025)


def test_equal_weights_give_plain_means() -> None:
    case_of = case(5, 3, 20, weighted=False)
    found, asked = estimates(case_of)
    found.compare(7)
    rows = [case_of.matrix[c][asked.times[c] > 0] for c in range(3)]
    assert {len(row) for row in rows} == {7}
    assert found.expected.tolist() == pytest.approx([row.mean() for row in rows])


def test_tiny_weights_do_not_overflow() -> None:
    logs = -np.array([0.0, 300.0, 600.0, 700.0])
    found, _ = estimates(Case(np.array([[1.0, 2.0, 3.0, 4.0]] * 2), np.exp(logs)))
    halve(found, 2)
    assert found.expected.tolist() == pytest.approx([1.0, 1.0])
