"""A damaged checkpoint is one line that names the file, and no model is built that its weights could not fill.

What config.json says is data: its sizes are held against the tensor file before anything of that size is made.
"""

from __future__ import annotations

import json
import resource
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sgdec.checkpoints import loading
from sgdec.checkpoints.averaging import average_checkpoints
from sgdec.checkpoints.layout import read_config
from sgdec.checkpoints.loading import load_language_model, load_model
from sgdec.errors import SgdecError
from sgdec.plugins.host import Host
from sgdec.training.quantising import quantise_checkpoint
from tests.helpers.mutation import mutants, verdict
from tests.helpers.tiny_models import small_options, write_checkpoint

pytestmark = pytest.mark.slow

HUGE = 9_223_372_036_854_775_807
SIZES = ("layers", "encoder_layers", "decoder_layers", "width", "embedding", "attention", "hidden", "output", "order",
         "feed_forward", "heads", "encoder_depth", "decoder_depth")  # fmt: skip
MODELS = [entry.name for entry in Host(autoload=False).names("model")]


@pytest.fixture(scope="module")
def gnmt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("models") / "gnmt")


@pytest.fixture
def little_memory() -> Iterator[None]:
    """Two more gigabytes at most."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (2 << 30), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.usefixtures("little_memory")
def test_no_size_of_any_model_is_believed(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from sgdec.models.base import LanguageModel
    from sgdec.plugins.options import describe

    monkeypatch.setattr(loading, "SPARE", 100)  # for speed
    cls = Host().load("model", name)
    load: Callable[..., object] = load_language_model if issubclass(cls, LanguageModel) else load_model
    folder = write_checkpoint(tmp_path / name, model=name, options=small_options(cls))
    load(folder)
    config = json.loads((folder / "config.json").read_text())
    sizes = [option.name for option in describe(cls) if option.name in SIZES]
    assert sizes
    for size in sizes:
        for value in (10_000, 200_000, 1 << 31, HUGE, 1 << 80):
            options = {**config["options"], size: value}
            if size == "width":
                options.pop("heads", None)
            (folder / "config.json").write_text(json.dumps({**config, "options": options}))
            with pytest.raises(SgdecError, match=r"config\.json|model\.safetensors"):
                load(folder)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model", None), ("model", ["gnmt"]), ("model", {}), ("model", "gnmtt"), ("model", "os"), ("options", []),
        ("options", {"width": "x"}), ("options", {"width": 1e308}), ("options", {"nothing": 1}),
        ("source_vocab_size", HUGE), ("source_vocab_size", -1), ("target_vocab_size", "7"),
        ("target_vocab_size", True), ("target_vocab_size", 7.0), ("target_vocab_size", 1 << 31), ("shared", "yes"),
        ("right_left", 1), ("steps", [1]), ("sources", "2"), ("sources", 3), ("sources", True), ("format", 2),
        ("format", None),
    ],
)  # fmt: skip
def test_what_config_json_says_wrongly_is_an_error_of_that_file(
    tmp_path: Path, gnmt: Path, key: str, value: object
) -> None:
    folder = Path(shutil.copytree(gnmt, tmp_path / "bad"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, key: value}))
    with pytest.raises(SgdecError, match=r"bad/config\.json") as caught:
        load_model(folder)
    assert caught.value.exit_status == 1 and "\n" not in str(caught.value)


def test_average_and_quantise_hold_sizes_against_the_weights_too(tmp_path: Path, gnmt: Path) -> None:
    for name in ("one", "two"):
        shutil.copytree(gnmt, tmp_path / name)
        config = json.loads((tmp_path / name / "config.json").read_text())
        config["options"]["width"] = 200_000
        (tmp_path / name / "config.json").write_text(json.dumps(config))
    with pytest.raises(SgdecError, match=r"tensor .* is 32, expected 800000"):
        average_checkpoints([tmp_path / "one", tmp_path / "two"], tmp_path / "out")
    with pytest.raises(SgdecError, match=r"tensor .* is 32, expected 800000"):
        quantise_checkpoint(tmp_path / "one", tmp_path / "out")


@pytest.mark.parametrize("file", ["model.safetensors", "config.json", "tokenizer.spm"])
def test_mutants_of_a_checkpoint_are_models_or_errors(tmp_path: Path, gnmt: Path, file: str) -> None:
    folder = Path(shutil.copytree(gnmt, tmp_path / "mutant"))
    seeds = [(folder / file).read_bytes()]

    def load(path: Path) -> None:
        load_model(path)

    for data in mutants(seeds, 60 if file == "tokenizer.spm" else 150, len(file)):
        (folder / file).write_bytes(data)
        assert verdict(load, folder) in ("value", "error")


def test_mutants_of_its_json_alone_are_read_or_refused(tmp_path: Path, gnmt: Path) -> None:
    for data in mutants([(gnmt / "config.json").read_bytes()], 400, 5):
        (tmp_path / "config.json").write_bytes(data)
        assert verdict(read_config, tmp_path) in ("value", "error")
