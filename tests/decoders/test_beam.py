"""Beam search returns what its stopping rule promises, measured against enumeration of the whole space."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sgdec_decoders._beams import prune_local
from sgdec_decoders.beam import BeamDecoder, Finished, set_finished_aside
from sgdec_decoders.bestfirst import BestFirstDecoder
from sgdec_decoders.greedy import GreedyDecoder
from sgdec_decoders.sepbeam import SepBeamDecoder
from sgdec_decoders.vanilla import VanillaDecoder

from sgdec import EOS, Decoder, Predictor, Result, Scores, SearchSpace, Source, UsageError
from sgdec.cli.main import main
from sgdec.protocol import Candidates
from sgdec.search.constellation import Constellation
from sgdec.testing.enumeration import enumerate_space
from sgdec.testing.toys import Lattice, Table
from tests.helpers.oracles import tiny
from tests.helpers.random_spaces import search

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


@pytest.mark.slow
@settings(deadline=None)
@given(tables(low=-2.0, high=2.0))
def test_recombination_in_a_beam_as_wide_as_the_states_finds_the_optimum(constellation: Constellation) -> None:
    source = Source(1, (3,), max_length=5)
    decoder = BeamDecoder(size=4, recombine=True, stop="proven")  # a bigram has four states of each length
    agree(decode(decoder, constellation, source), constellation, source, decoder, 1)


def test_local_pruning_drops_what_is_too_far_below_its_best_sibling() -> None:
    constellation = table([[-1.0, -3.9, -4.1, -9.0]] * 4)
    (root,) = constellation.roots([Source(1, (3,))])
    space = SearchSpace(constellation, root)
    (children,) = space.expand([root], limit=4)
    assert [child.last for child in prune_local(space, children, 3.0)] == [0, 1]
    assert list(prune_local(space, children, 0.0)) == children
    assert list(prune_local(space, [], 3.0)) == []


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
    for width, kept in ((1.2, [longer, second]), (1.1, [longer])):
        finished = Finished(space, width)
        assert finished.prune([longer, first]) == [longer, first]
        assert finished.prune([longer, second]) == kept
    assert Finished(space, 1.1).prune([longer]) == [longer]


def test_finished_hypotheses_take_no_slot_where_proof_is_asked() -> None:
    constellation = table([[-4.0, -3.0, -1.0, -2.0]] * 4)
    (root,) = constellation.roots([Source(1, (3,))])
    (children,) = SearchSpace(constellation, root).expand([root], limit=4)
    beam, ended = set_finished_aside(children, 2)
    assert [node.last for node in beam] == [3, 1] and [node.last for node in ended] == [EOS]


def test_a_finished_hypothesis_that_open_ones_push_out_is_listed_where_it_ranks_higher() -> None:
    """ "3" and "4" take both slots from ``</s>``, and then have no good end."""
    steps = {0: {EOS: (-1.0, 9), 3: (-0.1, 1)}, 1: {3: (-0.1, 2), 4: (-0.1, 2)}, 2: {EOS: (-8.0, 9)}}
    for stop in ("best", "full"):
        result, _ = search(BeamDecoder(2, stop=stop), tiny(a=Lattice(steps)), 3)  # type: ignore[arg-type]
        assert [h.tokens for h in result.hypotheses] == [(), (3, 3), (3, 4)]


def test_without_pruning_of_what_is_finished_the_search_goes_on_to_the_length_limit() -> None:
    """A slot is never taken by ``</s>``, even where it is the best of all."""
    ends = np.full((5, 5), -1.0)
    ends[:, EOS] = -0.1
    result, space = search(BeamDecoder(2, stop="length"), tiny(3, a=Table(ends)), 9)
    assert [len(h.tokens) for h in result.hypotheses] == [0, 1, 1, 2, 2, 3, 3]
    assert space.expansions == 1 + 2 + 2 + 2


@pytest.mark.parametrize("make", [BeamDecoder, VanillaDecoder, SepBeamDecoder])
def test_a_search_to_the_length_limit_needs_one(make: type[Decoder]) -> None:
    with pytest.raises(UsageError, match=r"^stop length .* give --max-length N\.$"):
        search(make(stop="length"), tiny(a=Table(np.zeros((4, 4)))))  # type: ignore[call-arg]


def test_what_the_list_is_pruned_by_is_in_the_list() -> None:
    """ "3 3" has the best rank score, but never a slot: three others have better totals."""
    steps = {
        0: {EOS: (-2.0, 9), 3: (-0.1, 1), 4: (-0.1, 2)},
        1: {3: (-0.1, 3)},
        2: {4: (-0.1, 4)},
        3: {EOS: (-1.0, 9)},
        4: dict.fromkeys((0, 3, 4), (-0.1, 5)),
        5: {EOS: (-99.0, 9)},
    }
    options: dict[str, Any] = {"size": 3, "stop": "full", "alpha": 1.0, "normalize": "length"}
    unpruned, _ = search(BeamDecoder(**options), tiny(a=Lattice(steps)), 9)
    pruned, _ = search(BeamDecoder(**options, prune_final=0.5), tiny(a=Lattice(steps)), 9)
    assert [h.tokens for h in unpruned.hypotheses] == [(), (4, 4, 0), (4, 4, 3), (4, 4, 4)]
    assert [h.tokens for h in pruned.hypotheses] == [(3, 3)]


def test_where_a_stop_rule_can_lose_the_best_the_decoder_says_so() -> None:
    def said(nbest: int = 1, falls: bool = True, **options: Any) -> list[str | None]:
        every = [make(**options) for make in (BeamDecoder, VanillaDecoder, SepBeamDecoder)]
        found = [decoder.caveat(nbest, falls) for decoder in every]
        assert len(set(found)) == 1
        return found[:1]

    assert said() == said(alpha=1.0, stop="full") == said(alpha=1.0, stop="length") == [None]
    assert said(nbest=3, falls=False, beta=0.5, stop="proven") == [None]
    early = "with stop best the search can end too early, because {}."
    assert said(alpha=0.6) == said(beta=0.6) == [early.format("alpha or beta is not 0")]
    assert said(falls=False) == [early.format("totals can rise")]
    assert said(nbest=2, falls=False) == [early.format("totals can rise and more than one hypothesis is asked for")]
    (first,) = {BestFirstDecoder(alpha=0.5).caveat(1, True)}
    assert first == "it can end too early, because alpha or beta is not 0."
    assert BestFirstDecoder().caveat(1, True) is GreedyDecoder().caveat(5, False) is None


def test_the_command_says_once_what_a_search_can_lose(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in.ids").write_text("3\n4 4\n5\n")

    def noted(*options: str) -> list[str]:
        run = ["--predictors", "wc", "--vocab-size", "6", "--input-format", "ids", str(tmp_path / "in.ids")]
        assert main(["decode", *options, *run]) == 0
        lines = capsys.readouterr().err.splitlines()
        return [line for line in lines if line.startswith("Note: ") and "length limit" not in line]

    early = "with stop best the search can end too early, because {}; with stop length or stop proven it cannot."
    assert noted() == noted("--beam.alpha", "0.6", "--beam.stop", "length") == []
    assert noted("--beam.alpha", "0.6") == ["Note: beam: " + early.format("alpha or beta is not 0")]
    assert noted("--decoder", "vanilla", "--wc.weight", "-1") == ["Note: vanilla: " + early.format("totals can rise")]
    assert len(noted("--decoder", "bestfirst", "--nbest", "2", "--output-format", "nbest")) == 1


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
