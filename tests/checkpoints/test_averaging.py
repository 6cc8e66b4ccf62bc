"""`sgdec average`: the mean of checkpoints is a checkpoint like others; those that have no mean are one line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from sgdec.checkpoints.files import load_tensors, save_tensors
from sgdec.checkpoints.loading import load_language_model, load_model, model_tensors
from sgdec.cli.main import main
from sgdec.models.base import Seq2Seq
from sgdec.text.sentencepiece import train_vocabulary
from sgdec.training import train
from tests.helpers.lm_case import make_lm_config
from tests.helpers.training_case import PAIRS, make_config

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``run`` keeps its last three checkpoints; ``wide`` and ``lm`` are other models."""
    root = tmp_path_factory.mktemp("average")
    options = {"width": 16, "tied": "target"}
    train(make_config(root, max_steps=12, validate_every=3, keep=3, bleu=0, lr=0.02, options=options), quiet=True)
    train(make_config(root, "wide", max_steps=1, bleu=0, options={"width": 24, "tied": "target"}), quiet=True)
    (root / "text").mkdir()
    train(make_lm_config(root / "text", str(root / "lm"), max_steps=2, validate_every=1, keep=2), quiet=True)
    return root


def weights(path: Path) -> dict[str, torch.Tensor]:
    return load_tensors(path / "model.safetensors")


def test_the_average_is_the_mean_of_the_weights(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = folder / "mean"
    assert main(["average", str(folder / "run"), "--last", "3", "--output", str(output)]) == 0
    steps = [folder / "run" / f"step-{step}" for step in (6, 9, 12)]
    assert capsys.readouterr().err == f"{output}: the mean of step-6, step-9, step-12\n"
    parts = [weights(step) for step in steps]
    for name, tensor in weights(output).items():
        mean = sum(part[name].double() for part in parts) / 3
        assert tensor.dtype == torch.float32 and torch.equal(tensor, mean.float()), name
    config = json.loads((output / "config.json").read_text())
    assert config["averaged"] == [str(step.resolve()) for step in steps]
    assert "perplexity" not in config, "nobody has measured it yet"
    model, vocabularies = load_model(output)
    assert isinstance(model, Seq2Seq) and vocabularies.source is vocabularies.target
    assert model.softmax.weight is model.target_embedding.weight, "tied weights stay tied"
    assert {path.name for path in output.iterdir()} == {"model.safetensors", "config.json", "tokenizer.spm"}


def test_checkpoints_can_be_named_one_by_one_and_count_once(folder: Path, tmp_path: Path) -> None:
    run = folder / "run"
    given = [str(run / name) for name in ("step-9", "last", "step-12")]
    assert main(["average", *given, "--output", str(tmp_path / "mean")]) == 0
    expected = (weights(run / "step-9")["key.weight"].double() + weights(run / "step-12")["key.weight"].double()) / 2
    assert torch.equal(weights(tmp_path / "mean")["key.weight"], expected.float())


def test_equal_checkpoints_have_themselves_as_average(folder: Path, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        shutil.copytree(folder / "run" / "step-12", tmp_path / name)
    given = [str(tmp_path / name) for name in "abc"]
    assert main(["average", *given, "--output", str(tmp_path / "mean")]) == 0
    own = weights(tmp_path / "a")
    assert all(torch.equal(tensor, own[name]) for name, tensor in weights(tmp_path / "mean").items())


def test_language_models_have_averages_too(folder: Path, tmp_path: Path) -> None:
    assert main(["average", str(folder / "lm"), "--output", str(tmp_path / "mean")]) == 0
    model, _ = load_language_model(tmp_path / "mean")
    stored = weights(tmp_path / "mean")
    assert all(torch.equal(tensor, stored[name]) for name, tensor in model_tensors(model).items() if name in stored)


def damage(path: Path, **changes: Any) -> None:
    config = json.loads((path / "config.json").read_text())
    options = {**config["options"], **changes.pop("options", {})}
    (path / "config.json").write_text(json.dumps({**config, **changes, "options": options}))


def poison(path: Path) -> None:
    tensors = weights(path)
    tensors["key.weight"][0, 0] = float("inf")
    save_tensors(path / "model.safetensors", tensors)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: damage(path, options={"dropout": 0.7}), "dropout is 0.7, but "),
        (lambda path: damage(path, model="luong"), "model is luong, but gnmt in "),
        (lambda path: damage(path, right_left=True), "right_left is True, but False in "),
        (lambda path: damage(path, quantised={"bounds": {}}), "this model is quantised. Average before"),
        (poison, "tensor key.weight holds NaN or infinite weights"),
        (lambda path: (path / "model.safetensors").write_bytes(b"x"), "the tensor file is damaged"),
        (lambda path: (path / "config.json").unlink(), "this is not a checkpoint"),
    ],
)
def test_what_has_no_average_is_one_line(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Any, message: str
) -> None:
    bad = Path(shutil.copytree(folder / "run" / "step-12", tmp_path / "bad"))
    change(bad)
    assert main(["average", str(folder / "run" / "step-9"), str(bad), "--output", str(tmp_path / "mean")]) != 0
    error = capsys.readouterr().err
    assert error.startswith("Error: ") and error.count("\n") == 1
    assert f"{bad}" in error and message in error
    assert not (tmp_path / "mean").exists()


def test_other_models_lone_checkpoints_and_folders_in_use_are_one_line(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def error(*words: str | Path) -> str:
        assert main(["average", *map(str, words)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        return line

    new, run = tmp_path / "mean", folder / "run"
    assert f"width is 24, but 16 in {run.resolve()}" in error(run, folder / "wide", "--output", new)
    assert "model is rnnlm, but gnmt in" in error(run, folder / "lm", "--output", new)
    assert "is one checkpoint, and an average takes two" in error(folder / "wide", "--output", new)
    assert "is one checkpoint" in error(run / "step-12", run / "last", "--output", new)
    assert f"--output {folder / 'wide'}: there is something already" in error(run, "--output", folder / "wide")


def test_a_tokenizer_of_the_same_size_but_other_pieces_is_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = Path(shutil.copytree(folder / "run" / "step-12", tmp_path / "bad"))
    size = json.loads((bad / "config.json").read_text())["target_vocab_size"]
    words = [word for pair in PAIRS for line in pair for word in line.split()]
    other = train_vocabulary([word[::-1] for word in words], 20, kind="word")
    assert other.size == size
    (bad / "tokenizer.spm").write_bytes(other.serialized)
    assert main(["average", str(folder / "run" / "step-9"), str(bad), "--output", str(tmp_path / "mean")]) == 2
    assert f"{bad}: its source tokenizer is not that of" in capsys.readouterr().err
