"""Coverage is the mean over the predictors that a hypothesis consults: those whose weight is not None.

The oracle writes equation 14 of Wu et al. 2016 out for one hypothesis, from what each toy attends to.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from sgdec_decoders.astar import AStarDecoder
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.sample import SampleDecoder
from sgdec_decoders.sepbeam import SepBeamDecoder
from sgdec_decoders.vanilla import VanillaDecoder

from sgdec.cli.main import main
from sgdec.decoder import Decoder
from sgdec.errors import SgdecError, UsageError
from sgdec.protocol import Candidates, Scores, Source, State
from sgdec.ranking import Ranking
from sgdec.search.constellation import Constellation
from sgdec.search.node import Node
from sgdec.search.scheduler import Scheduler
from sgdec.search.space import SearchSpace
from sgdec.testing import BatchTable, Table, enumerate_space
from tests.helpers.oracles import opened, tiny
from tests.helpers.random_spaces import search
from tests.helpers.tiny_models import write_checkpoint

V = 5
SOURCE = Source(1, (3, 4, 3), max_length=3)


def table(seed: int) -> npt.NDArray[np.float64]:
    return np.random.default_rng(seed).normal(-1.0, 1.0, (V, V))


class Attentive(BatchTable):
    """Attends to the same source token after every prefix, more or less."""

    def __init__(self, seed: int, place: int, share: float = 0.8) -> None:
        super().__init__(table(seed))
        self.row = np.full(3, (1 - share) / 2)
        self.row[place] = share

    def attention(self, states: Sequence[State]) -> list[npt.NDArray[np.float64]]:
        return [self.row for _ in states]


class Untouchable(Attentive):
    """Must be asked nothing, whatever it is able to."""

    def predict_batch(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        raise AssertionError("not consulted")

    def consume_batch(self, states: Sequence[State], tokens: Sequence[int]) -> list[State]:
        raise AssertionError("not consulted")

    def attention(self, states: Sequence[State]) -> list[npt.NDArray[np.float64]]:
        raise AssertionError("not consulted")


def coverage_penalty(length: int, *consulted: Attentive) -> float:
    """For beta = 1, of predictors that attend to the same places after every prefix."""
    each = [sum(math.log(min(length * weight, 1.0)) for weight in predictor.row) for predictor in consulted]
    return sum(each) / len(each)


DECODERS = [
    BeamDecoder(size=9, beta=1.0, stop="full"),
    VanillaDecoder(size=9, beta=1.0, stop="full"),
    AStarDecoder(beta=1.0),
    SepBeamDecoder(size=9, beta=1.0, stop="full"),
]


@pytest.mark.parametrize("decoder", DECODERS)
def test_a_predictor_whose_weight_is_none_is_asked_nothing(decoder: Decoder) -> None:
    asked = Attentive(1, place=0)
    space = tiny(3, [1.0, None], a=asked, b=Untouchable(2, place=1))
    result, _ = search(decoder, space, nbest=3)
    for hypothesis in result.hypotheses:
        expected = hypothesis.score + coverage_penalty(len(hypothesis.tokens) + 1, asked)
        assert hypothesis.rank_score == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("decoder", DECODERS[:3])
@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_a_predictor_of_weight_0_is_consulted(decoder: Decoder, weight: float) -> None:
    first, second = Attentive(1, place=0), Attentive(2, place=1)
    result, _ = search(decoder, tiny(3, [1.0, weight, 1.0], a=first, b=second, c=Table(table(3))), nbest=3)
    for hypothesis in result.hypotheses:
        expected = hypothesis.score + coverage_penalty(len(hypothesis.tokens) + 1, first, second)
        assert hypothesis.rank_score == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("decoder", DECODERS[:3])
def test_a_model_of_weight_0_can_give_its_attention_alone(decoder: Decoder) -> None:
    guide = Attentive(2, place=1)
    result, _ = search(decoder, tiny(3, [1.0, 0.0], a=Table(table(1)), guide=guide), nbest=3)
    alone = {path.tokens: path.total for path in enumerate_space(Constellation.of({"a": Table(table(1))}), SOURCE)}
    for hypothesis in result.hypotheses:
        assert hypothesis.score == pytest.approx(alone[hypothesis.tokens], abs=1e-9)
        expected = hypothesis.score + coverage_penalty(len(hypothesis.tokens) + 1, guide)
        assert hypothesis.rank_score == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("batch_size", [1, 3])
def test_each_system_of_sepbeam_is_ranked_by_its_own_coverage(batch_size: int) -> None:
    systems = {"a": Attentive(1, 0), "b": Attentive(2, 1, share=0.9), "c": Attentive(3, 2, share=0.4)}
    decoder = SepBeamDecoder(size=1000, beta=1.0, stop="proven")
    ranks = []
    for predictor in systems.values():
        paths = enumerate_space(Constellation.of({"p": predictor}), SOURCE, ranking=decoder.ranking)
        ranks += [path.rank_score(decoder.ranking) for path in paths]
    scheduler = Scheduler(Constellation.of(systems), decoder, nbest=20, batch_size=batch_size)
    for outcome in scheduler.run([SOURCE, SOURCE, SOURCE]):
        found = outcome.result.hypotheses
        assert [h.rank_score for h in found] == pytest.approx(sorted(ranks, reverse=True)[:20], abs=1e-9)
        for hypothesis in found:
            (weights,) = set(hypothesis.weights)
            (system,) = (p for p, weight in zip(systems.values(), weights, strict=True) if weight is not None)
            expected = hypothesis.score + coverage_penalty(len(hypothesis.tokens) + 1, system)
            assert hypothesis.rank_score == pytest.approx(expected, abs=1e-9)


def test_coverage_follows_the_weights_from_token_to_token() -> None:
    """One predictor drops out after a token, and one comes in, whose coverage begins there."""
    first, second = Attentive(1, place=0), Attentive(2, place=1)
    space = opened(tiny(5, [1.0, None], a=first, b=second), ranking=Ranking(beta=1.0))

    def child(node: Node, *weights: float | None) -> Node:
        return next(c for c in space.expand([node.with_weights(weights)], limit=V)[0] if c.last == 3)

    def covered(node: Node) -> list[list[float] | None]:
        return [None if row is None else row.tolist() for row in node.coverage]

    one = child(space.root, 1.0, None)
    both, other = child(one, 1.0, 1.0), child(one, None, 1.0)
    assert covered(one) == [first.row.tolist(), None]
    assert covered(both) == [(2 * first.row).tolist(), second.row.tolist()]
    assert covered(other) == [None, second.row.tolist()]
    keys = space.keys([both, other, child(one, 1.0, 1.0)])
    assert keys[0] == keys[2] != keys[1]


def test_sampling_knows_the_coverage_of_what_is_consulted() -> None:
    asked = Attentive(1, place=0)
    result, _ = search(SampleDecoder(samples=9), tiny(3, [1.0, None], a=asked, b=Untouchable(2, 1)), nbest=9)
    assert result.hypotheses


# Where nobody remains.


def test_a_system_of_sepbeam_without_attention_is_refused_by_name() -> None:
    space = opened(tiny(3, a=Attentive(1, 0), silent=Table(table(2))), ranking=Ranking(beta=0.5))
    with pytest.raises(UsageError, match="needs attention in each system, and 'silent' has none"):
        SepBeamDecoder(beta=0.5).decode(space)
    assert space.expansions == 0
    SepBeamDecoder(beta=0.5).decode(opened(tiny(3, [1.0, 0.0], a=Attentive(1, 0), silent=Table(table(2)))))


def test_a_node_that_consults_no_attention_is_refused() -> None:
    space = opened(tiny(3, a=Attentive(1, 0), silent=Table(table(2))), ranking=Ranking(beta=0.5))
    with pytest.raises(UsageError, match="none of silent has it"):
        space.expand([space.root.with_weights((None, 1.0))], limit=1)


def test_attention_that_is_not_consulted_does_not_count() -> None:
    constellation = Constellation.of({"a": Table(table(1)), "b": Attentive(2, 0)}, weights=[1.0, None])
    (root,) = constellation.roots([SOURCE])
    with pytest.raises(UsageError, match=r"beta = 0\.5.*none of a has it"):
        SearchSpace(constellation, root, ranking=Ranking(beta=0.5))


def test_a_ranking_without_coverage_is_no_number() -> None:
    for coverage in ((), (None,)):
        with pytest.raises(ValueError, match="no attention"):
            Ranking(beta=0.5).score(-1.0, 2, coverage)


@pytest.mark.parametrize("decoder", DECODERS[:2])
@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_attention_that_is_no_number_is_an_error_of_its_predictor(decoder: Decoder, wrong: float) -> None:
    broken = Attentive(1, 0)
    broken.row = np.array([0.5, wrong, 0.5])
    with pytest.raises(SgdecError, match="predictor 'mine' gave attention that is NaN or infinite"):
        search(decoder, tiny(3, mine=broken))


def test_on_the_command_line_it_is_a_wrong_call(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = write_checkpoint(tmp_path / "model")
    (tmp_path / "in.ids").write_text("3 4\n")
    run = ["decode", "--predictors", "nmt,wc", "--nmt.model", str(model), "--decoder", "sepbeam"]
    run += ["--sepbeam.beta", "0.3", "--input-format", "ids", str(tmp_path / "in.ids")]
    assert main(run) == 2
    error = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("Note: ")]
    assert error == [
        "Error: sepbeam: a coverage penalty (beta = 0.3) needs attention in each system, and 'wc' has none: set beta "
        "to 0, or the weight of 'wc', which excludes it."
    ]
    assert main([*run, "--wc.weight", "0"]) == 0
