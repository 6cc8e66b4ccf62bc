"""Beam search returns what its stopping rule promises, measured against enumeration of the whole space."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sgdec_decoders.beam import BeamDecoder, prune_final, prune_local, set_finished_aside
from sgdec_decoders.greedy import GreedyDecoder

from sgdec import EOS, Decoder, Predictor, Result, Scores, SearchSpace, Source, UsageError
from sgdec.constellation import Constellation
from sgdec.protocol import Candidates
from sgdec.testing.enumeration import enumerate_space
from sgdec.testing.toys import Table

WIDE = 10_000


def decode(decoder: Decoder, constellation: Constellation, source: Source, nbest: int = 1) -> Result:
    (root,) = constellation.roots([source])
    return decoder.decode(SearchSpace(constellation, root, ranking=decoder.ranking, nbest=nbest))


def table(scores: Sequence[Sequence[float]]) -> Constellation:
    """One bigram: row = the token before, column = the token."""
    return Constellation.of({"table": Table(np.array(scores))}, vocab_size=len(scores))


@st.composite
def tables(draw: st.DrawFn, low: float = -3.0, high: float = 0.0) -> Constellation:
    score = st.floats(low, high, allow_nan=False, width=32) | st.just(-np.inf) | st.just(float(low))
    rows = draw(st.lists(st.lists(score, min_size=4, max_size=4), min_size=4, max_size=4))
    return table(rows)


def agree(result: Result, constellation: Constellation, source: Source, decoder: Decoder, nbest: int) -> None:
    """The same rank scores; tokens may differ where scores are equal."""
    every = enumerate_space(constellation, source, ranking=decoder.ranking)
    expected = [path.rank_score(decoder.ranking) for path in every[:nbest]]
    assert [h.rank_score for h in result.hypotheses] == pytest.approx(expected, abs=1e-9)
    known = {path.tokens: path.total for path in every}
    for hypothesis in result.hypotheses:
        assert hypothesis.score == pytest.approx(known[hypothesis.tokens], abs=1e-9)


@settings(deadline=None)
@given(tables(), st.integers(0, 4), st.integers(1, 5))
def test_proven_in_a_wide_beam_is_the_true_nbest(constellation: Constellation, length: int, nbest: int) -> None:
    source = Source(1, (3,), max_length=length)
    decoder = BeamDecoder(size=WIDE, stop="proven")
    agree(decode(decoder, constellation, source, nbest), constellation, source, decoder, nbest)


@settings(deadline=None)
@given(
    tables(low=-2.0, high=2.0),
    st.floats(-0.5, 1.5),
    st.sampled_from(["gnmt", "length"]),
    st.sampled_from([1.0, -1.0, 0.5]),
)
def test_proven_holds_for_positive_scores_negative_weights_and_length_normalisation(
    given_table: Constellation, alpha: float, normalize: str, weight: float
) -> None:
    predictor = given_table.predictors[0]
    constellation = Constellation.of({"table": predictor}, weights=[weight], vocab_size=4)
    source = Source(1, (3,), max_length=3)
    decoder = BeamDecoder(size=WIDE, stop="proven", alpha=alpha, normalize=normalize)  # type: ignore[arg-type]
    agree(decode(decoder, constellation, source, 3), constellation, source, decoder, 3)


@settings(deadline=None)
@given(tables(low=-2.0, high=2.0), st.integers(1, 4))
def test_full_in_a_wide_beam_is_the_true_nbest(constellation: Constellation, nbest: int) -> None:
    source = Source(1, (3,), max_length=3)
    decoder = BeamDecoder(size=WIDE, stop="full")
    agree(decode(decoder, constellation, source, nbest), constellation, source, decoder, nbest)


@settings(deadline=None)
@given(tables())
def test_best_in_a_wide_beam_is_the_optimum_where_scores_never_rise(constellation: Constellation) -> None:
    source = Source(1, (3,), max_length=3)
    decoder = BeamDecoder(size=WIDE, stop="best")
    agree(decode(decoder, constellation, source), constellation, source, decoder, 1)


RISING = [
    # from any token: </s> costs 1, token 3 costs 2 at first and then gains 5
    [-9.0, -9.0, -1.0, -2.0],
    [-9.0, -9.0, -1.0, -2.0],
    [-9.0, -9.0, -1.0, -2.0],
    [-9.0, -9.0, -9.0, 5.0],
]


def test_best_stops_too_early_where_scores_can_rise_and_proven_does_not() -> None:
    constellation, source = table(RISING), Source(1, (3,), max_length=4)
    optimum = enumerate_space(constellation, source)[0]
    early = decode(BeamDecoder(stop="best"), constellation, source).hypotheses[0]
    proven = decode(BeamDecoder(stop="proven"), constellation, source).hypotheses[0]
    assert early.tokens == () and early.score == -1.0
    assert proven.tokens == optimum.tokens == (3, 3, 3, 3)
    assert proven.score == optimum.total > early.score


NORMALISED = [
    # </s> at once: -1.2. "3 3 3 </s>": -2.0 in all, which |Y| = 4 turns into -0.5.
    [-9.0, -9.0, -1.2, -0.5],
    [-9.0, -9.0, -1.2, -0.5],
    [-9.0, -9.0, -1.2, -0.5],
    [-9.0, -9.0, -0.5, -0.5],
]


def test_proven_waits_for_a_longer_hypothesis_that_normalisation_prefers() -> None:
    constellation, source = table(NORMALISED), Source(1, (3,), max_length=3)
    decoder = BeamDecoder(stop="proven", alpha=1.0, normalize="length")
    (best,) = decode(decoder, constellation, source).hypotheses
    assert best.rank_score == pytest.approx(-0.5)
    agree(Result([best]), constellation, source, decoder, 1)


def test_full_waits_until_every_hypothesis_of_the_beam_is_finished() -> None:
    constellation, source = table(NORMALISED), Source(1, (3,), max_length=3)
    results = decode(BeamDecoder(size=3, stop="full"), constellation, source, nbest=3)
    assert len(results.hypotheses) == 3
    stopped = decode(BeamDecoder(size=3, stop="best"), constellation, source, nbest=3)
    assert len(stopped.hypotheses) < 3


@settings(deadline=None)
@given(tables(low=-2.0, high=2.0))
def test_a_beam_of_one_is_greedy_search(constellation: Constellation) -> None:
    source = Source(1, (3,), max_length=3)
    beam, greedy = (decode(d, constellation, source) for d in (BeamDecoder(size=1), GreedyDecoder()))
    assert beam.hypotheses == greedy.hypotheses


@settings(deadline=None)
@given(tables(low=-2.0, high=2.0))
def test_recombination_in_a_beam_as_wide_as_the_states_finds_the_optimum(constellation: Constellation) -> None:
    source = Source(1, (3,), max_length=5)
    decoder = BeamDecoder(size=4, recombine=True, stop="proven")  # a bigram has four states of each length
    agree(decode(decoder, constellation, source), constellation, source, decoder, 1)


def test_local_pruning_drops_what_is_too_far_below_its_best_sibling() -> None:
    constellation = table([[-1.0, -3.9, -4.1, -9.0]] * 4)
    (root,) = constellation.roots([Source(1, (3,))])
    (children,) = SearchSpace(constellation, root).expand([root], limit=4)
    assert [child.last for child in prune_local(children, 3.0)] == [0, 1]
    assert prune_local(children, 0.0) == children
    assert prune_local([], 3.0) == []


def test_final_pruning_compares_finished_hypotheses_in_normalised_space() -> None:
    # </s> at once ranks -4; "3 </s>" totals -6, and 6 / lp(2) = 6 * 6 / 7 = 5.14: 1.14 below.
    constellation = table([[-9.0, -9.0, -4.0, -3.0]] * 3 + [[-9.0, -9.0, -3.0, -9.0]])
    ranking = BeamDecoder(alpha=1.0).ranking
    (root,) = constellation.roots([Source(1, (3,), max_length=2)])
    space = SearchSpace(constellation, root, ranking=ranking)
    (children,) = space.expand([root], limit=2)
    first = next(child for child in children if child.finished)
    longer = next(child for child in children if not child.finished)
    ((second, *_),) = space.expand([longer], limit=1)
    assert prune_final(space, [longer, second], [first], 1.2) == [longer, second]
    assert prune_final(space, [longer, second], [first], 1.1) == [longer]
    assert prune_final(space, [longer], [], 1.1) == [longer]


def test_finished_hypotheses_take_no_slot_where_proof_is_asked() -> None:
    constellation = table([[-4.0, -3.0, -1.0, -2.0]] * 4)
    (root,) = constellation.roots([Source(1, (3,))])
    (children,) = SearchSpace(constellation, root).expand([root], limit=4)
    beam, ended = set_finished_aside(children, 2)
    assert [node.last for node in beam] == [3, 1] and [node.last for node in ended] == [EOS]


class NoBound(Predictor):
    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        return Scores.dense(np.array([-1.0, -1.0, -2.0]))


def test_proof_is_refused_in_one_line_where_a_predictor_declares_no_bound() -> None:
    constellation = Constellation.of({"mystery": NoBound()})
    with pytest.raises(UsageError, match="'mystery' does not declare best_remaining"):
        decode(BeamDecoder(stop="proven"), constellation, Source(1, (3,), max_length=3))


def test_a_predictor_of_weight_zero_needs_no_bound() -> None:
    constellation = Constellation.of({"mystery": NoBound()}, weights=[0.0])
    (best,) = decode(BeamDecoder(stop="proven"), constellation, Source(1, (3,), max_length=3)).hypotheses
    assert best.score == 0.0


def test_a_coverage_penalty_without_attention_is_refused() -> None:
    with pytest.raises(UsageError, match="needs a predictor with attention"):
        decode(BeamDecoder(beta=0.2), table(RISING), Source(1, (3,), max_length=3))
