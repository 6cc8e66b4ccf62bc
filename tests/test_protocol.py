"""The promise: the two forms of a predictor are one, and scores mean the same in every shape."""

from __future__ import annotations

import copy
import math
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sgdec.context import EOS
from sgdec.lifting import Lowered, lift
from sgdec.protocol import ABILITIES, BatchPredictor, Hypothesis, Predictor, Scores, Source, SparseRow, ability
from sgdec.scores import CandidateScores, DenseScores, SparseScores
from sgdec.testing import BatchTable, Bonus, Lattice, OnDemandTable, PassThrough, Table
from sgdec.testing.reading import plain, read_row
from sgdec.testing.snapshot import snapshot
from sgdec.testing.tiny_spaces import LATTICE

INF = math.inf
V = 6
TABLE = np.random.default_rng(2).normal(size=(V, V))
SOURCES = [Source(1, (3, 4), max_length=4), Source(2, (5,), max_length=4)]
BOTH_FORMS: list[tuple[Predictor, BatchPredictor]] = [(Table(TABLE), BatchTable(TABLE))]


# Scores.


@given(st.dictionaries(st.integers(0, V - 1), st.floats(-9, 9)), st.sampled_from((-INF, -1.0, 0.0)))
def test_a_sparse_row_gives_listed_tokens_their_score_and_others_the_default(
    listed: dict[int, float], default: float
) -> None:
    plain_row = SparseRow(list(listed), list(listed.values()), default)
    array_row = SparseRow(np.array(list(listed), dtype=np.int64), np.array(list(listed.values())), default)  # type: ignore[arg-type]
    tensors = torch.tensor(list(listed), dtype=torch.long), torch.tensor(list(listed.values()), dtype=torch.double)
    tensor_row = SparseRow(*tensors, default)  # type: ignore[arg-type]
    for row in (plain_row, array_row, tensor_row):
        assert [row.get(token) for token in range(V)] == [listed.get(token, default) for token in range(V)]
        assert row.restricts is (default == -INF)
        assert len(row) == len(listed)
        tokens, scores = row.arrays
        assert tokens.tolist() == sorted(listed)
        assert scores.tolist() == [listed[token] for token in sorted(listed)]


def test_an_open_row_that_forbids_a_token_does_not_restrict() -> None:
    assert not SparseRow([3], [-INF], 0.0).restricts


def test_scores_are_either_dense_or_sparse() -> None:
    for both in ({}, {"values": np.zeros((1, 3)), "rows": []}):
        with pytest.raises(ValueError, match="either dense"):
            Scores(**both)  # type: ignore[arg-type]


def test_each_kind_of_scores_is_a_type() -> None:
    dense, sparse = Scores(values=np.zeros((2, 3))), Scores(rows=[SparseRow([1], [0.0])])
    answer = Scores.of_candidates([[1, 2]], np.zeros(2))
    assert [type(each) for each in (dense, sparse, answer)] == [DenseScores, SparseScores, CandidateScores]
    assert [len(each) for each in (dense, sparse, answer)] == [2, 1, 1]
    assert sparse.values is None and answer.values is None
    with pytest.raises(TypeError, match="dense Scores have no rows"):
        _ = dense.rows


@pytest.mark.parametrize(
    ("asked", "candidates", "same"),
    [
        ([[3, 5], [2]], [(3, 5), [2]], True),
        ([np.array([3, 5])], [[3, 5]], True),
        ([None], [None], True),
        ([[3, 5]], [[3, 6]], False),
        ([[3, 5]], [[3]], False),
        ([[3], [5]], [[3]], False),
        ([None], [[3]], False),
    ],
)
def test_an_answer_is_taken_whole_only_where_just_that_was_asked(asked: Any, candidates: Any, same: bool) -> None:
    flat = np.zeros(sum(len(row) for row in asked if row is not None))
    assert (Scores.of_candidates(asked, flat).answer_to(candidates) is flat) is same


def test_an_answer_to_candidates_takes_them_as_lists_or_arrays() -> None:
    candidates = [np.array([3, 5]), None, np.array([], dtype=int), [2]]
    scores = Scores.of_candidates(candidates, np.array([-1.0, -2.0, -3.0]))  # type: ignore[arg-type]
    assert [list(row.tokens) for row in scores.rows] == [[3, 5], [], [], [2]]
    assert scores.rows[3].get(2) == -3.0


def test_constant_scores_give_every_token_the_same() -> None:
    assert read_row(Scores.constant(-0.5), 0, V).tolist() == [-0.5] * V


def test_a_stack_has_the_rows_of_its_parts_in_order() -> None:
    parts = [
        Scores.sparse([3], [-1.0]),
        Scores.dense(np.arange(V) / 4),
        Scores.sparse([2, 5], [0.5, -INF], default=-2.0),
        Scores.dense(torch.arange(2 * V).reshape(2, V) / 8),
    ]
    expected = [read_row(part, i, V).tolist() for part in parts for i in range(len(part))]
    stacked = Scores.stack(parts)
    assert len(stacked) == 5
    assert [read_row(stacked, i, V).tolist() for i in range(5)] == expected


def test_a_stack_of_sparse_rows_stays_sparse() -> None:
    stacked = Scores.stack([Scores.sparse([3], [-1.0]), Scores.constant(0.0)])
    assert stacked.values is None and [row.restricts for row in stacked.rows] == [True, False]


def test_a_stack_of_one_tensor_is_no_copy() -> None:
    values = torch.zeros(1, V)
    assert Scores.dense(values).values is values


# The two forms.


def walk(predictor: BatchPredictor, tokens: Sequence[Sequence[int]]) -> list[list[list[float]]]:
    """What both sentences' prefixes are told, step by step."""
    states = predictor.initialize_batch(SOURCES)
    found = []
    for step in [*tokens, None]:
        scores = predictor.predict_batch(states)
        found.append([read_row(scores, i, V).tolist() for i in range(2)])
        if step is not None:
            states = predictor.consume_batch(states, step)
    return found


TOKENS = [(3, 4), (5, 0), (3, 3)]


@pytest.mark.parametrize(
    "make",
    [lambda: lift(Lowered(BatchTable(TABLE))), lambda: PassThrough(lift(Table(TABLE))), lambda: BatchTable(TABLE)],
    ids=["lowered and lifted", "wrapped", "batch form"],
)
def test_both_forms_say_the_same(make: object) -> None:
    assert walk(make(), TOKENS) == walk(lift(Table(TABLE)), TOKENS)  # type: ignore[operator]


def test_a_batch_form_predictor_is_lifted_to_itself() -> None:
    predictor = BatchTable(TABLE)
    assert lift(predictor) is predictor


def test_lifting_keeps_the_abilities_and_adds_none() -> None:
    for predictor, present in [
        (Table(TABLE), {"best_remaining", "worst_remaining", "state_key"}),
        (Lattice(LATTICE), {"best_remaining", "worst_remaining", "state_key", "state_label"}),
    ]:
        for form in (lift(predictor), PassThrough(lift(predictor))):
            assert {name for name in ABILITIES if ability(form, name) is not None} == present
    assert ability(PassThrough(BatchTable(TABLE)), "attention") is not None
    with pytest.raises(AttributeError):
        lift(Table(TABLE)).no_such_thing  # type: ignore[attr-defined]  # noqa: B018


def test_lifted_abilities_answer_state_by_state() -> None:
    simple, lifted = Bonus({3: 1.0, EOS: 0.0}), lift(Bonus({3: 1.0, EOS: 0.0}))
    states = lifted.initialize_batch(SOURCES)
    states = lifted.consume_batch(states, [3, 3]) + lifted.consume_batch(states[:1], [4])
    method = ability(lifted, "best_remaining")
    assert method is not None
    simple.initialize(SOURCES[0])
    assert method(states) == simple.best_remaining([3, 3, 3])


def test_lifting_keeps_on_demand() -> None:
    for predictor, expected in [(Table(TABLE), False), (OnDemandTable(TABLE), True)]:
        assert lift(predictor).on_demand is expected
        assert PassThrough(lift(predictor)).on_demand is expected


def test_each_sentence_has_a_shallow_copy_of_its_own() -> None:
    predictor = Table(TABLE)
    lifted = lift(predictor)
    before = snapshot(predictor.get_state())
    first, second = lifted.initialize_batch(SOURCES)
    lifted.consume_batch([first], [3])
    assert first.predictor is not second.predictor is not predictor
    assert first.predictor.table is predictor.table, "what __init__ loaded is shared"
    assert snapshot(predictor.get_state()) == before


def test_a_lifted_predictor_can_be_copied() -> None:
    lifted = copy.copy(lift(Table(TABLE)))
    assert walk(lifted, TOKENS) == walk(lift(Table(TABLE)), TOKENS)


def test_candidates_reach_the_row_that_they_are_for() -> None:
    lifted = lift(OnDemandTable(TABLE))
    states = lifted.initialize_batch(SOURCES)
    scores = lifted.predict_batch(states, [[3], [0, 5]])
    assert [sorted(row.lookup) for row in scores.rows] == [[3], [0, 5]]


# Hypotheses.


def test_scores_by_predictor_are_sums_over_the_ledger() -> None:
    ledger = ((-1.0, 0.5), (-2.0, 0.25))
    assert Hypothesis((3,), -3.0, -3.0, ledger, ((1.0, 0.0),) * 2).scores == (-3.0, 0.75)


# The kit.


@pytest.mark.slow
def test_the_kit_imports_without_torch() -> None:
    code = "import sys, sgdec.testing; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_snapshot_sees_changes_at_any_depth() -> None:
    array, tensor, inner = np.zeros(3), torch.zeros(3), {"seen": {1}}
    value = (1, [array, tensor], inner, "text", None, math.nan)
    before = snapshot(value)
    assert snapshot(value) == before
    for change in (
        lambda: array.__setitem__(1, 5.0),
        lambda: tensor.add_(1),
        lambda: inner["seen"].add(2),
        lambda: inner.update(more={3}),
    ):
        before = snapshot(value)
        change()
        assert snapshot(value) != before


def test_a_tensor_of_any_precision_can_be_read() -> None:
    assert plain(torch.ones(2, dtype=torch.bfloat16)).tolist() == [1.0, 1.0]
