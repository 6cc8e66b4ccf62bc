"""The promise: any mix of predictors meets as the definition says, sum of weight x score over the candidates.

The oracle is the definition over dictionaries, one token at a time (`tests.helpers.meetings`).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgdec.context import EOS
from sgdec.errors import SgdecError, UsageError
from sgdec.protocol import Source
from sgdec.search.combining import Combined
from sgdec.search.constellation import Constellation
from sgdec.search.node import Node
from tests.helpers.meetings import FORMS, INF, Form, Meeting, Said, Says, everything, meetings, plain


@given(meetings(), st.integers(1, 200))
def test_the_best_continuations_are_those_of_the_definition(meeting: Meeting, limit: int) -> None:
    found = meeting.combined().best(limit)
    for node in range(len(meeting.at_limit)):
        assert plain(found[node]) == meeting.expected(node)[:limit]


@given(meetings(), st.integers(1, 70))
def test_blocks_are_all_of_the_definition_in_order(meeting: Meeting, size: int) -> None:
    combined = meeting.combined()
    for node in range(len(meeting.at_limit)):
        assert everything(combined, node, size) == meeting.expected(node)


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
    assert some == everything(meeting.combined(), 0, 64)[:limit]
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
        lambda combined: combined.blocks(1),
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
        constellation.combine(nodes).blocks(1)


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
