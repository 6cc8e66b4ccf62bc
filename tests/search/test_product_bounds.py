"""The promise: no completion beats a product bound, and none is above the plain sum."""

from __future__ import annotations

import gc
import math
import os
import re
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sgdec_decoders.astar import AStarDecoder
from sgdec_decoders.bucket import BucketDecoder
from sgdec_decoders.dfs import DfsDecoder
from sgdec_predictors.nfst import NfstPredictor
from sgdec_predictors.rtn import RtnPredictor

from sgdec.arcs import Automaton
from sgdec.errors import SgdecError
from sgdec.protocol import BatchPredictor, Source
from sgdec.ranking import Ranking
from sgdec.relaxations import Constant
from sgdec.search.bounds.folding import MOST_ARCS, WEIGHTINGS
from sgdec.search.constellation import Constellation
from sgdec.search.node import Node
from sgdec.search.space import SearchSpace
from sgdec.settings import BoundsKind
from sgdec.testing import enumerate_space
from tests.helpers.lattice_files import write_automaton, write_paths
from tests.helpers.relaxing import Counter, Trigrams, WholeLattice, random_automaton

V = 7
WEIGHTS = (1.0, 0.5, 0.0, -1.0, -0.3)
INF = math.inf


def made(
    rng: np.random.Generator, weights: Sequence[float | None], cyclic: bool, bounds: BoundsKind = "auto"
) -> Constellation:
    """A lattice, a trigram model that forbids some tokens, and, with a third weight, one that counts tokens."""
    table = np.where(rng.random((V, V, V)) < 0.1, -INF, rng.normal(size=(V, V, V)))
    table[:, :, 2] = rng.normal(size=(V, V))
    predictors: dict[str, BatchPredictor] = {
        "a": WholeLattice([random_automaton(rng, 5, V, cyclic)]),
        "lm": Trigrams(table),
    }
    if len(weights) > 2:  # not an automaton: then nodes are expanded in batches
        predictors["count"] = Counter(rng.normal(size=4).tolist())
    return Constellation.of(predictors, weights=weights, vocab_size=V, bounds=bounds)


def open_nodes(space: SearchSpace) -> Iterator[Node]:
    waiting = [space.root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += [child for child in space.expand([node], bounded=True)[0] if not child.finished]


@given(
    st.integers(0, 2**32),
    st.lists(st.sampled_from(WEIGHTS), min_size=2, max_size=3),
    st.booleans(),
    st.sampled_from((4, 6)),
)
def test_no_completion_beats_a_product_bound(seed: int, weights: list[float], cyclic: bool, longest: int) -> None:
    assume(any(weights[1:]))  # otherwise there is nothing to fold
    source = Source(1, (), max_length=longest)
    by_sum, by_product = (
        made(np.random.default_rng(seed), weights, cyclic, kind) for kind in ("sum", "product")
    )
    space = SearchSpace(by_product, by_product.roots([source])[0])
    plain = SearchSpace(by_sum, by_sum.roots([source])[0])
    paths = enumerate_space(by_sum, source)
    for node, same in zip(open_nodes(space), open_nodes(plain), strict=True):
        (bound,) = space.bound([node])
        assert cyclic or (node.bound is not None) == (node.length > 0 and len(weights) == 2)
        reached = max((path.total for path in paths if path.tokens[: node.length] == node.tokens), default=-INF)
        assert node.total + bound >= reached
        assert by_product.folding_under(by_product.weights).helps
        assert bound <= 1e5
        if by_sum.bounds_under(by_sum.weights).declared:
            assert bound <= plain.bound([same])[0]


@given(st.integers(0, 2**32), st.lists(st.sampled_from(WEIGHTS), min_size=3, max_size=3))
def test_the_bound_is_exact_if_nothing_is_relaxed(seed: int, weights: list[float]) -> None:
    assume(any(weights[::2]))
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(1, V, V)).repeat(V, axis=0)
    predictors: dict[str, BatchPredictor] = {
        "lm": Trigrams(table),
        "a": WholeLattice([random_automaton(rng, 6, V, cyclic=False)]),
        "count": Counter([2.0, -1.0, 0.5]),
    }
    constellation = Constellation.of(predictors, weights=weights, vocab_size=V)
    source = Source(1, ())
    space = SearchSpace(constellation, constellation.roots([source])[0])
    paths = enumerate_space(constellation, source)
    for node in open_nodes(space):
        reached = max((path.total for path in paths if path.tokens[: node.length] == node.tokens), default=-INF)
        assert node.total + space.bound([node])[0] == pytest.approx(reached)


def write_random_lattice(path: str, rng: np.random.Generator, cyclic: bool) -> None:
    """Some labels repeat at a state, and some arcs are epsilons (forward alone, so that they never diverge)."""
    arcs, final = [], {5: 0.25, 4: float(rng.normal())}
    for state in range(5):
        for _ in range(int(rng.integers(1, 4))):
            label = int(rng.choice([0, 2, 3, 3, 4, 5]))
            later = range(state + 1, 5)
            targets = [5] if label == 2 else list(later if label == 0 or not cyclic else range(5))
            if targets:
                arcs.append((state, label, float(rng.normal()) + 1.0, int(rng.choice(targets))))
    write_automaton(path, [*arcs, (0, 3, 0.5, 4)], final)


@given(
    st.integers(0, 2**32),
    st.lists(st.sampled_from((2.0, 1.0, 0.5, 0.0, -1.0)), min_size=2, max_size=3),
    st.booleans(),
    st.sampled_from(("tropical", "log")),
)
def test_no_completion_beats_the_bound_of_a_lattice_with_several_paths(
    seed: int, weights: list[float], cyclic: bool, semiring: Literal["tropical", "log"]
) -> None:
    rng = np.random.default_rng(seed)
    source = Source(1, (), max_length=4)
    with tempfile.TemporaryDirectory() as folder:
        write_random_lattice(f"{folder}/1.fst", rng, cyclic)
        counts = rng.normal(size=4).tolist()
        table = rng.normal(size=(1, V, V)).repeat(V, axis=0)  # its relaxation is exact
        predictors: dict[str, BatchPredictor] = {
            "a": NfstPredictor(f"{folder}/1.fst", semiring=semiring),
            "lm": Trigrams(table),
        }
        if len(weights) > 2:
            predictors["count"] = Counter(counts)
        constellation = Constellation.of(predictors, weights=weights, vocab_size=V, bounds="product")
        space = SearchSpace(constellation, constellation.roots([source])[0])
    paths = enumerate_space(constellation, source)
    helps = constellation.folding_under(constellation.weights).helps
    assert helps == (weights[0] >= 0 and any(weights[1:]))
    if not helps:
        return
    for node in open_nodes(space):
        (bound,) = space.bound([node])
        reached = max((path.total for path in paths if path.tokens[: node.length] == node.tokens), default=-INF)
        assert node.total + bound >= reached - 1e-12 * (1.0 + abs(reached))
        if not cyclic and (semiring == "tropical" or not weights[0]):
            assert node.total + bound == pytest.approx(reached)


@given(
    st.integers(0, 2**32),
    st.lists(st.sampled_from((*WEIGHTS, None)), min_size=2, max_size=3),
    st.booleans(),
    st.sampled_from((Ranking(), Ranking(alpha=0.7), Ranking(alpha=1.0, normalize="length"))),
    st.sampled_from((1, 3)),
)
def test_exact_searches_find_and_prove_the_same_with_product_bounds(
    seed: int, weights: list[float | None], cyclic: bool, ranking: Ranking, nbest: int
) -> None:
    assume(weights[0] is not None)  # otherwise nothing restricts, and the space is larger than a test can enumerate
    source = Source(1, (), max_length=5)
    oracle = made(np.random.default_rng(seed), weights, cyclic, "sum")
    ranked = [path.rank_score(ranking) for path in enumerate_space(oracle, source, ranking=ranking)]
    options: dict[str, Any] = {"alpha": ranking.alpha, "normalize": ranking.normalize}
    for decoder in (AStarDecoder(**options), DfsDecoder(**options), BucketDecoder(**options)):
        constellation = made(np.random.default_rng(seed), weights, cyclic, "product")
        space = SearchSpace(constellation, constellation.roots([source])[0], ranking=ranking, nbest=nbest)
        if not constellation.folding_under(constellation.weights).helps:
            return
        result = decoder.decode(space)
        assert result.proven
        assert [found.rank_score for found in result.hypotheses] == pytest.approx(ranked[:nbest])
        limited = SearchSpace(constellation, constellation.roots([source])[0], ranking=ranking)
        cut = type(decoder)(**options, max_expansions=2).decode(limited)
        if cut.hypotheses and cut.gap is not None:
            assert cut.hypotheses[0].rank_score + cut.gap >= ranked[0] - 1e-9


def test_a_product_that_is_too_large_takes_coarser_relaxations_and_then_none(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(8)
    automaton, table = random_automaton(rng, 12, V, cyclic=False), rng.normal(size=(V, V, V))
    bounds, lines = [], []
    for most in (1 << 20, len(automaton.tokens), 3):
        monkeypatch.setitem(MOST_ARCS, "product", most)
        predictors: dict[str, BatchPredictor] = {"a": WholeLattice([automaton]), "lm": Trigrams(table)}
        constellation = Constellation.of(predictors, vocab_size=V, bounds="product")
        space = SearchSpace(constellation, constellation.roots([Source(1, ())])[0])
        bounds += space.bound([space.root])
        assert space.bounds_used == ("product" if most > 3 else "sum")
        lines.append(constellation.summary())
    said = (
        r"(\d \w+) too large \(more than (\d+) arcs, or too many sweeps; the largest: 12 states and (\d+) arcs of "
        r"'a', 7 relaxed states of 'lm'\), so coarser relaxations were tried, and (\d \w+) plain sums were left"
    )
    found = [re.search(said, line or "") for line in lines]
    arcs = str(len(automaton.tokens))
    assert [match and match.groups() for match in found] == [
        None,
        ("1 was", arcs, arcs, "0 times"),
        ("2 were", "3", arcs, "1 time"),
    ]
    assert lines[0] is not None and re.match(r"bounds: 1 product with \d{2,} arcs, ", lines[0])
    assert bounds[0] < bounds[1] < 1e5 < bounds[2]


def test_a_relaxation_that_is_not_a_number_is_no_proof() -> None:
    """Without the error, the token would count as forbidden, and the best hypothesis could be cut."""
    rng = np.random.default_rng(5)
    wrong = Constant(0.0, math.nan)
    predictors: dict[str, BatchPredictor] = {
        "a": WholeLattice([random_automaton(rng, 5, V, cyclic=False)]),
        "lm": Trigrams(rng.normal(size=(V, V, V)), [wrong]),
    }
    constellation = Constellation.of(predictors, vocab_size=V)
    with pytest.raises(SgdecError, match=r"'lm': its relaxation has NaN for token \d.*--bounds sum"):
        constellation.bounds(constellation.roots([Source(1, ())]))


def test_an_unlimited_relaxation_on_the_way_to_a_dead_end_is_silent() -> None:
    """The sum of its gain, +inf, and of the distance from the dead end, -inf, is no warning."""
    arrays = np.array([0, 2, 2, 3]), np.array([3, 4, 2]), np.array([0.0, -1.0, -2.0]), np.array([1, 2, -1])
    predictors: dict[str, BatchPredictor] = {
        "a": WholeLattice([Automaton(*arrays)]),
        "lm": Trigrams(np.zeros((V, V, V)), [Constant(-INF, INF)]),
    }
    constellation = Constellation.of(predictors, vocab_size=V)
    space = SearchSpace(constellation, constellation.roots([Source(1, ())])[0])
    (dead,) = (child for child in space.expand([space.root])[0] if child.last == 3)
    assert space.bound([dead]) == [-INF]
    assert space.bound([space.root])[0] > 1e5


def test_one_automaton_keeps_distances_for_a_few_vectors_of_weights() -> None:
    constellation = made(np.random.default_rng(5), [1.0, 1.0], False, "product")
    (root,) = constellation.roots([Source(1, ())])
    many = [root.with_weights([1.0, 1.0 + i / 8]) for i in range(2 * WEIGHTINGS)]
    bounds = constellation.bounds(many)
    assert all(bound < 1e5 for bound in bounds[:WEIGHTINGS]) and all(bound > 1e5 for bound in bounds[WEIGHTINGS:])
    assert constellation.bounds(many) == bounds


def test_a_network_bounds_like_its_lattice() -> None:
    table = np.random.default_rng(3).normal(size=(1, V, V)).repeat(V, axis=0)
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(f"{folder}/1")
        write_paths(f"{folder}/1/1003001002.fst", [((4,), 0.5), ((5, 6), 0.25), ((), 0.0)])
        write_paths(f"{folder}/1.fst", [((3, 1003001002, 4), 0.0)])
        predictors: dict[str, BatchPredictor] = {"rtn": RtnPredictor(folder), "lm": Trigrams(table)}
        constellation = Constellation.of(predictors, vocab_size=V)
        space = SearchSpace(constellation, constellation.roots([Source(1, ())])[0])
        paths = enumerate_space(constellation, Source(1, ()))
    for node in open_nodes(space):
        reached = max(path.total for path in paths if path.tokens[: node.length] == node.tokens)
        assert node.total + space.bound([node])[0] == pytest.approx(reached)
    assert space.bounds_used == "product"


def test_normalised_scores_are_no_sums_over_paths() -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_paths(f"{folder}/1.fst", [((3, 4), 0.0)])
        predictor = NfstPredictor(f"{folder}/1.fst", normalize=True)
    assert predictor.subset(predictor.initialize_batch([Source(1, ())])[0]) is None


def test_the_distances_of_a_sentence_are_freed_with_its_automaton() -> None:
    """At once, without the garbage collector, which is called rarely."""
    rng = np.random.default_rng(8)
    automaton = random_automaton(rng, 12, V, cyclic=False)
    predictors: dict[str, BatchPredictor] = {
        "a": WholeLattice([automaton]), "lm": Trigrams(rng.normal(size=(V, V, V)))
    }  # fmt: skip
    constellation = Constellation.of(predictors, vocab_size=V)
    (root,) = constellation.roots([Source(1, ())])
    constellation.bounds([root])
    kept = weakref.ref(automaton)
    predictors["a"].__dict__["_given"] = []
    constellation.release([root])
    gc.disable()
    try:
        del automaton
        assert kept() is None
    finally:
        gc.enable()
