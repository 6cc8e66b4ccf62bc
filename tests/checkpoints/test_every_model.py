"""What `sgdec train` writes can be loaded: every model, all ways to tie its tables, and vocabularies that are larger
or smaller than all else."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from sgdec.checkpoints import files, layout
from sgdec.checkpoints.averaging import average_checkpoints
from sgdec.checkpoints.hf import export
from sgdec.checkpoints.loading import build_model, load_language_model, load_model, model_tensors
from sgdec.cli.main import main
from sgdec.errors import SgdecError
from sgdec.models.base import LanguageModel, Model
from sgdec.plugins.host import Host
from sgdec.plugins.options import describe
from sgdec.text.words import SPECIAL, WordVocabulary
from sgdec.training.quantising import quantise_checkpoint
from sgdec.training.run import starting
from tests.helpers.breadth import EXHAUSTIVE, some
from tests.helpers.tiny_models import small_options, write_checkpoint

pytestmark = pytest.mark.slow

SIZES = (100, 50_000 if EXHAUSTIVE else 5_000)
"""Sizes of vocabularies; 5,000 tokens have many times as many numbers as all layers of 8 units too."""


@cache
def words(size: int) -> WordVocabulary:
    return WordVocabulary([*SPECIAL, *(f"w{number}" for number in range(size - len(SPECIAL)))])


def classes() -> Iterator[tuple[str, type[Model], list[str]]]:
    """Every model, and the values of its option ``tied``."""
    for name in (entry.name for entry in Host(autoload=False).names("model")):
        cls = Host().load("model", name)
        ties = [option.type.split(" | ") for option in describe(cls) if option.name == "tied"]
        yield name, cls, ties[0] if ties else [""]


def options_of(name: str, cls: type[Model], tied: str) -> dict[str, Any]:
    """``constrained``: the models that can be quantised without text."""
    constrained = {"constrained": True} if name == "gnmt" else {}
    return {**small_options(cls), **constrained, **({"tied": tied} if tied else {})}


CASES = [
    (name, options_of(name, cls, tied), size)
    for name, cls, ties in classes()
    for tied in ties
    for size in SIZES
    if not (cls.steps and tied in ("source", "all"))
]
IDS = ["-".join([name, str(options.get("tied", "")), str(size)]) for name, options, size in CASES]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return files.load_tensors(folder / layout.WEIGHTS)


@pytest.mark.parametrize(("name", "options", "size"), some(CASES), ids=some(IDS))
def test_a_model_is_loaded_averaged_started_from_and_converted(
    tmp_path: Path, name: str, options: dict[str, Any], size: int
) -> None:
    cls: type[Model] = Host().load("model", name)
    load: Any = load_language_model if issubclass(cls, LanguageModel) else load_model
    one, two = (
        write_checkpoint(tmp_path / str(seed), seed=seed, model=name, options=options, vocabulary=words(size))
        for seed in (1, 2)
    )
    loaded, vocabularies = load(one, precision="fp64")
    stored = weights(one)
    assert all(torch.equal(tensor, stored[key].double()) for key, tensor in model_tensors(loaded).items())

    average_checkpoints([one, two], tmp_path / "average")
    mean = weights(tmp_path / "average")
    assert all(torch.allclose(mean[key], (stored[key] + other) / 2) for key, other in weights(two).items())
    load(tmp_path / "average")

    config = starting.config_of(one)
    model = build_model(config, where="the test's own model")
    starting.start_from(one, model, config, vocabularies)
    assert all(torch.equal(tensor, stored[key]) for key, tensor in model_tensors(model).items())

    if name == "gnmt":
        quantise_checkpoint(one, tmp_path / "int8")
        load(tmp_path / "int8", precision="int8")
    if name == "transformer":
        export(one, tmp_path / "hf", positions=16, tokenizer=False)


@pytest.mark.parametrize(
    ("name", "options", "size"),
    [
        ("gnmt", {"layers": 32, "width": 2}, 100),
        ("shallow", {"width": 1, "embedding": 1, "attention": 1}, len(SPECIAL)),
        ("gnmt", {"width": 2, "constrained": True, "anneal_updates": 10**9}, 100),
    ],
    ids=["many layers", "one unit", "an option that is no size"],
)
def test_an_odd_model_is_loaded(tmp_path: Path, name: str, options: dict[str, Any], size: int) -> None:
    load_model(write_checkpoint(tmp_path, model=name, options=options, vocabulary=words(size)))


@pytest.mark.parametrize("tied", ["source", "all"])
@pytest.mark.parametrize("name", ["hard-attention", "multi-source-hard"])
def test_a_target_with_steps_cannot_be_tied_to_a_source(tmp_path: Path, name: str, tied: str) -> None:
    options = {"width": 8, "embedding": 8, "tied": tied}
    with pytest.raises(SgdecError, match=f"tied={tied} needs one vocabulary .* but this model's target has a token"):
        write_checkpoint(tmp_path, model=name, options=options, vocabulary=words(100))


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "options", "size"), CASES, ids=IDS)
def test_every_command_takes_what_a_step_of_training_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, options: dict[str, Any], size: int
) -> None:
    """Training, `--start-from`, `--resume`, `average`, `score`, `decode` in all precisions, `cluster`, `quantize` and
    `export`."""
    monkeypatch.chdir(tmp_path)
    cls: type[Model] = Host().load("model", name)
    Path("words.json").write_bytes(words(size).serialized)
    Path("text").write_text("w1 w2 w3\nw4 w5\nw6\n")
    sources = ["text"] * cls.sources

    def run(*command: str) -> None:
        assert main([*command, "--threads", "1"] if command[0] in ("decode", "score", "train") else [*command]) == 0

    def train(output: str, *more: str) -> None:
        text = ["--train", *sources, "text", "--valid", *sources, "text"]
        run("train", *text, "--tokenizer", "words.json", "--output", output, "--bleu", "0", *more)

    given = [word for key, value in options.items() for word in (f"--{name}.{key}", str(value).lower())]
    train("run", "--model", name, *given, "--max-steps", "2", "--validate-every", "1", "--keep", "2")
    train("refined", "--start-from", "run", "--max-steps", "1")
    train("run", "--model", name, *given, "--max-steps", "3", "--validate-every", "1", "--keep", "2", "--resume")
    run("average", "run", "--output", "average")
    predictor = "nmt" if cls.sources else "rnnlm"
    inputs = ["text"] * max(1, cls.sources)
    for model in ("run", "refined", "average"):
        tokenizer = [] if cls.sources else ["--tokenizer", "words.json"]
        use = ["--predictors", predictor, f"--{predictor}.model", model, *tokenizer]
        for precision in ("fp32", "bf16", "fp64"):
            output = ["--max-length", "3", "--precision", precision, "--output", f"{model}.{precision}"]
            run("decode", *use, *output, *inputs)
        run("score", *use, "--output", f"{model}.scores", *inputs, "text")
    if cls.sources == 1:
        run("cluster", "--model", "run", "--input", "text", "--output", "clusters", "--centroids", "1")
        use = ["--predictors", "clusternmt", "--clusternmt.model", "run", "--clusternmt.clusters", "clusters"]
        run("decode", *use, "--max-length", "3", "--output", "clustered", "text")
    if name == "gnmt":
        run("quantize", "run", "--output", "int8")
    if name == "transformer":
        run("export", "run", "--to", "hf", "--output", "hf", "--no-tokenizer")
    if name in ("gnmt", "transformer"):
        model = "int8" if name == "gnmt" else "run"
        use = ["--predictors", "nmt", "--nmt.model", model, "--max-length", "3"]
        run("decode", *use, "--precision", "int8", "--output", "in8bits", "text")
