"""Quantised inference: what the constraints promise, what 8 bits lose, and a checkpoint there and back."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from sgdec.checkpoints import files
from sgdec.checkpoints.loading import load_model
from sgdec.cli.main import main
from sgdec.errors import SgdecError, UsageError
from sgdec.models import kernels
from sgdec.models.base import ModelContext, Seq2Seq
from sgdec.models.gnmt import GAMMA, GNMT
from sgdec.models.kernels import Kernels, RowKernels, int8_by_row, packed_linear, packs
from sgdec.models.quantisation import Int8Kernels, quantise
from sgdec.training.preparing import prepare
from tests.helpers.tiny_models import write_checkpoint
from tests.helpers.training_case import make_config

pytestmark = pytest.mark.slow

CONTEXT = ModelContext(source_vocab_size=23, target_vocab_size=29)
SOURCES = torch.tensor([[5, 6, 7, 8, 9, 3], [10, 11, 2, 2, 2, 2], [22, 3, 4, 5, 2, 2]]), torch.tensor([6, 2, 4])
TARGETS = torch.tensor([[1, 9, 8, 7, 28], [1, 3, 3, 2, 2], [1, 5, 4, 3, 2]])
SHAPES: list[dict[str, Any]] = [
    {},
    {"layers": 4},
    {"encoder_layers": 1, "decoder_layers": 3, "normed": True},
    {"encoder_layers": 4, "decoder_layers": 2, "bridge": True, "embedding": 16},
    {"layers": 3, "constrained": True, "tied": "target"},
]


def make(dtype: torch.dtype = torch.float32, delta: float | None = None, **options: Any) -> GNMT:
    torch.manual_seed(7)
    model = GNMT(CONTEXT, **{"width": 32, "init": 0.4, **options}).to(dtype).eval()
    if model.constrained:
        model.anneal(math.inf, 1)
        if delta is not None:
            model.delta = delta
    return model


def log_probabilities(model: Seq2Seq, forward: Callable[..., Tensor] | None = None) -> Tensor:
    """[B, T, V]"""
    with torch.inference_mode():
        return torch.log_softmax(model.project((forward or model)(*SOURCES, TARGETS)), -1)


def int8(model: GNMT, options: dict[str, Any]) -> GNMT:
    """The model's twin in 8 bits, whose other weights are nowhere."""
    done = quantise(model, lambda frozen: log_probabilities(frozen, lambda *batch: Seq2Seq.forward(model, *batch)))
    with torch.device("meta"):
        twin = GNMT(CONTEXT, **{"width": 32, **options})
    twin.load_state_dict(done.rest, strict=False, assign=True)
    twin.freeze(Int8Kernels(done.tensors, done.bounds, "here"))
    return twin.eval()


@pytest.mark.parametrize("options", SHAPES, ids=str)
def test_a_frozen_model_predicts_what_it_did(options: dict[str, Any]) -> None:
    model, frozen = make(**options), make(**options)
    frozen.freeze(Kernels())
    for before, after in zip(model.encode(*SOURCES), frozen.encode(*SOURCES), strict=True):
        torch.testing.assert_close(after, before, rtol=0, atol=1e-5)
    loop = log_probabilities(frozen, lambda *batch: Seq2Seq.forward(frozen, *batch))
    torch.testing.assert_close(loop, log_probabilities(model), rtol=0, atol=1e-5)
    torch.testing.assert_close(log_probabilities(frozen), log_probabilities(model), rtol=0, atol=1e-5)


def test_whoever_trains_a_frozen_model_is_told() -> None:
    model = make()
    model.freeze(Kernels())
    with pytest.raises(RuntimeError, match="does not require grad"):
        model(*SOURCES, TARGETS).sum().backward()


@pytest.mark.parametrize("options", SHAPES, ids=str)
def test_int8_loses_little(options: dict[str, Any]) -> None:
    """Mean loss of log-probability over all tokens of all rows: 8 bits are 0.4 % of a range."""
    expected = log_probabilities(make(**options))
    found = log_probabilities(int8(make(**options), options))
    assert not torch.equal(found, expected)
    assert (found - expected).abs().mean() < 0.02
    assert abs((expected.exp() * (expected - found)).sum(-1).mean()) < 0.002, "KL divergence"


@pytest.mark.parametrize("options", SHAPES, ids=str)
def test_an_int8_row_is_the_same_bit_for_bit_whatever_the_other_rows(options: dict[str, Any]) -> None:
    model = int8(make(**options), options)
    with torch.inference_mode():
        memory = model.encode(*SOURCES)
        alone = [model.encode(SOURCES[0][n : n + 1], SOURCES[1][n : n + 1]) for n in range(3)]
        for part, *parts in zip(*(given[:4] for given in (memory, *alone)), strict=True):
            assert torch.equal(part, torch.cat(parts))
        rows = torch.tensor([0, 1, 2] * 7)
        many = memory.at(rows)
        state, few = model.start(many), model.start(memory)
        for step in range(4):
            tokens = torch.arange(21) + step
            state, output, attention = model.step(many, state, tokens)
            scores = model.project(output)
            few, some, weights = model.step(memory, few, tokens[:3])
            single = model.step(alone[1], tuple(part[1:2] for part in few), tokens[1:2])
            assert torch.equal(some, output[:3]) and torch.equal(weights, attention[:3])
            assert torch.equal(model.project(some), scores[:3]), step
            assert single[1].shape == (1, 32)
            again = model.step(many.at(slice(4, 5)), tuple(p[4:5] for p in state), tokens[4:5])
            both = model.step(many, state, tokens[4:5].expand(21))
            assert torch.equal(again[1][0], both[1][4])


@pytest.mark.parametrize("delta", [0.05, 0.3])
@pytest.mark.parametrize("way", ["all steps", "step loop", "frozen"])
def test_cells_and_sums_stay_within_delta_at_every_step(
    delta: float, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equation 10, where without the constraint they would not."""
    seen: dict[str, list[Tensor]] = {"cell": [], "sum": []}
    from sgdec.models import gnmt, lstm

    def watch_cell(gates: Tensor, cell: Tensor, bound: float | None) -> tuple[Tensor, Tensor]:
        hidden, cell = original_cell(gates, cell, bound)
        seen["cell"].append(cell)
        return hidden, cell

    def watch_sum(model: GNMT, x: Tensor) -> Tensor:
        clipped = original_clip(model, x)
        seen["sum"].append(clipped)
        return clipped

    original_cell, original_clip = lstm.lstm_cell, GNMT.clip
    monkeypatch.setattr(lstm, "lstm_cell", watch_cell)
    monkeypatch.setattr(gnmt, "lstm_cell", watch_cell)
    monkeypatch.setattr(GNMT, "clip", watch_sum)
    for constrained in (True, False):
        model = make(delta=delta, layers=4, constrained=True) if constrained else make(layers=4)
        if not constrained:
            model.delta = math.inf  # the same code, no clipping
        if way == "frozen":
            model.freeze(Kernels())
        forward = model if way == "all steps" else lambda *batch, model=model: Seq2Seq.forward(model, *batch)
        log_probabilities(model, forward)
        for what, tensors in seen.items():
            assert len(tensors) >= 4
            widest = max(float(tensor.abs().max()) for tensor in tensors)
            assert widest == pytest.approx(delta) if constrained else widest > delta, what
            tensors.clear()


def test_logits_stay_within_gamma() -> None:
    """Equation 13, for a model with the constraints only."""
    for constrained in (True, False):
        model = make(constrained=constrained)
        model.softmax.weight.data *= 1000
        widest = float(model.project(model(*SOURCES, TARGETS)).detach().abs().max())
        assert widest == GAMMA if constrained else widest > GAMMA


@pytest.mark.parametrize("options", [{}, {"layers": 4}, {"layers": 3, "bridge": True}, {"encoder_layers": 1}])
def test_a_wide_delta_changes_nothing(options: dict[str, Any]) -> None:
    """The own steps of the constrained model are those of PyTorch's LSTM, gradients included."""
    models = [make(torch.float64, **options), make(torch.float64, delta=100.0, constrained=True, **options)]
    results, gradients = [], []
    for model in models:
        results.append(model.project(model(*SOURCES, TARGETS)))
        results[-1].logsumexp(-1).sum().backward()  # type: ignore[no-untyped-call]
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
    torch.testing.assert_close(*results)
    torch.testing.assert_close(*gradients)


def test_all_steps_at_once_equal_the_step_loop_when_clipped() -> None:
    model = make(torch.float64, delta=0.2, constrained=True, layers=4, bridge=True)
    loop = log_probabilities(model, lambda *batch: Seq2Seq.forward(model, *batch))
    torch.testing.assert_close(log_probabilities(model), loop)
    alone = model(SOURCES[0][1:2, :2], SOURCES[1][1:2], TARGETS[1:2])
    torch.testing.assert_close(model(*SOURCES, TARGETS)[1:2], alone)


def test_bf16_autocast_trains_a_constrained_model() -> None:
    model = make(constrained=True, layers=3).train()
    with torch.autocast("cpu", torch.bfloat16):
        loss = model.project(model(*SOURCES, TARGETS)).float().logsumexp(-1).sum()
    loss.backward()  # type: ignore[no-untyped-call]
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters())


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two steps of a constrained model, with checkpoints."""
    folder = tmp_path_factory.mktemp("run")
    options = {"width": 32, "layers": 3, "tied": "target", "constrained": True, "init": 0.3}
    prepare(make_config(folder, max_steps=4, options=options), quiet=True).run()
    return folder / "run"


@pytest.fixture(scope="module")
def quantised(run: Path) -> Path:
    """Its twin in 8 bits, made by the command."""
    assert main(["quantize", str(run), "--output", str(run.parent / "int8")]) == 0
    return run.parent / "int8"


def test_a_quantised_checkpoint_there_and_back(run: Path, quantised: Path) -> None:
    model, vocabularies = load_model(quantised, precision="int8")
    original, same = load_model(run)
    assert isinstance(model, GNMT) and isinstance(original, GNMT)
    assert vocabularies.target is not None and same.target is not None
    assert vocabularies.target.fingerprint == same.target.fingerprint
    assert model.delta == original.delta == 1.0
    batch = torch.tensor([[5, 6, 7]]), torch.tensor([3]), torch.tensor([[1, 9, 8]])
    with torch.inference_mode():
        scores = [torch.log_softmax(m.project(m(*batch)), -1) for m in (model, original)]
    assert 0 < (scores[0] - scores[1]).abs().mean() < 0.02
    tensors = load_file(quantised / "model.safetensors")
    assert {tensor.dtype for name, tensor in tensors.items() if name.endswith(".int8")} == {torch.int8}
    assert not any("weight_" in name for name in tensors), "the original's weights are left out"
    sizes = [(folder / "model.safetensors").stat().st_size for folder in (quantised, run / "best")]
    assert sizes[0] < sizes[1] / 2


def test_bounds_follow_from_the_constraints(quantised: Path) -> None:
    bounds = json.loads((quantised / "config.json").read_text())["quantised"]["bounds"]
    table = load_file(quantised / "model.safetensors")["target_embedding.weight"]
    assert bounds["decoder.0.input"] == pytest.approx(float(table.abs().max()))
    assert bounds["decoder.1"] == 1.0, "the context is a residual sum: delta"
    assert bounds["decoder.0.hidden"] == pytest.approx(math.tanh(1.0))
    assert bounds["softmax"] == 1.0


def test_ranges_of_a_free_model_are_measured_on_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = make_config(tmp_path, max_steps=2, options={"width": 16, "layers": 3, "init": 0.3})
    prepare(config, quiet=True).run()
    command = ["quantize", config.output, "--output", str(tmp_path / "int8")]
    assert main(command) == 2
    assert "the inputs of decoder.1, decoder.2, softmax have no known bound" in capsys.readouterr().err
    assert main([*command, "--calibrate", *config.valid]) == 0
    bounds = json.loads((tmp_path / "int8" / "config.json").read_text())["quantised"]["bounds"]
    assert 0 < bounds["softmax"] < 2.0, "two LSTM outputs, added"
    load_model(tmp_path / "int8", precision="int8")


def test_decoding_in_int8(quantised: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "in.txt"
    text.write_text("one two\nthree\nfour five one\n")
    command = ["decode", "--predictors", "nmt", "--nmt.model", str(quantised), "--precision", "int8"]
    outputs = []
    for batch in ("1", "3"):
        options = ["--batch-size", batch, "--output-format", "jsonl"]
        assert main([*command, *options, str(text)]) == 0
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        outputs.append([(row["hypotheses"][0]["tokens"], row["hypotheses"][0]["score"]) for row in rows])
    assert [tokens for tokens, _ in outputs[0]] == [tokens for tokens, _ in outputs[1]]
    assert [score for _, score in outputs[0]] == pytest.approx([score for _, score in outputs[1]], abs=1e-4)


def fails(error: type[Exception], match: str, path: Path, **options: Any) -> None:
    with pytest.raises(error, match=match) as caught:
        load_model(path, **options)
    assert "\n" not in str(caught.value)


def test_precision_and_checkpoint_have_to_fit(run: Path, quantised: Path, tmp_path: Path) -> None:
    fails(SgdecError, "needs a quantised model, which this is not. .*sgdec quantize", run, precision="int8")
    fails(SgdecError, "this model is quantised. Give --precision int8", quantised)
    fails(SgdecError, "this model is quantised", quantised, precision="fp64")
    fails(UsageError, "int8 runs on a CPU only", quantised, precision="int8", device="cuda")
    fails(SgdecError, "no such folder", tmp_path / "nothing", precision="int8")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("decoder.1.int8"), "tensor decoder.1.int8 is missing"),
        (lambda t: t.pop("key.weight"), "tensor key.weight is missing"),
        (lambda t: t.update({"softmax.scale": torch.zeros(3)}), r"tensor softmax.scale is 3 torch.float32, expected"),
        (lambda t: t.update({"softmax.bias": t["softmax.bias"] / 0}), "softmax.bias holds NaN or infinite"),
        (lambda t: t.update({"softmax.int8": t["softmax.int8"].float()}), "expected .* torch.int8"),
        (lambda t: t.update({"extra": torch.zeros(3)}), "extra does not belong to this model"),
    ],
)
def test_a_damaged_quantised_checkpoint_is_one_line(
    quantised: Path, tmp_path: Path, change: Callable[[dict[str, Tensor]], Any], message: str
) -> None:
    folder = Path(shutil.copytree(quantised, tmp_path / "copy"))
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")
    fails(SgdecError, message, folder, precision="int8")


@pytest.mark.parametrize("section", [{}, {"bounds": {}}, {"bounds": {"softmax": "wide"}}, 7])
def test_missing_bounds_are_one_line(quantised: Path, tmp_path: Path, section: Any) -> None:
    folder = Path(shutil.copytree(quantised, tmp_path / "copy"))
    config = files.read_json(folder / "config.json")
    files.write_json(folder / "config.json", {**config, "quantised": section})
    fails(SgdecError, "holds no bounds|no valid bound", folder, precision="int8")


def test_the_command_refuses_what_it_cannot_do(
    run: Path, quantised: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, status, message in [
        ([str(quantised), "--output", str(tmp_path / "new")], 2, "is quantised already"),
        ([str(run), "--output", str(quantised)], 2, "there is something already"),
        ([str(tmp_path / "nothing"), "--output", str(tmp_path / "new")], 1, "no such folder"),
        ([str(run)], 2, "--output"),
    ]:
        assert main(["quantize", *arguments]) == status
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1
    assert not (tmp_path / "new").exists()


def test_a_model_that_hands_nothing_over_cannot_be_quantised() -> None:
    class Plain(GNMT):
        def freeze(self, kernels: Kernels) -> None:
            pass

    with pytest.raises(UsageError, match="Plain has no products that can be quantised"):
        quantise(Plain(CONTEXT, width=8))


def transformer(folder: Path, **options: Any) -> Path:
    return write_checkpoint(folder, model="transformer", options={"layers": 2, "width": 32, "heads": 4, **options})


def test_a_transformer_needs_no_quantised_copy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each product has a range for each row of its inputs; keys and values are kept in bf16 where that is fast."""
    folder = transformer(tmp_path / "model", norm="pre")
    batch = torch.tensor([[5, 6, 4], [4, 3, 5]]), torch.tensor([3, 2]), torch.tensor([[1, 4, 6], [1, 5, 5]])
    with torch.inference_mode():
        eight, whole = (load_model(folder, precision=precision)[0] for precision in ("int8", "fp32"))
        apart = eight.project(eight(*batch)) - whole.project(whole(*batch))
        kept = eight.encode(*batch[:2]).keys.dtype
    assert 0 < apart.abs().mean() < 0.05 * whole.project(whole(*batch)).std()
    assert kept == (torch.bfloat16 if packs(torch.bfloat16) else torch.float32)
    assert main(["quantize", str(folder), "--output", str(tmp_path / "int8")]) == 2
    assert "needs no quantised copy: give the model itself to --precision int8." in capsys.readouterr().err


def test_its_products_are_those_of_rows_in_8_bits() -> None:
    weight, x = torch.randn(7, 48), torch.randn(5, 48)
    assert torch.equal(RowKernels().linear(weight)(x), int8_by_row(weight)(x))
    assert not torch.equal(RowKernels().linear(weight)(x), packed_linear(weight)(x))


def test_steps_of_a_transformer_in_int8_are_one_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Totals of a beam are those of a pass over all steps, and in a deterministic run no batch changes them.

    Keys and values stay in fp32 here: in bf16 some inputs are rounded to the next step, which is large on processors
    whose inputs have 7 bits.
    """
    monkeypatch.setattr(kernels, "packs", lambda dtype: False)
    folder, text = transformer(tmp_path / "model", norm="pre"), tmp_path / "in.txt"
    text.write_text("a b c\nb\nc c a b\n")
    command = ["decode", "--predictors", "nmt", "--nmt.model", str(folder), "--precision", "int8"]

    def decoded(*options: str) -> list[tuple[list[int], float]]:
        assert main([*command, *options, "--output-format", "jsonl", str(text)]) == 0
        rows = [json.loads(line)["hypotheses"][0] for line in capsys.readouterr().out.splitlines()]
        return [(row["tokens"], row["score"]) for row in rows]

    alone, together = (decoded("--deterministic", "--batch-size", size) for size in ("1", "3"))
    assert alone == together
    model, vocabularies = load_model(folder, precision="int8")
    assert vocabularies.source is not None
    found = decoded("--decoder", "beam", "--beam.size", "3")
    for line, (tokens, score) in zip(text.read_text().splitlines(), found, strict=True):
        source = torch.tensor([vocabularies.source.encode(line)])
        with torch.inference_mode():
            outputs = model(source, torch.tensor([source.size(1)]), torch.tensor([[1, *tokens]]))
            steps = torch.log_softmax(model.project(outputs)[0], -1)
        assert score == pytest.approx(float(steps[range(len(tokens) + 1), [*tokens, 2]].sum()), abs=1e-4)


def test_a_transformer_with_recurrent_layers_stays_in_floating_point(tmp_path: Path) -> None:
    folder = transformer(tmp_path / "model", encoder="gru")
    fails(SgdecError, "needs a quantised model, which this is not", folder, precision="int8")
