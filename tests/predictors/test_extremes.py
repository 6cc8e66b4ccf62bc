"""The promise: what a predictor says of its highest score holds for the most extreme file, option and model.

Softmaxes are given logits that no trained model has, distributions parameters at the ends of what is allowed.
"""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from sgdec_predictors.nmt import NmtPredictor
from sgdec_predictors.nplm import NplmPredictor
from sgdec_predictors.rnnlm import RnnlmPredictor

from sgdec import EOS, UNK, Context, Source
from sgdec.io.arpa import LN_10
from sgdec.lifting import lift
from sgdec.models.active import OutputLayer
from sgdec.models.clusters import ClusterProjection, Clusters
from sgdec.plugins.host import Host
from sgdec.protocol import BatchPredictor, Predictor
from sgdec.testing import PredictorContract
from sgdec.testing.reading import read_row
from tests.helpers.contracts import PluginContract
from tests.helpers.lattice_files import write_automaton

HOST = Host(autoload=False)
LARGE = 3e38
LOGITS = torch.tensor([
    [0.0] * 6,
    [LARGE, 0.0, 0.0, 0.0, 0.0, 0.0],
    [LARGE, -LARGE, 0.0, 0.0, 0.0, 0.0],
    [-LARGE] * 6,
    [1e4, 1e4 - 1e-3, 0.0, -1e4, 1.0, 2.0],
    [16777216.0, 16777215.0, 16777217.0, 0.0, 0.0, 1.0],
    [1e-40, -1e-40, 0.0, 1e-38, 0.0, 0.0],
    [20.0, 3.0, 3.0, 3.0, 3.0, 3.0],
], dtype=torch.float64)  # fmt: skip
"""``[8, 6]``"""
PRECISIONS = [torch.float64, torch.float32, torch.bfloat16]


def predictor_of(cls: type[Any], logits: torch.Tensor) -> Any:
    """One without a model, whose projection gives these logits, whatever the states."""
    made = cls.__new__(cls)
    made._model = SimpleNamespace(project=lambda output: logits, output=lambda windows: logits, kernels=None)
    made._pool = SimpleNamespace(outputs=lambda trails: logits)
    made._device, made._columns = "cpu", None
    return made


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
@pytest.mark.parametrize("cls", [NmtPredictor, RnnlmPredictor, NplmPredictor])
def test_no_softmax_is_above_0_by_rounding(cls: type[Any], dtype: torch.dtype) -> None:
    logits = LOGITS.to(dtype)
    predictor = predictor_of(cls, logits)
    states = [SimpleNamespace(trail=None, sentence=None)] * 8 if cls is NmtPredictor else [(1, 2)] * 8
    scores = predictor.predict_batch(states).values
    assert predictor.max_score == 0.0
    assert (scores <= 0.0).all() and not scores.isnan().any()


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
@pytest.mark.parametrize("shared", [False, True])
def test_no_softmax_over_clusters_is_above_0_by_rounding(dtype: torch.dtype, shared: bool) -> None:
    """Two clusters of common and other tokens; the context picks one, the bias makes the logits."""
    tokens, starts = torch.tensor([EOS, 3, 4, EOS, 4, 5]), torch.tensor([0, 3, 6])
    centroids = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    clusters = Clusters(centroids, starts, tokens, torch.ones(6).to(torch.uint8), torch.tensor([30, 1]), 6)
    for bias in LOGITS:
        layer = OutputLayer(torch.zeros(6, 2, dtype=dtype), bias.to(dtype))
        scores, _ = ClusterProjection(clusters, 1, layer, shared=shared)(centroids.to(dtype))
        assert (scores <= 0.0).all() and not scores.isnan().any()


@pytest.mark.slow
@pytest.mark.parametrize("point", [False, True])
@pytest.mark.parametrize("offset", [0, 7, -1, -60])
@pytest.mark.parametrize("logit", [-1e4, -5.0, 0.0, 7.0, 1e4])
@pytest.mark.parametrize("r", [0.0, 0.5, 40.0, 1e6])
def test_no_length_has_a_log_probability_above_0(point: bool, offset: int, logit: float, r: float) -> None:
    weights = (0.0,) * 10 + (r, logit)
    predictor = HOST.load("predictor", "length")(weights, point=point, offset=offset)
    (state,) = predictor.initialize_batch([Source(1, (3, 4))])
    for n in range(301):
        (row,) = predictor.predict_batch([state]).rows
        (state,) = predictor.consume_batch([state], [7])
        if n not in (*range(12), 59, 60, 61, 300):
            continue
        possible = [score for score in (row.get(EOS), row.get(7)) if not math.isnan(score)]
        assert max(possible) <= predictor.max_score


@pytest.mark.parametrize("rate", [1e-300, 0.3, 1.0, 1e6, 1e300])
def test_no_count_of_unknown_tokens_has_a_log_probability_above_0(rate: float) -> None:
    predictor = HOST.load("predictor", "unkc")(lambdas=(rate,))
    (state,) = predictor.initialize_batch([Source(1, (3,))])
    for _ in range(5_001):
        assert predictor.predict_batch([state]).rows[0].get(EOS) <= predictor.max_score
        (state,) = predictor.consume_batch([state], [UNK])


def test_given_lengths_may_gain(tmp_path: Path) -> None:
    (tmp_path / "lengths").write_text("2:-1.5 3:0.75\n1:2.5\n0:-3\n")
    predictor = HOST.load("predictor", "extlength")(str(tmp_path / "lengths"))
    assert predictor.max_score == 2.5
    (tmp_path / "lengths").write_text("2:-1.5\n")
    assert HOST.load("predictor", "extlength")(str(tmp_path / "lengths")).max_score == 0.0  # other tokens


# What is read from files, at the extremes of the file.


@pytest.mark.slow
class TestNgramWhoseBackOffsGain(PredictorContract):
    """After 7, another 7 gains, and after 7 7 a 5 does."""

    vocab_size = 8
    extremes = ((7,) * 12, (7, 7, 5), (7, 7, 5, 7, 7, 5), (5, 5, 5))

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _prepare(cls, tmp_path_factory: pytest.TempPathFactory) -> None:
        cls.path = tmp_path_factory.mktemp("ngram") / "lm.arpa"
        cls.path.write_text(
            "\\data\\\nngram 1=5\nngram 2=2\nngram 3=1\n\n\\1-grams:\n-99 <s> 0.5\n-1 </s>\n-1.2 7 2\n"
            "-0.5 5\n-2 <unk>\n\n\\2-grams:\n-1 7 </s>\n-0.4 7 7 0.25\n\n\\3-grams:\n-0.3 7 7 </s>\n\n\\end\\\n"
        )

    def make(self) -> BatchPredictor:
        made: BatchPredictor = HOST.load("predictor", "ngram")(str(self.path), context=Context(vocab_size=8))
        return made

    def test_its_highest_score_is_reached(self) -> None:
        predictor = self.make()
        (state,) = predictor.consume_batch(predictor.initialize_batch([Source(1, (3,))]), [7])
        (state,) = predictor.consume_batch([state], [7])
        row = read_row(predictor.predict_batch([state]), 0, 8)
        assert predictor.max_score == row.max() == row[5] == pytest.approx((0.25 + 2 - 0.5) * LN_10, abs=1e-5)


@pytest.mark.slow
class TestFstThatGains(PluginContract):
    """Costs below 0, a cycle that gains, and a way that leads nowhere."""

    plugin = "fst"
    extremes = ((3, 5, 4), (4, 6), (3, 4, 4, 4, 4, 5), (3, 6))

    def prepare(self, folder: Path) -> dict[str, Any]:
        for number, arcs in enumerate([
            [(0, 3, -0.5, 1), (0, 4, 2.0, 2), (1, 5, -3.0, 2), (1, 6, -9.0, 4), (2, 4, 0.5, 3), (2, EOS, -1.0, 3)],
            [(0, 4, -0.25, 1), (1, 6, 1.5, 2), (1, EOS, -4.0, 3), (2, 3, -2.0, 3)],
            [(0, 3, 1.0, 1), (1, 4, -0.5, 1), (1, 5, 0.25, 3), (1, 6, -7.0, 4)],
        ], start=1):  # fmt: skip
            write_automaton(f"{folder}/{number}.fst", arcs, {3: -0.5})
        return {"path": f"{folder}/{{id}}.fst"}

    def test_a_cycle_that_gains_has_no_bound(self) -> None:
        predictor = lift(self.make())
        (state,) = predictor.initialize_batch([Source(3, (3,))])
        assert predictor.best_remaining([state]) == [math.inf]  # type: ignore[attr-defined]


def all_predictors() -> list[type[Predictor] | type[BatchPredictor]]:
    return [HOST.load("predictor", entry.name) for entry in HOST.names("predictor")]


FORBIDDING = {"maxlength", "minlength", "norepeat", "phrases", "grammar", "canonical", "regex", "wordlist"}


def test_no_bundled_predictor_claims_a_highest_score_that_is_not_tried_here() -> None:
    """Wrappers, and those of others' files, are in `tests.predictors.test_max_score`; the rest score 0 or forbid."""
    claims = {cls.__module__.rpartition(".")[2] for cls in all_predictors() if cls.max_score < math.inf}
    neural = {"nmt", "hf", "clusternmt", "shortlist", "rnnlm", "nplm"}
    assert claims == {*neural, "length", "unkc", "wc", "bow", "forced", *FORBIDDING}
