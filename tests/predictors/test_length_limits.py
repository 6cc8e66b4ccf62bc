"""`minlength` and `maxlength` restrict a space to the sequences of allowed lengths, and score none of them.

Oracle: enumeration of all sequences.
"""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sgdec_decoders.astar import AStarDecoder
from sgdec_predictors.maxlength import MaxLength
from sgdec_predictors.minlength import MinLength

from sgdec import Source, UsageError
from sgdec.plugins.options import configure
from sgdec.protocol import BatchPredictor
from sgdec.search.constellation import Constellation
from sgdec.search.space import SearchSpace
from sgdec.testing import BatchTable, enumerate_space
from tests.helpers.contracts import PluginContract, SearchContract

KINDS: dict[str, type[MinLength] | type[MaxLength]] = {"minlength": MinLength, "maxlength": MaxLength}


@pytest.mark.parametrize("limit", [0, 2, 4])
@pytest.mark.parametrize("tokens", [0, 1, 3, 4, 5])
@pytest.mark.parametrize("name", KINDS)
def test_the_space_is_all_sequences_of_allowed_lengths(name: str, tokens: int, limit: int) -> None:
    constellation = Constellation.of({name: KINDS[name](tokens=tokens)}, vocab_size=4)
    paths = enumerate_space(constellation, Source(1, (), max_length=limit))
    lengths = [n for n in range(limit + 1) if (n >= tokens if name == "minlength" else n <= tokens)]
    assert {path.tokens for path in paths} == {
        each for n in lengths for each in itertools.product((0, 1, 3), repeat=n)
    }
    assert all(path.total == 0.0 for path in paths)


def test_both_together_fix_the_length_without_a_limit_of_the_run() -> None:
    table = np.random.default_rng(1).normal(-2.0, 1.0, (5, 5))
    predictors = {"table": BatchTable(table), "minlength": MinLength(3), "maxlength": MaxLength(3)}
    constellation = Constellation.of(predictors, vocab_size=5)
    possible = enumerate_space(constellation, Source(1, (), max_length=3))
    space = SearchSpace(constellation, constellation.roots([Source(1, ())])[0])
    (best, *_) = AStarDecoder().decode(space).hypotheses
    assert len(best.tokens) == 3
    assert best.score == pytest.approx(max(path.total for path in possible))


def test_a_minimum_above_the_length_limit_ends_a_search_at_once() -> None:
    constellation = Constellation.of({"minlength": MinLength(7)}, vocab_size=1000)
    space = SearchSpace(constellation, constellation.roots([Source(1, (), max_length=6)])[0])
    result = AStarDecoder(max_expansions=100).decode(space)
    assert result.hypotheses == [] and result.proven and space.expansions <= 1


@pytest.mark.parametrize("value", ["-1", "x", "1.5", str(1 << 40)])
@pytest.mark.parametrize("name", KINDS)
def test_a_number_that_is_no_length_is_one_line(name: str, value: str) -> None:
    with pytest.raises(UsageError, match=rf"^--{name}\.tokens: .*{value}") as error:
        configure(KINDS[name], {"tokens": value}, name=name)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", KINDS)
def test_the_number_must_be_given(name: str) -> None:
    with pytest.raises(UsageError, match=rf"--{name}\.tokens"):
        configure(KINDS[name], {}, name=name)


def test_limits_are_known_for_a_whole_sentence() -> None:
    """The bounds of a sentence that has no hypothesis, and of one that has."""
    predictor = MinLength(3)
    hopeless, open_ended = predictor.initialize_batch([Source(1, (), max_length=2), Source(2, ())])
    (after,) = predictor.consume_batch([hopeless], [3])
    assert predictor.best_remaining([hopeless, after, open_ended]) == [-math.inf, -math.inf, 0.0]
    assert predictor.worst_remaining([hopeless, after, open_ended]) == [math.inf, math.inf, 0.0]


class TestMinLength(PluginContract):
    plugin = "minlength"
    sources = (Source(1, (3, 4), max_length=2), Source(2, (4,), max_length=1), Source(3, (5,)))

    def prepare(self, folder: Path) -> dict[str, Any]:
        return {"tokens": 2}


class TestMaxLength(PluginContract):
    plugin = "maxlength"

    def prepare(self, folder: Path) -> dict[str, Any]:
        return {"tokens": 2}


class LimitInSearch(SearchContract):
    vocab_size = 4
    limits = (4, 3, 1, 0)
    kind: type[MinLength] | type[MaxLength]

    def draw(self, rng: np.random.Generator) -> BatchPredictor:
        return self.kind(tokens=int(rng.integers(5)))


@pytest.mark.slow
class TestMinLengthInSearch(LimitInSearch):
    kind = MinLength


class TestMaxLengthInSearch(LimitInSearch):
    kind = MaxLength
