"""The promise: tokens are drawn from the combined scores renormalised, and nothing beside a draw changes it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

import numpy as np
import pytest

from sgdec.chain import Chain
from sgdec.context import EOS
from sgdec.protocol import Source
from sgdec.search.constellation import Constellation
from sgdec.search.node import Node
from sgdec.search.sampling import Draw, draw
from sgdec.search.space import SearchSpace
from sgdec.testing import BatchTable, Bonus, Lattice, Table
from tests.helpers.chi_squared import critical

DRAWS = 1500
SCORES = np.array([-1.0, -0.5, -3.0, -math.inf, -2.0, 0.3])


def expected(scores: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    probabilities = np.exp(scores / temperature)
    return np.asarray(probabilities / probabilities.sum())


def draws(scores: np.ndarray, **options: float) -> Counter[int]:
    tokens, chain = np.arange(len(scores)), Chain.of(**options)  # type: ignore[arg-type]
    return Counter(
        draw(tokens, scores, Draw(seed=7, number=n, chain=chain), sentence=3, step=0)[0]
        for n in range(DRAWS)
    )


def assert_distributed(counts: Mapping[int, int], probabilities: np.ndarray) -> None:
    """Pearson's chi-squared test; impossible tokens must not come at all."""
    possible = np.flatnonzero(probabilities > 0)
    assert set(counts) <= set(possible.tolist())
    total = sum(counts.values())
    statistic = sum(
        (counts.get(int(w), 0) - total * probabilities[w]) ** 2 / (total * probabilities[w]) for w in possible
    )
    assert statistic < critical(len(possible) - 1)


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0])
def test_tokens_come_as_often_as_their_scores_say(temperature: float) -> None:
    assert_distributed(draws(SCORES, temperature=temperature), expected(SCORES, temperature))


def test_a_sampler_of_the_wrong_distribution_would_be_caught() -> None:
    with pytest.raises(AssertionError):
        assert_distributed(draws(SCORES, temperature=1.0), expected(SCORES, 1.4))


def test_top_k_keeps_the_k_best() -> None:
    kept = np.where(np.isin(np.arange(6), [5, 1, 0]), SCORES, -math.inf)
    assert_distributed(draws(SCORES, top_k=3), expected(kept))


def test_of_equal_scores_top_k_keeps_the_lowest_tokens() -> None:
    assert set(draws(np.zeros(5), top_k=2)) == {0, 1}


@pytest.mark.slow
def test_top_p_keeps_the_fewest_best_tokens_that_reach_p() -> None:
    probabilities = np.array([0.1, 0.4, 0.2, 0.3])
    for top_p, kept in [(0.3, {1}), (0.69, {1, 3}), (0.71, {1, 3, 2}), (1.0, {0, 1, 2, 3})]:
        scores = np.log(probabilities)
        masked = np.where(np.isin(np.arange(4), list(kept)), scores, -math.inf)
        assert_distributed(draws(scores, top_p=top_p), expected(masked))


def test_a_cold_sampler_is_greedy() -> None:
    assert set(draws(SCORES, temperature=1e-3)) == {5}


def test_scores_far_below_zero_do_not_underflow() -> None:
    assert_distributed(draws(SCORES - 5000.0), expected(SCORES))


# Through a search space.


def space(number: int, constellation: Constellation, seed: int = 1) -> SearchSpace:
    (root,) = constellation.roots([Source(number, (3, 4), max_length=6)])
    return SearchSpace(constellation, root, seed=seed)


def models() -> Constellation:
    rng = np.random.default_rng(4)
    tables = [rng.normal(size=(6, 6)) for _ in range(2)]
    return Constellation.of({"a": Table(tables[0]), "b": BatchTable(tables[1])}, weights=[0.7, 0.5])


def sampled(space: SearchSpace, numbers: list[int]) -> list[tuple[int, ...]]:
    """Whole samples, all drawn side by side."""
    nodes: list[Node] = [space.root] * len(numbers)
    while any(not node.finished for node in nodes):
        places = [i for i, node in enumerate(nodes) if not node.finished]
        for i, child in zip(
            places, space.sample([nodes[i] for i in places], [numbers[i] for i in places]), strict=True
        ):
            assert child is not None
            nodes[i] = child
    return [space.finish(node).tokens for node in nodes]


@pytest.mark.slow
def test_the_first_token_is_drawn_from_the_combined_scores() -> None:
    constellation = models()
    here = space(1, constellation)
    children = here.sample([here.root] * DRAWS, list(range(DRAWS)))
    (continuations,) = here.expand([here.root])
    scores = np.full(6, -math.inf)
    for child in continuations:
        scores[child.last] = child.total
    assert_distributed(Counter(child.last for child in children if child is not None), expected(scores))


def test_restricted_scores_are_renormalised_over_the_candidates() -> None:
    lattice = Lattice({0: {3: (-1.0, 1), 4: (-2.5, 1), 5: (-1.2, 1)}, 1: {EOS: (0.0, 9)}})
    here = space(1, Constellation.of({"a": lattice, "b": Bonus({4: 1.0})}))
    children = here.sample([here.root] * DRAWS, list(range(DRAWS)))
    scores = np.array([-math.inf, -math.inf, -math.inf, -1.0, -1.5, -1.2])
    assert_distributed(Counter(child.last for child in children if child is not None), expected(scores))


def test_a_sample_does_not_depend_on_those_drawn_beside_it() -> None:
    together = sampled(space(1, models()), list(range(12)))
    assert together == [sampled(space(1, models()), [number])[0] for number in range(12)]
    assert together == sampled(space(1, models()), list(range(11, -1, -1)))[::-1]


def test_a_sample_depends_on_seed_sentence_and_number() -> None:
    numbers = list(range(12))
    samples = sampled(space(1, models(), seed=1), numbers)
    assert samples == sampled(space(1, models(), seed=1), numbers)
    assert samples != sampled(space(1, models(), seed=2), numbers)
    assert samples != sampled(space(2, models(), seed=1), numbers)
    assert len(set(samples)) > 1


def test_each_step_of_a_sample_draws_anew() -> None:
    """Twenty times the same distribution; one generator state for all steps would give one token twenty times."""
    constellation = Constellation.of({"a": Table(np.zeros((50, 50)))})
    (root,) = constellation.roots([Source(1, (), max_length=20)])
    here = SearchSpace(constellation, root)
    node = root
    while not node.finished:
        (child,) = here.sample([node], [0])
        assert child is not None
        node = child
    assert len(set(node.tokens)) > 5


def test_a_sampled_child_has_the_total_and_ledger_of_an_expanded_one() -> None:
    here = space(1, models())
    (continuations,) = here.expand([here.root])
    by_token = {child.last: child for child in continuations}
    for child in here.sample([here.root] * 10, list(range(10))):
        assert child is not None and child.step is not None
        same = by_token[child.last]
        assert child.total == same.total and same.step is not None and child.step.scores == same.step.scores


def test_a_dead_end_has_no_sample() -> None:
    here = space(1, Constellation.of({"a": Lattice({0: {}}), "b": Bonus({})}))
    assert here.sample([here.root], [0]) == [None]
    forbidden = space(1, Constellation.of({"a": Table(np.full((5, 5), -math.inf))}))
    assert forbidden.sample([forbidden.root], [0]) == [None]


@pytest.mark.parametrize("chain", ["", "top_k=3+temperature=2"])
def test_a_distribution_is_that_of_single_draws_and_its_children_are_those_of_expand(chain: str) -> None:
    here = space(1, models())
    (found,) = here.distributions([here.root], Chain.parse(chain))
    (children,) = here.expand([here.root])
    expected_nodes = {child.last: child for child in children}
    scores = np.array([expected_nodes[token].total for token in found.tokens.tolist()])
    assert scores.tolist() == found.scores.tolist() == sorted(scores, reverse=True)
    assert np.exp(found.log_probs) == pytest.approx(expected(scores, 2.0 if chain else 1.0))
    assert len(scores) == (3 if chain else 6)
    made = found.children([2, 0])
    assert [(n.tokens, n.total, n.scores) for n in made] == [
        (n.tokens, n.total, n.scores) for n in (expected_nodes[int(found.tokens[place])] for place in (2, 0))
    ]
    assert found.children([]) == []
    for drawn in here.draw([here.root] * 20, list(range(20)), Chain.parse(chain)):
        assert drawn is not None
        (place,) = np.flatnonzero(found.tokens == drawn.node.last)
        assert drawn.log_prob == found.log_probs[place]


def test_children_of_a_distribution_survive_the_next_question() -> None:
    here = space(1, models())
    first, second = here.distributions(here.distributions([here.root])[0].children([0, 1]))
    here.expand(first.children([0]), limit=1)
    (late,) = second.children([1])
    assert late.last == second.tokens[1]
    assert late.total == second.scores[1] + here.distributions([here.root])[0].scores[1]


def test_a_dead_end_has_an_empty_distribution() -> None:
    here = space(1, Constellation.of({"a": Lattice({0: {3: (0.0, 1)}, 1: {}})}))
    (found,) = here.distributions([here.root])
    (empty,) = here.distributions(found.children([0]), Chain.parse("top_k=3"))
    assert found.log_probs.tolist() == [0.0] and len(empty.tokens) == len(empty.log_probs) == 0
    assert empty.children([]) == []


def test_mirostat_keeps_a_number_from_token_to_token_of_one_draw() -> None:
    here, chain = space(1, models()), Chain.parse("mirostat=1:0.5")
    (first,) = here.draw([here.root], [0], chain)
    assert first is not None and first.state is not None and first.state != chain.start
    (found,) = here.distributions([first.node], chain, [first.state])
    (second,) = here.draw([first.node], [0], chain, [first.state])
    assert second is not None
    (place,) = np.flatnonzero(found.tokens == second.node.last)
    assert found.states is not None and second.state == found.states[place]
    surprise = -second.log_prob / math.log(2)  # nothing was cut, or it would be that before the cut
    if len(found.tokens) == 6:
        assert second.state == pytest.approx(first.state - 0.5 * (surprise - 1))


class Highest:
    """Draws the highest number below 1."""

    def random(self) -> float:
        return 1.0 - 2.0**-53


def test_the_highest_random_number_draws_the_last_token_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sgdec.search.sampling.generator", lambda *_: Highest())
    for chain, expected in (("", 2), ("min_p=0.5", 1)):
        for scores in (np.log([0.3, 0.25, 0.1]), np.array([0.1, 0.0, -3.0])):
            assert draw(np.arange(3), scores, Draw(1, 0, Chain.parse(chain)), sentence=1, step=0)[0] == expected
