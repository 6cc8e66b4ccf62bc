"""`bucket` is exact whatever its strategies, never worse for a larger budget, and takes its buckets in turn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.bucket import BucketDecoder, _threshold
from sgdec_decoders.greedy import GreedyDecoder

from sgdec import EOS, Node, SearchSpace, Source, UsageError
from sgdec.plugins.options import configure
from sgdec.search.constellation import Constellation
from sgdec.testing import Lattice, Table, TinySpace, enumerate_space
from tests.helpers.contracts import require_exact
from tests.helpers.oracles import tiny
from tests.helpers.random_spaces import random_spaces, search

SELECTORS = ["iter", "maxscore", "score", "score-end"]
STRATEGIES = ["difference", "heap", "absolute", "constant"]


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("selector", SELECTORS)
def test_every_strategy_is_exact(selector: str, strategy: str, size: int) -> None:
    require_exact(lambda: BucketDecoder(size=size, selector=selector, score_strategy=strategy))  # type: ignore[arg-type]


@pytest.mark.parametrize("selector", SELECTORS)
@settings(max_examples=10)
@given(space=random_spaces(), size=st.integers(1, 3))
def test_the_best_score_never_falls_as_the_budget_grows(selector: str, space: TinySpace, size: int) -> None:
    best = -float("inf")
    for budget in range(1, 20):
        result, here = search(BucketDecoder(size=size, selector=selector, max_expansions=budget), space)
        if result.hypotheses:
            assert result.hypotheses[0].score >= best
            best = result.hypotheses[0].score
        else:
            assert best == -float("inf")
        if result.proven:
            break
        assert here.expansions == budget


class Loose(Lattice):
    """Scores never rise, and that is all it knows."""

    def best_remaining(self, states: Sequence[int]) -> list[float]:
        return [0.0] * len(states)


END = {EOS: (-9.0, 99)}
TREE = Loose(
    {
        0: {3: (-1.0, 1), 4: (-1.5, 2), 5: (-1.7, 3)},
        1: {3: (-0.1, 10), 4: (-1.2, 11), 5: (-1.4, 12)},
        2: {3: (-0.2, 13), 4: (-0.3, 14)},
        3: {3: (-0.4, 15)},
        **dict.fromkeys(range(10, 16), END),
    }
)
"""All ends cost the same, so nothing is cut before the list is full."""


def order_of(decoder: BucketDecoder, monkeypatch: pytest.MonkeyPatch, nbest: int = 6) -> list[list[str]]:
    """What is expanded, step by step."""
    steps: list[list[str]] = []
    expand = SearchSpace.expand

    def noted(self: SearchSpace, nodes: Sequence[Node], bounded: bool) -> object:
        steps.append(["".join(map(str, node.tokens)) for node in nodes])
        return expand(self, nodes, bounded=bounded)

    with monkeypatch.context() as patch:
        patch.setattr(SearchSpace, "expand", noted)
        search(decoder, tiny(a=TREE), nbest)
    return steps


def test_iter_makes_passes_of_beam_search(monkeypatch: pytest.MonkeyPatch) -> None:
    assert order_of(BucketDecoder(size=2, selector="iter"), monkeypatch) == [
        [""], ["3", "4"], ["33", "43"],  # what a beam of two does
        ["5"], ["44", "53"], ["34", "35"],
    ]  # fmt: skip


def test_iter_with_a_number_ends_after_so_many_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert order_of(BucketDecoder(size=2, selector="iter-1"), monkeypatch) == [[""], ["3", "4"], ["33", "43"]]
    result, _ = search(BucketDecoder(size=2, selector="iter-1"), tiny(a=TREE))
    beam, _ = search(BeamDecoder(size=2, stop="full"), tiny(a=TREE))
    assert result.hypotheses == beam.hypotheses and result.proven is False
    assert search(BucketDecoder(size=2, selector="iter-9"), tiny(a=TREE))[0].proven


def test_score_takes_the_bucket_that_fell_least_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind "33" (-1, -1.1): first "4" by 0.5; then "5" by 0.7 and "43" by 0.6; then "44" and "5" by 0.7."""
    assert order_of(BucketDecoder(size=1, selector="score"), monkeypatch) == [
        [""], ["3"], ["33"], ["4"], ["43"], ["44"], ["5"], ["53"], ["34"], ["35"],
    ]  # fmt: skip


def test_score_end_goes_on_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    assert order_of(BucketDecoder(size=1, selector="score-end", score_strategy="constant"), monkeypatch) == [
        [""], ["3"], ["33"], ["34"], ["35"], ["4"], ["43"], ["44"], ["5"], ["53"],
    ]  # fmt: skip


def test_maxscore_passes_over_buckets_below_its_threshold(monkeypatch: pytest.MonkeyPatch) -> None:
    """After "33" both buckets are less than 5 behind, so they take turns."""
    assert order_of(BucketDecoder(size=1, selector="maxscore"), monkeypatch) == [
        [""], ["3"], ["33"], ["4"], ["43"], ["5"], ["44"], ["53"], ["34"], ["35"],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("best", "threshold"), [(float("inf"), 0.0), (0.1, 0.0), (0.0, -5.0), (-4.9, -5.0), (-5.0, -10.0), (-12.0, -15.0)]
)
def test_the_threshold_is_the_first_that_lets_a_bucket_in(best: float, threshold: float) -> None:
    assert _threshold(best) == threshold


def test_the_first_pass_of_size_one_is_greedy_search() -> None:
    greedy, there = search(GreedyDecoder(), tiny(a=TREE))
    first, _ = search(BucketDecoder(size=1, max_expansions=there.expansions), tiny(a=TREE))
    assert first.hypotheses == greedy.hypotheses


@pytest.mark.parametrize("selector", ["iter-0", "iter-", "best", "iter-x", "score-"])
def test_a_selector_that_does_not_exist_is_refused(selector: str) -> None:
    with pytest.raises(UsageError, match=r"--bucket\.selector"):
        configure(BucketDecoder, {"selector": selector}, name="bucket")


@pytest.mark.slow
@pytest.mark.parametrize("weight", [1.0, 2.0**63, 2.0**900])
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("selector", SELECTORS)
def test_totals_of_any_size_are_searched(selector: str, strategy: str, weight: float) -> None:
    """Powers of two round nothing, so the best hypotheses are those of weight 1."""
    scores = np.random.default_rng(3).normal(size=(6, 6))
    table = Table(scores - np.log(np.exp(scores).sum(axis=1, keepdims=True)))
    constellation, source = (
        Constellation.of({"table": table}, weights=[weight], vocab_size=6),
        Source(1, (3,), None, 4),
    )
    (root,) = constellation.roots([source])
    decoder = BucketDecoder(size=2, selector=selector, score_strategy=strategy)  # type: ignore[arg-type]
    found = decoder.decode(SearchSpace(constellation, root, nbest=3)).hypotheses
    expected = enumerate_space(Constellation.of({"table": table}, vocab_size=6), source)[:3]
    assert [each.tokens for each in found] == [path.tokens for path in expected]
    assert [each.score for each in found] == pytest.approx([weight * path.total for path in expected])
