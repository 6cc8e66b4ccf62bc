"""Checkpoints: what was saved is loaded, and whatever is missing, damaged or does not fit is one line naming it."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from sgdec.checkpoints import files, layout, loading
from sgdec.checkpoints.layout import load_vocabularies
from sgdec.checkpoints.loading import load_model
from sgdec.errors import SgdecError, UsageError
from sgdec.models.gnmt import GNMT
from sgdec.training.preparing import prepare
from sgdec.training.trainer import Trainer
from tests.helpers.training_case import PAIRS, make_config


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    """After two steps, with its checkpoint written."""
    folder = tmp_path_factory.mktemp("run")
    options = {"width": 16, "layers": 3, "tied": "target"}
    trained = prepare(make_config(folder, max_steps=2, options=options), quiet=True)
    trained.run()
    return trained


@pytest.fixture
def folder(trainer: Trainer, tmp_path: Path) -> Path:
    """A copy of the checkpoint, to be damaged."""
    return Path(shutil.copytree(trainer.folder / "best", tmp_path / "checkpoint"))


@pytest.mark.slow
def test_a_loaded_model_is_the_saved_one(trainer: Trainer) -> None:
    for path in (trainer.folder, trainer.folder / "best", trainer.folder / "last"):
        model, vocabularies = load_model(path)
        assert isinstance(model, GNMT) and not model.training
        assert model.softmax.weight is model.target_embedding.weight, "tied weights stay tied"
        for name, tensor in trainer.model.state_dict().items():
            assert torch.equal(tensor, model.state_dict()[name])
        assert vocabularies.source is vocabularies.target, "one shared tokenizer is one value"
        assert vocabularies.target is not None
        assert vocabularies.target.decode(vocabularies.target.encode(PAIRS[0][1])) == PAIRS[0][1]


def test_the_precision_is_that_of_the_weights(trainer: Trainer) -> None:
    assert load_model(trainer.folder, precision="fp64")[0].get_parameter("key.bias").dtype == torch.float64
    assert load_model(trainer.folder, precision="bf16")[0].get_parameter("key.bias").dtype == torch.bfloat16
    with pytest.raises(UsageError, match="cannot be loaded in precision 'fp8'"):
        load_model(trainer.folder, precision="fp8")


def test_a_checkpoint_is_readable_and_holds_no_pickle(trainer: Trainer) -> None:
    names = {path.name for path in (trainer.folder / "best").iterdir()}
    assert names == {
        "model.safetensors", "optimizer.safetensors", "config.json", "progress.json",
        "tokenizer.spm", "metrics.jsonl",
    }  # fmt: skip
    config = json.loads((trainer.folder / "best" / "config.json").read_text())
    assert (config["format"], config["model"], config["options"]["layers"]) == (1, "gnmt", 3)
    assert config["training"]["lr"] == 0.001


def test_vocabularies_load_without_torch(trainer: Trainer) -> None:
    code = (
        "import sys; from sgdec.checkpoints.layout import load_vocabularies; "
        f"load_vocabularies({str(trainer.folder)!r}); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-100])


def poison(file: Path) -> None:
    tensors = load_file(file)
    tensors["key.weight"][0, 0] = float("nan")
    save_file(tensors, file)


def narrow(file: Path) -> None:
    tensors = load_file(file)
    save_file({**tensors, "key.bias": torch.zeros(3)}, file)


def drop(file: Path) -> None:
    tensors = load_file(file)
    del tensors["decoder.1.weight_hh_l0"]
    save_file(tensors, file)


def add(file: Path) -> None:
    save_file({**load_file(file), "extra": torch.zeros(3)}, file)


def other_format(file: Path) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), "format": 99}))


def other_option(file: Path) -> None:
    config = json.loads(file.read_text())
    config["options"]["widht"] = 8
    file.write_text(json.dumps(config))


def other_size(file: Path) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), "target_vocab_size": 99}))


def other_model(file: Path) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), "model": "gmnt"}))


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("model.safetensors", Path.unlink, r"checkpoint/model\.safetensors: no such file"),
        ("model.safetensors", cut, r"checkpoint/model\.safetensors: the tensor file is damaged"),
        ("model.safetensors", lambda file: file.write_text("x"), r"model\.safetensors: the tensor file is damaged"),
        ("model.safetensors", poison, r"model\.safetensors: tensor key\.weight holds NaN or infinite weights"),
        ("model.safetensors", narrow, r"model\.safetensors: tensor key\.bias is 3, expected 16"),
        ("model.safetensors", drop, r"model\.safetensors: tensor decoder\.1\.weight_hh_l0 is missing"),
        ("model.safetensors", add, r"model\.safetensors: tensor extra does not belong"),
        ("config.json", Path.unlink, r"checkpoint: this is not a checkpoint, config\.json is missing"),
        ("config.json", cut, r"config\.json: this is not JSON"),
        ("config.json", lambda file: file.write_text("{}"), r"config\.json: format None, expected 1"),
        ("config.json", other_format, r"config\.json: format 99, expected 1"),
        ("config.json", other_option, r"config\.json: no option --gnmt\.widht\. Did you mean '--gnmt\.width'"),
        ("config.json", other_model, r"no model named 'gmnt'"),
        ("config.json", other_size, r"checkpoint: the target tokenizer has 13 pieces, the model 99"),
        ("tokenizer.spm", Path.unlink, r"checkpoint: the tokenizer is missing"),
        ("tokenizer.spm", lambda file: file.write_text("x"), r"tokenizer\.spm: this is not a SentencePiece model"),
    ],
)  # fmt: skip
def test_damage_is_one_line_naming_the_file(
    folder: Path, name: str, damage: Callable[[Path], object], message: str
) -> None:
    damage(folder / name)
    with pytest.raises(SgdecError, match=message) as caught:
        load_model(folder)
    assert "\n" not in str(caught.value)


def test_a_path_without_a_checkpoint_is_one_line(tmp_path: Path) -> None:
    for function in (load_model, load_vocabularies):
        with pytest.raises(SgdecError, match="nowhere: no such folder"):
            function(tmp_path / "nowhere")
        with pytest.raises(SgdecError, match=r"config\.json is missing"):
            function(tmp_path)


@pytest.fixture
def small_disk() -> Iterator[None]:
    """No file may grow past 20 kB: the system refuses to write on, as it does when a disk is full."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_disk_leaves_the_checkpoint_before_it_intact(trainer: Trainer, small_disk: None) -> None:
    before = trainer.folder / "last" / "model.safetensors"
    content = before.read_bytes()
    assert len(content) > 20_000

    def write(folder: Path) -> None:
        files.save_tensors(folder / "model.safetensors", loading.model_tensors(trainer.model))

    with pytest.raises(
        SgdecError, match=r"step-9: cannot be written \(.*\)\. The checkpoint before it is intact"
    ) as caught:
        layout.save_checkpoint(trainer.folder, "step-9", write, ("last",))
    assert "\n" not in str(caught.value)
    assert before.read_bytes() == content
    assert not list(trainer.folder.glob("*step-9*"))
