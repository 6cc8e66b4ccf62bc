"""The exact search beside a decoder: its bounds, its budget, and when there is none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import sgdec
from sgdec import BatchPredictor, Decoder, Result, Scores, SearchSpace
from sgdec.protocol import Candidates, Source
from sgdec.ranking import Ranking
from sgdec.tasks.diagnosis import run as running
from sgdec.tasks.diagnosis.cases import Case
from sgdec.tasks.diagnosis.proving import ProofBudget, bound_at_the_root
from sgdec.tasks.diagnosis.run import diagnose
from sgdec.tasks.diagnosis.summary import summarise
from sgdec.tasks.diagnosis.tables import tables
from sgdec.testing import tiny_spaces

LATTICE = next(space for space in tiny_spaces() if space.name == "lattice alone")


def load(decoder: str, **options: Any) -> Any:
    return sgdec.load(
        {"a": LATTICE.constellation().predictors[0]}, decoder, vocab_size=5, max_length=0, **{decoder: options}
    )


class Last(Decoder):
    """Chooses the worst first token."""

    ranking = Ranking()

    def decode(self, space: SearchSpace) -> Result:
        (children,) = space.expand([space.root])
        node = next(child for child in children if child.last == 4)
        while not node.finished:
            (node,) = space.best_children([node], 1)
        return Result([space.finish(node)])


CASE = Case(LATTICE.source, (3, 4), "")


def test_the_bound_at_the_root_of_a_lattice_is_its_best_path() -> None:
    run = load("greedy")
    optimum = next(iter(load("astar").decode([[3]]))).best.rank_score
    assert bound_at_the_root(run.parts.constellation, LATTICE.source, run) == pytest.approx(optimum)


def test_a_search_that_found_nothing_leaves_the_bound_at_the_root() -> None:
    """Uniform-cost search of one expansion finds no hypothesis; the greedy output is 0.2 below the best path."""
    (sentence,) = diagnose(load("greedy"), [CASE], ProofBudget("astar", 1)).sentences
    assert sentence.output is not None
    optimum = next(iter(load("astar").decode([[3]]))).best.rank_score
    assert sentence.search.gap == pytest.approx(max(optimum - sentence.output.rank_score, 0.0), abs=1e-9)
    (unproven,) = diagnose(load("greedy"), [CASE], ProofBudget("none")).sentences
    assert unproven.search.gap == math.inf or unproven.search.error == "witnessed"


@pytest.mark.parametrize(("decoder", "searched"), [("astar", 0), ("greedy", 1)])
def test_an_output_that_its_decoder_has_proven_is_not_searched_again(
    decoder: str, searched: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Source] = []
    before = running.prove

    def prove(run: Any, sources: Any, budget: ProofBudget) -> Any:
        asked.extend(sources)
        return before(run, asked, budget)

    monkeypatch.setattr(running, "prove", prove)
    (sentence,) = diagnose(load(decoder), [CASE], ProofBudget("dfs", 0)).sentences
    assert len(asked) == searched and sentence.search.error in ("none", "proven")


class Batched(BatchPredictor):
    """Prefers the empty output. As in a model in float32, scores depend on the number of rows by about 1e-6."""

    max_score = 0.0

    def initialize_batch(self, sources: Sequence[Source]) -> Sequence[int]:
        return [0] * len(sources)

    def predict_batch(self, states: Sequence[Any], candidates: Candidates | None = None) -> Scores:
        return Scores.dense(np.tile([-9, -9, -0.5, -1, -2], (len(states), 1)) - 1.5e-6 * len(states))

    def consume_batch(self, states: Sequence[Any], tokens: Sequence[int]) -> Sequence[int]:
        return [0] * len(states)


@pytest.mark.parametrize(("decoder", "error"), [("greedy", "none"), (Last, "proven")])
def test_the_gap_of_a_proven_sentence_has_no_rounding_of_scores(decoder: Any, error: str) -> None:
    """Six outputs are scored together, three sentences searched together."""
    run = sgdec.load({"a": Batched()}, decoder, vocab_size=5)
    cases = [Case(Source(n, (3,), max_length=3), (3,), "") for n in (1, 2, 3)]
    found = diagnose(run, cases, ProofBudget("astar", 0))
    assert [each.search.error for each in found.sentences] == [error] * 3
    for each in found.sentences:
        assert each.search.gap == each.search.by and (each.search.gap == 0) == (error == "none")
    assert "Rank scores count as equal up to 0.0001, or 0.001% of their size." in next(
        table.notes for table in tables(summarise(found)) if table.title == "Errors"
    )


def test_a_decoder_with_a_criterion_of_its_own_is_refused() -> None:
    run = load("greedy")
    run.parts.decoder.ranks_by = "expected utility"
    with pytest.raises(sgdec.UsageError, match="ranks by expected utility, so scores do not say"):
        diagnose(run, [CASE])
