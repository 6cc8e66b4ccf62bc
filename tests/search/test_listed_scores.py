"""Rows that restrict, as arrays or as marks: they mean what the same rows mean as lists, in every mix and search."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.vanilla import VanillaDecoder

from sgdec import EOS, BatchPredictor, Scores, Source
from sgdec.errors import SgdecError
from sgdec.protocol import FORBIDDEN, Candidates, State
from sgdec.scores import ListedScores, TokenLists
from sgdec.search.combination.columns import Column, Restrictions
from sgdec.search.constellation import Constellation
from sgdec.search.space import SearchSpace
from sgdec.testing.toys import Bonus, Lattice, OnDemandTable, Table

V = 12
Ways = dict[int, tuple[float, int]]


def drawn(seed: int, scored: bool = True) -> dict[int, Ways]:
    """A lattice of 30 states with up to nine arcs each, some of them forbidden; other scores can be all 0."""
    rng = random.Random(seed)
    lattice: dict[int, Ways] = {}
    for state in range(30):
        tokens = sorted(rng.sample(range(3, V), rng.randint(5, 9)))
        scores = [rng.choice([FORBIDDEN, -0.5, -0.5, rng.uniform(-2, 0)]) for _ in tokens]
        lattice[state] = {t: (s, rng.randint(state + 1, 30)) for t, s in zip(tokens, scores, strict=True)}
        if rng.random() < 0.9:
            lattice[state][EOS] = (rng.uniform(-2, 0), 99)
    lattice[30] = {EOS: (-0.1, 99)}
    if not scored:
        lattice = {
            state: {t: (0.0, after) for t, (score, after) in ways.items() if score != FORBIDDEN}
            for state, ways in lattice.items()
        }
    return {state: dict(sorted(ways.items())) for state, ways in lattice.items()}


class InArrays(BatchPredictor):
    """The same lattice, with rows as arrays."""

    def __init__(self, ways: dict[int, Ways]) -> None:
        self.ways = ways

    def initialize_batch(self, sources: Sequence[Source]) -> list[State]:
        return [0] * len(sources)

    def predict_batch(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        rows = [self.ways.get(state, {}) for state in states]
        offsets = np.cumsum([0, *map(len, rows)])
        tokens = np.array([token for row in rows for token in row], np.int64)
        return Scores.listed(offsets, tokens, np.array([way[0] for row in rows for way in row.values()], np.float64))

    def consume_batch(self, states: Sequence[State], tokens: Sequence[int]) -> list[State]:
        return [self.ways.get(state, {}).get(token, (0, 99))[1] for state, token in zip(states, tokens, strict=True)]


class InMarks(InArrays):
    """The same lattice, if all its scores are 0, with rows as marks."""

    def predict_batch(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        allowed = np.zeros((len(states), V), bool)
        for row, state in zip(allowed, states, strict=True):
            row[list(self.ways.get(state, {}))] = True
        return Scores.allowing(allowed)


def tables(seed: int) -> Any:
    return np.random.default_rng(seed).normal(-1, 1, (V, V))


MIXES: dict[str, Any] = {
    "alone": lambda one: {"a": one(1)},
    "first": lambda one: {"a": one(1), "table": Table(tables(1))},
    "last": lambda one: {"table": Table(tables(2)), "a": one(2)},
    "two": lambda one: {"a": one(1), "b": one(2), "table": Table(tables(3))},
    "with lists": lambda one: {"lists": Lattice(drawn(3)), "a": one(2), "table": Table(tables(4))},
    "on demand": lambda one: {"a": one(4), "later": OnDemandTable(tables(5)), "bonus": Bonus({3: -0.5})},
}
WEIGHTS = [[1.0, 1.0, 1.0], [0.5, -1.0, 0.0], [2.0, 0.3, None]]


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 4, 40])
@pytest.mark.parametrize("weights", WEIGHTS, ids=str)
@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("form", [InArrays, InMarks])
def test_all_forms_mean_what_lists_mean(
    form: type[InArrays], mix: str, weights: list[float | None], size: int
) -> None:
    found = []
    scored = form is InArrays
    for one in (lambda seed: Lattice(drawn(seed, scored)), lambda seed: form(drawn(seed, scored))):
        predictors = MIXES[mix](one)
        constellation = Constellation.of(predictors, weights=weights[: len(predictors)], vocab_size=V)
        for limit in (3, 9):
            (root,) = constellation.roots([Source(1, (3,), max_length=limit)])
            space = SearchSpace(constellation, root, nbest=size)
            result = BeamDecoder(size=size, stop="full").decode(space)
            (lazy,) = space.expand([root])
            (few,) = space.expand([root], limit=3)
            children = [(child.last, child.total, child.scores) for child in [*lazy, *few]]
            found.append((result, space.expansions, children))
    half = len(found) // 2
    assert found[:half] == found[half:]
    assert all(children for _, _, children in found)
    assert any(result.hypotheses for result, _, _ in found) or mix == "with lists"


@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("form", [InArrays, InMarks])
def test_whole_arrays_mean_what_nodes_mean(form: type[InArrays], mix: str) -> None:
    found = []
    for decoder in (BeamDecoder(size=4, stop="full"), VanillaDecoder(size=4, stop="full")):
        predictors = MIXES[mix](lambda seed: form(drawn(seed, form is InArrays)))
        constellation = Constellation.of(predictors, vocab_size=V)
        spaces = [
            SearchSpace(constellation, root, nbest=4)
            for root in constellation.roots([Source(i, (3,), max_length=9) for i in (1, 2)])
        ]
        found.append([decoder.decode(space) for space in spaces])
    assert found[0] == found[1]
    assert all(result.hypotheses for result in found[0]) or mix in ("with lists", "on demand")


def test_whole_arrays_of_lists_need_no_number_of_tokens() -> None:
    found = []
    for decoder in (BeamDecoder(size=4, stop="full"), VanillaDecoder(size=4, stop="full")):
        constellation = Constellation.of({"a": Lattice(drawn(1)), "bonus": Bonus({V + 3: 0.5})})
        (root,) = constellation.roots([Source(1, (3,), max_length=9)])
        found.append(decoder.decode(SearchSpace(constellation, root, nbest=4)))
    assert found[0] == found[1] and found[0].hypotheses


OTHERS = Table(tables(1)), Lattice(drawn(2)), InArrays(drawn(2)), InMarks(drawn(2, scored=False))


@pytest.mark.parametrize("form", [InArrays, InMarks])
@pytest.mark.parametrize("other", OTHERS, ids=lambda other: type(other).__name__)
def test_nodes_may_consult_only_some_predictors(other: Any, form: type[InArrays]) -> None:
    found = []
    ways = drawn(1, scored=form is InArrays)
    for a in (Lattice(ways), form(ways)):
        predictors = {"a": a, "other": other, "table": Table(tables(9))}
        constellation = Constellation.of(predictors, vocab_size=V)
        (root,) = constellation.roots([Source(1, (3,), max_length=5)])
        nodes = [root, *(root.with_weights(weights) for weights in ([None, 1.0, 1.0], [0.5, 2.0, 1.0]))]
        space = SearchSpace(constellation, root)
        families = [*space.expand(nodes, limit=20), *space.expand(nodes, limit=2)]  # all, and the best of all
        found.append([[(child.last, child.total) for child in family] for family in families])
    assert found[0] == found[1]
    assert len(found[0][1]) > len(found[0][0])


def test_what_is_asked_on_demand_is_what_lists_and_arrays_both_list() -> None:
    asked: list[Any] = []

    class Watched(OnDemandTable):
        def predict_next(self, candidates: Candidates | None = None) -> Scores:
            asked.append(candidates)
            return super().predict_next(candidates)

    first, second = drawn(1), drawn(2)
    predictors = {"lists": Lattice(first), "arrays": InArrays(second), "later": Watched(tables(1))}
    constellation = Constellation.of(predictors, vocab_size=V)
    (root,) = constellation.roots([Source(1, (3,), max_length=5)])
    SearchSpace(constellation, root).expand([root], limit=2)
    assert [list(each) for each in asked] == [sorted({*first[0]} & {*second[0]})]


def test_what_several_list_is_what_all_of_them_list() -> None:
    rng = random.Random(1)
    for _ in range(50):
        rows = rng.randint(1, 6)
        ending = [rng.random() < 0.3 for _ in range(rows)]
        listed = [[sorted(rng.sample(range(V), rng.randint(0, V))) for _ in range(rows)] for _ in range(3)]
        restrictions, used = Restrictions(rows), [list(range(V))] * rows
        restrictions.end(ending)
        for lists in listed[: rng.randint(1, 3)]:
            offsets = np.cumsum([0, *map(len, lists)])
            tokens = np.array([token for row in lists for token in row], np.int64)
            scores = ListedScores(TokenLists(offsets, tokens), np.zeros(len(tokens)))
            assert restrictions.add(Column("a", scores, range(rows), [1.0] * rows))
            used = [sorted({*a} & {*b}) for a, b in zip(used, lists, strict=True)]
        expected = [[t for t in row if t == EOS or not ends] for row, ends in zip(used, ending, strict=True)]
        assert [list(row or ()) for row in restrictions.candidates()] == expected


@pytest.mark.parametrize("token", [-1, V])
def test_a_token_outside_the_vocabulary_is_an_error_that_names_the_predictor(token: int) -> None:
    constellation = Constellation.of({"a": InArrays({0: {token: (0.0, 1)}})}, vocab_size=V)
    (root,) = constellation.roots([Source(1, (3,))])
    with pytest.raises(SgdecError, match=f"'a' scores token {token}"):
        SearchSpace(constellation, root).expand([root], limit=2)
