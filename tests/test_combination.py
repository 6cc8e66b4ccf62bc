"""The promise: any mix of predictors meets as the definition says, sum of weight x score over the candidates.

The oracle is the definition over dictionaries, one token at a time. Scores are quarters and weights are halves, so
that sums are exact and ties are many.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sgdec.combination import Combined
from sgdec.constellation import Constellation
from sgdec.context import EOS
from sgdec.errors import SgdecError, UsageError
from sgdec.node import Node
from sgdec.protocol import BatchPredictor, Candidates, Scores, Source, SparseRow, State

INF = math.inf
Form = Literal[
    "float64", "float32", "torch float64", "torch float32", "sparse", "on demand", "dense on demand", "flat on demand"
]
FORMS: tuple[Form, ...] = (
    "float64", "float32", "torch float64", "torch float32", "sparse", "on demand", "dense on demand",
    "flat on demand",
)  # fmt: skip
WEIGHTS = (1.0, 0.0, -1.0, 0.5, -0.5, 2.0, None)
POISON = 77.0
"""What a predictor on demand says about tokens that are no candidates."""


@dataclass(frozen=True)
class Said:
    """One row, token by token: the tokens that are listed, and the default of the others."""

    listed: Mapping[int, float]
    default: float

    def score(self, token: int) -> float:
        return self.listed.get(token, self.default)


class Says(BatchPredictor):
    """Row i belongs to sentence i; the state is the sentence number."""

    def __init__(self, form: Form, rows: Sequence[Said], vocab_size: int) -> None:
        self.form = form
        self.rows = rows
        self.vocab_size = vocab_size
        self.on_demand = "on demand" in form  # type: ignore[misc]

    def initialize_batch(self, sources: Sequence[Source]) -> list[State]:
        return [source.id for source in sources]

    def consume_batch(self, states: Sequence[State], tokens: Sequence[int]) -> list[State]:
        raise AssertionError("nothing is expanded here")

    def predict_batch(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        if self.form == "sparse":
            return Scores(rows=[_sparse(self.rows[i]) for i in states])
        if self.form == "on demand":
            wanted = candidates if candidates is not None else [None] * len(states)
            return Scores(rows=[self._on_demand(self.rows[i], c) for i, c in zip(states, wanted, strict=True)])
        if self.form == "flat on demand" and candidates is not None and None not in candidates:
            flat = [self.rows[i].score(w) for i, c in zip(states, candidates, strict=True) for w in c or ()]
            return Scores.of_candidates(candidates, np.array(flat))
        values = np.array([[self.rows[i].score(w) for w in range(self.vocab_size)] for i in states])
        if self.form.startswith("torch"):
            return Scores.dense(torch.from_numpy(values).to(getattr(torch, self.form.split()[1])))
        return Scores.dense(values.astype(np.float32 if self.form == "float32" else np.float64))

    def _on_demand(self, row: Said, candidates: Candidates | None) -> SparseRow:
        if candidates is None:
            return _sparse(row)
        assert list(candidates) == sorted(set(candidates)), "candidates come in ascending order, each once"
        if row.default == -INF:  # restricts also among candidates
            listed = [token for token in candidates if token in row.listed]
            return SparseRow(listed, [row.listed[token] for token in listed])
        return SparseRow(candidates, [row.score(token) for token in candidates], POISON)


def _sparse(row: Said) -> SparseRow:
    tokens = sorted(row.listed, key=lambda token: (token * 7) % 11)  # in no particular order
    return SparseRow(tokens, [row.listed[token] for token in tokens], row.default)


@dataclass
class Meeting:
    """Predictors with what they say to each of several nodes."""

    forms: list[Form]
    said: list[list[Said]]
    """By predictor, then node."""
    weights: list[tuple[float | None, ...]]
    """By node, then predictor."""
    at_limit: list[bool]
    vocab_size: int

    def combined(self) -> Combined:
        predictors = {
            f"p{k}": Says(form, rows, self.vocab_size)
            for k, (form, rows) in enumerate(zip(self.forms, self.said, strict=True))
        }
        constellation = Constellation.of(predictors, vocab_size=self.vocab_size)
        sources = [Source(i, (), max_length=0 if limit else None) for i, limit in enumerate(self.at_limit)]
        nodes = constellation.roots(sources)
        return constellation.combine([n.with_weights(w) for n, w in zip(nodes, self.weights, strict=True)])

    def expected(self, node: int) -> list[tuple[int, float, tuple[float, ...]]]:
        """All continuations of a node by the definition, best first, lower token first."""
        rows = [said[node] for said in self.said]
        weights = self.weights[node]
        candidates = {EOS} if self.at_limit[node] else set(range(self.vocab_size))
        for form, row, weight in zip(self.forms, rows, weights, strict=True):
            if weight is not None and row.default == -INF and form in ("sparse", "on demand"):
                candidates &= set(row.listed)
        found = []
        for token in sorted(candidates):
            scores = tuple(
                0.0 if weight is None else row.score(token) for row, weight in zip(rows, weights, strict=True)
            )
            if -INF not in scores:
                total = sum(w * s for w, s in zip(weights, scores, strict=True) if w is not None)
                found.append((token, float(total), scores))
        return sorted(found, key=lambda continuation: (-continuation[1], continuation[0]))


@st.composite
def meetings(draw: st.DrawFn) -> Meeting:
    vocab_size = draw(st.sampled_from((1, 3, 5, 70, 150)))
    forms = draw(st.lists(st.sampled_from(FORMS), min_size=1, max_size=4))
    nodes = draw(st.integers(1, 4))
    weights = [tuple(draw(st.sampled_from(WEIGHTS)) for _ in forms) for _ in range(nodes)]
    at_limit = [vocab_size > EOS and draw(st.integers(0, 5)) == 0 for _ in range(nodes)]
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    said = [[_said(rng, form, vocab_size) for _ in range(nodes)] for form in forms]
    return Meeting(forms, said, weights, at_limit, vocab_size)


def _said(rng: np.random.Generator, form: Form, vocab_size: int) -> Said:
    everything = form not in ("sparse", "on demand")
    share = 1.0 if everything else rng.choice([0.0, 0.1, 0.5, 1.0])
    forbidden = rng.choice([0.0, 0.2, 0.9])
    listed = {
        token: -INF if rng.random() < forbidden else float(rng.integers(-12, 5)) / 4
        for token in range(vocab_size)
        if rng.random() < share
    }
    return Said(listed, -INF if rng.random() < 0.5 and not everything else float(rng.integers(-8, 3)) / 4)


def plain(found: Any) -> list[tuple[int, float, tuple[float, ...]]]:
    return [(token, score, tuple(scores)) for token, score, scores in found]


@given(meetings(), st.integers(1, 200))
def test_the_best_continuations_are_those_of_the_definition(meeting: Meeting, limit: int) -> None:
    found = meeting.combined().best(limit)
    for node in range(len(meeting.at_limit)):
        assert plain(found[node]) == meeting.expected(node)[:limit]


@given(meetings())
def test_lazy_continuations_are_all_of_the_definition_in_order(meeting: Meeting) -> None:
    combined = meeting.combined()
    for node in range(len(meeting.at_limit)):
        assert plain(combined.all(node)) == meeting.expected(node)


@given(meetings())
def test_a_distribution_holds_each_candidate_with_its_combined_score(meeting: Meeting) -> None:
    combined = meeting.combined()
    for node in range(len(meeting.at_limit)):
        tokens, scores = combined.distribution(node)
        found = {int(t): float(s) for t, s in zip(tokens, scores, strict=True) if s > -INF}
        assert found == {token: score for token, score, _ in meeting.expected(node)}
        assert list(tokens) == sorted(set(tokens.tolist()))


@given(meetings(), st.data())
def test_one_given_continuation_is_that_of_the_definition(meeting: Meeting, data: st.DataObject) -> None:
    combined = meeting.combined()
    for node in range(len(meeting.at_limit)):
        expected = meeting.expected(node)
        if expected:
            one = data.draw(st.sampled_from(expected))
            assert plain([combined.continuation(node, one[0])]) == [one]


@given(meetings())
def test_nodes_combine_alone_as_they_do_in_a_batch(meeting: Meeting) -> None:
    nodes = range(len(meeting.at_limit))
    together = meeting.combined().best(7)
    for node in nodes:
        alone = Meeting(
            meeting.forms,
            [[rows[node]] for rows in meeting.said],
            [meeting.weights[node]],
            [meeting.at_limit[node]],
            meeting.vocab_size,
        )
        assert plain(alone.combined().best(7)[0]) == plain(together[node])


@given(st.integers(0, 2**32), st.sampled_from((5, 90)), st.integers(1, 100))
def test_with_scores_of_any_kind_the_limit_cuts_the_lazy_list(seed: int, vocab_size: int, limit: int) -> None:
    """Rounding may differ, but not what is chosen beyond it."""
    rng = np.random.default_rng(seed)
    rows = [Said(dict(enumerate(rng.normal(size=vocab_size).tolist())), -9.0) for _ in range(3)]
    meeting = Meeting(
        ["float64", "torch float64", "sparse"], [[row] for row in rows], [(0.3, -0.7, 1.1)], [False], vocab_size
    )
    some = plain(meeting.combined().best(limit)[0])
    assert some == plain(meeting.combined().all(0))[:limit]
    expected = meeting.expected(0)[:limit]
    assert [token for token, *_ in some] == [token for token, *_ in expected]
    assert np.allclose([score for _, score, _ in some], [score for _, score, _ in expected])


# What goes wrong is said in one line.


def _alone(form: Form, row: Said, weight: float | None = 1.0, vocab_size: int = 150) -> Combined:
    return Meeting([form], [[row]], [(weight,)], [False], vocab_size).combined()


NAN_AT_140 = Said({**dict.fromkeys(range(150), -INF), 0: -1.0, 140: math.nan}, -2.0)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("weight", [1.0, 0.5, 0.0, -1.0])
def test_nan_names_the_predictor_however_one_asks(form: Form, weight: float) -> None:
    asks: list[Callable[[Combined], object]] = [
        lambda combined: combined.best(1),
        lambda combined: list(combined.all(0)),
        lambda combined: combined.distribution(0),
    ]
    for ask in asks:
        with pytest.raises(SgdecError, match="'p0' gave NaN as the score of token 140"):
            ask(_alone(form, NAN_AT_140, weight))


def test_nan_of_a_predictor_that_is_not_consulted_does_not_matter() -> None:
    rows = [[NAN_AT_140], [Said({3: -1.0}, -INF)]]
    meeting = Meeting(["float64", "sparse"], rows, [(None, 1.0)], [False], 150)
    assert plain(meeting.combined().best(5)[0]) == [(3, -1.0, (0.0, -1.0))]


def test_without_a_vocabulary_size_and_a_restricting_row_the_user_is_told_what_to_do() -> None:
    constellation = Constellation.of({"wc": Says("sparse", [Said({EOS: 0.0}, -1.0)], 0)})
    nodes: list[Node] = constellation.roots([Source(0, ())])
    with pytest.raises(UsageError, match="--vocab-size"):
        constellation.combine(nodes).best(1)
    with pytest.raises(UsageError, match="--vocab-size"):
        list(constellation.combine(nodes).all(0))


def test_two_widths_are_an_error_that_names_a_predictor() -> None:
    wide, narrow = Said({}, 0.0), Said({}, 0.0)
    predictors = {"l2r": Says("float64", [wide], 9), "r2l": Says("float64", [narrow], 8)}
    constellation = Constellation.of(predictors)
    with pytest.raises(UsageError, match="'r2l' scores 8 tokens, but the vocabulary has 9"):
        constellation.combine(constellation.roots([Source(0, ())])).best(1)


def test_a_token_outside_the_vocabulary_of_a_model_is_an_error_that_names_it() -> None:
    predictors = {"fst": Says("sparse", [Said({12: 0.0}, -INF)], 0), "nmt": Says("float64", [Said({}, 0.0)], 9)}
    constellation = Constellation.of(predictors)
    with pytest.raises(SgdecError, match="token 12 is outside the vocabulary of predictor 'nmt'"):
        constellation.combine(constellation.roots([Source(0, ())])).best(1)
