"""The recurrent language model: the step loop is `torch.nn.LSTM` over the whole sequence, dropout leaves recurrent
connections alone, and the predictor scores what the model says, in any batch, as a distribution.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.dfs import DfsDecoder
from sgdec_predictors.rnnlm import RnnlmPredictor
from torch import nn

from sgdec.checkpoints.layout import load_vocabularies
from sgdec.checkpoints.loading import load_language_model, load_model
from sgdec.cli.main import main
from sgdec.context import BOS, Context
from sgdec.errors import SgdecError, UsageError
from sgdec.models.base import LanguageModel, ModelContext
from sgdec.models.rnnlm import RNNLM
from sgdec.plugins.host import Host
from sgdec.protocol import BatchPredictor, Source
from sgdec.search.constellation import Constellation
from sgdec.search.space import SearchSpace
from sgdec.testing import PredictorContract
from sgdec.training.quantising import quantise_checkpoint
from tests.helpers.lm_case import write_lm
from tests.helpers.tiny_models import write_checkpoint

pytestmark = pytest.mark.slow

CONTEXT = ModelContext(source_vocab_size=0, target_vocab_size=23)
TARGETS = torch.tensor([[1, 9, 8, 7, 22], [1, 3, 3, 2, 2], [1, 5, 4, 3, 2]])
OPTIONS = {"width": 8, "layers": 2, "dropout": 0.3}


def make(dtype: torch.dtype = torch.float64, **options: Any) -> RNNLM:
    torch.manual_seed(7)
    return RNNLM(CONTEXT, **{"width": 8, "init": 0.5, **options}).to(dtype).eval()


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_lm(tmp_path_factory.mktemp("rnnlm"), "rnnlm", OPTIONS)


@pytest.mark.parametrize("options", [{}, {"layers": 1}, {"layers": 3}, {"tied": True}], ids=str)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)], ids=str)
def test_the_step_loop_is_an_lstm_over_the_whole_sequence(
    options: dict[str, Any], dtype: torch.dtype, tolerance: float
) -> None:
    model = make(dtype, **options)
    lstm = nn.LSTM(8, 8, options.get("layers", 2), batch_first=True, dtype=dtype)
    lstm.load_state_dict(model.lstm.state_dict())
    expected = lstm(model.embedding(TARGETS))[0]
    for outputs in (LanguageModel.forward(model, TARGETS), model(TARGETS)):
        torch.testing.assert_close(outputs, expected, rtol=0, atol=tolerance)


def test_dropout_leaves_recurrent_connections_alone() -> None:
    """Section 3.2: with all inputs dropped the state still moves on, from itself alone, the same in every run."""
    model = make(layers=1, dropout=0.9).train()
    state = tuple(torch.randn(2, 8, dtype=torch.float64) for _ in range(2))
    torch.manual_seed(3)
    kept = [model.step(state, torch.tensor([5, 6]))[0] for _ in range(200)]
    without_input = make(layers=1)
    without_input.embedding.weight.data.zero_()
    (expected_hidden, expected_cell), _ = without_input.step(state, torch.tensor([5, 6]))
    dropped = [
        all(torch.equal(a, b) for a, b in zip(new, (expected_hidden, expected_cell), strict=True)) for new in kept
    ]
    assert any(dropped), "0.9 ^ 16 of the steps lose all their inputs, and nothing of their state"


@pytest.mark.parametrize("layers", [1, 3])
def test_training_drops_what_goes_up_in_each_layer(layers: int) -> None:
    """L + 1 masks: one for each layer's input, one for the softmax's."""
    model = make(layers=layers, dropout=0.5).train()
    calls: list[int] = []
    hook = model.dropout.register_forward_hook(lambda module, given, result: calls.append(given[0].size(-1)))
    LanguageModel.forward(model, TARGETS[:, :1])
    hook.remove()
    assert len(calls) == layers + 1
    assert model.lstm.dropout == (0.5 if layers > 1 else 0.0)


def test_presets_are_the_sizes_of_the_paper() -> None:
    assert {name: (p["layers"], p["width"], p["dropout"]) for name, p in RNNLM.presets.items()} == {
        "small": (2, 200, 0.0),
        "medium": (2, 650, 0.5),
        "large": (2, 1500, 0.65),
    }


def test_parameters_start_uniformly_in_the_range() -> None:
    values = torch.cat([parameter.detach().flatten() for parameter in make(width=40, init=0.05).parameters()])
    assert values.abs().max() <= 0.05
    assert float(values.var()) == pytest.approx(0.05**2 / 3, rel=0.05)


def test_a_frozen_model_predicts_the_same(checkpoint: Path) -> None:
    frozen, _ = load_language_model(checkpoint)
    plain, _ = load_language_model(checkpoint, precision="fp64")
    prefixes = torch.tensor([[1, 3, 4, 5], [1, 6, 3, 3]])
    found = frozen.project(LanguageModel.forward(frozen, prefixes))
    torch.testing.assert_close(found.double(), plain.project(plain(prefixes)), rtol=0, atol=1e-5)


def walk(predictor: BatchPredictor, tokens: tuple[int, ...]) -> Any:
    (state,) = predictor.initialize_batch([Source(1, ())])
    for token in tokens:
        (state,) = predictor.consume_batch([state], [token])
    return state


PREFIXES = [(), (3,), (3, 4, 5), (6, 6), (0, 5, 4, 3, 4)]


@pytest.mark.parametrize(("precision", "tolerance"), [("fp64", 1e-12), ("fp32", 1e-5), ("bf16", 0.2)])
def test_scores_are_the_model_s_log_probabilities(checkpoint: Path, precision: str, tolerance: float) -> None:
    predictor = RnnlmPredictor(str(checkpoint), Context(precision=precision))
    model, _ = load_language_model(checkpoint, precision="fp64")
    for prefix in PREFIXES:
        logits = model.project(model(torch.tensor([[BOS, *prefix]])))[0, -1]
        values = predictor.predict_batch([walk(predictor, prefix)]).values
        assert isinstance(values, torch.Tensor) and values.dtype in (torch.float32, torch.float64)
        torch.testing.assert_close(values[0].double(), torch.log_softmax(logits, -1), rtol=0, atol=tolerance)
        assert float(values.double().exp().sum()) == pytest.approx(1, abs=1e-4)


def test_a_state_keeps_one_slot_and_gives_it_back(checkpoint: Path) -> None:
    predictor = RnnlmPredictor(str(checkpoint))
    states = predictor.initialize_batch([Source(n, ()) for n in range(1, 40)])
    assert predictor._pool.used == 1, "all sentences begin in the same state"
    states = predictor.consume_batch(states, [3] * 39)
    assert predictor._pool.used == 40
    del states
    assert predictor._pool.used == 1


def test_an_exact_search_needs_no_more_than_that_scores_never_rise(checkpoint: Path) -> None:
    constellation = Constellation.of({"rnnlm": RnnlmPredictor(str(checkpoint))}, vocab_size=7)
    roots = [constellation.roots([Source(1, (), max_length=3)])[0] for _ in range(2)]
    exact = DfsDecoder().decode(SearchSpace(constellation, roots[0]))
    wide = BeamDecoder(size=600, stop="full").decode(SearchSpace(constellation, roots[1]))
    assert exact.proven and exact.hypotheses[0].tokens == wide.hypotheses[0].tokens


def test_it_brings_the_target_vocabulary_and_no_source(checkpoint: Path) -> None:
    source, target = RnnlmPredictor.read_vocabularies(str(checkpoint))
    assert source is None and target is not None
    assert target.size == RnnlmPredictor(str(checkpoint)).vocabularies.target.size  # type: ignore[union-attr]


def test_models_with_and_without_a_source_are_not_mistaken_for_each_other(checkpoint: Path, tmp_path: Path) -> None:
    gnmt = write_checkpoint(tmp_path / "gnmt")
    with pytest.raises(SgdecError, match=r"this is a language model, expected a translation model\. Give another"):
        load_model(checkpoint)
    with pytest.raises(SgdecError, match=r"gnmt: this is a translation model, expected a language model\. Give"):
        RnnlmPredictor(str(gnmt))
    with pytest.raises(UsageError, match=r"a language model cannot be loaded in 8 bits\. Give --precision fp32\."):
        RnnlmPredictor(str(checkpoint), Context(precision="int8"))
    with pytest.raises(UsageError, match=r"this is a language model; only translation models can be quantised\."):
        quantise_checkpoint(checkpoint, tmp_path / "int8")
    with pytest.raises(SgdecError, match=r"no such folder\. Expected a checkpoint"):
        load_vocabularies(tmp_path / "nowhere")


def test_decoding_with_a_translation_model_is_one_command(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gnmt = write_checkpoint(tmp_path / "gnmt")
    text = tmp_path / "in.txt"
    text.write_text("ab\nc a\nbc ab\n")
    command = ["decode", "--predictors", "nmt,rnnlm", "--nmt.model", str(gnmt), "--rnnlm.model", str(checkpoint)]
    outputs = []
    for extra in (["--batch-size", "1"], ["--batch-size", "8", "--deterministic"]):
        assert main([*command, "--rnnlm.weight", "0.4", "--beam.size", "3", *extra, str(text)]) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1] and outputs[0].count("\n") == 3


def test_another_vocabulary_is_refused(checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gnmt = write_checkpoint(tmp_path / "gnmt", target="xyzv")
    command = ["decode", "--predictors", "nmt,rnnlm", "--nmt.model", str(gnmt), "--rnnlm.model", str(checkpoint)]
    assert main([*command, str(tmp_path / "in.txt")]) == 2
    assert "have different target vocabularies" in capsys.readouterr().err


class TestRnnlm(PredictorContract):
    plugin = "rnnlm"
    walk_length = 4

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _prepare(cls, checkpoint: Path) -> None:
        cls.model = str(checkpoint)
        target = load_vocabularies(checkpoint).target
        assert target is not None
        cls.vocab_size = target.size

    def make(self) -> BatchPredictor:
        predictor: BatchPredictor = Host(autoload=False).load("predictor", "rnnlm")(self.model)
        return predictor
