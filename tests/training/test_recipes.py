"""A recipe is the published experiment: its values are those of the paper, and what a user gives comes before them.

The tables here were typed from the papers, not from the module under test.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
import torch

from sgdec.checkpoints import layout
from sgdec.cli.main import main
from sgdec.errors import UsageError
from sgdec.models.base import ModelContext
from sgdec.models.gnmt import GNMT
from sgdec.plugins.host import Host
from sgdec.plugins.options import describe
from sgdec.training.config import TrainConfig
from sgdec.training.library import make_config
from sgdec.training.optimisation import learning_rate, uses_sgd
from sgdec.training.recipes import RECIPES, Source
from tests.helpers import training_case

HOST = Host(autoload=False)
FILES: dict[str, Any] = {"train": ("a", "b"), "valid": ("a", "b"), "tokenizer": ("t",), "output": "run"}

RNN_OF_MARIAN = {"lr": 0.0003, "inverse_sqrt": 16_000, "warmup": 0, "tied": "all"}
HYBRID = {
    "section 3.1": {"model": "luong"},  # the baseline of Figure 1, and the same without input feeding
    "Table 2": {
        "embedding": 512, "encoder": "lstm", "width": 1024, "layers": 4, "lr": 0.001, "plateau_factor": 0.7,
    },
    "section 4.2": {
        "dropout": 0.3, "beta1": 0.9, "beta2": 0.999, "adam_epsilon": 1e-8, "plateau": 1, "decay_rule": "previous",
        "validate_every": 5000,
    },
    "Table 3": {"batch_pairs": 224},
    "section 4.5": {"metric": "perplexity"},
}  # fmt: skip
PAPERS: dict[str, dict[str, dict[str, Any]]] = {
    "gnmt": {
        "section 3": {"model": "gnmt"},
        "section 5": {"objective": "ml"},  # equation 7
        "section 6": {"constrained": True, "precision": "fp32"},
        "section 8": {"layers": 8, "width": 1024, "attention": None},  # None: as the width, 1024
        "section 8.3": {
            "init": 0.04, "clip": 5.0, "batch_pairs": 128, "lr": 0.0002, "sgd_after": 60_000, "sgd_lr": 0.5,
            "anneal_after": 1_200_000, "halve_every": 200_000, "max_steps": 1_200_000 + 800_000, "dropout": 0.2,
        },
    },
    "marian-shallow": {"section 3.1.3": {"model": "shallow", **RNN_OF_MARIAN}},
    "marian-deep-transition": {
        "section 3.1.1": {
            "model": "deep-transition", "encoder": "gru", "encoder_depth": 4, "decoder_depth": 8, "embedding": 512,
            "width": 1024, "layer_norm": True, "dropout": 0.1,
        },
        "section 3.1.3": {"epochs": 7.0, **RNN_OF_MARIAN},
    },
    "marian-transformer": {
        "section 3.1.2": {"model": "transformer", "encoder": "transformer"},
        "section 3.1.3": {"epochs": 7.0, **RNN_OF_MARIAN, "warmup": 16_000},
    },
    "hybridnmt": {**HYBRID, "section 3.2": {"input_feeding": False}},
    "hybridnmt-input-feeding": {**HYBRID, "section 4": {"input_feeding": True}},
}  # fmt: skip
"""By section or table: what the papers themselves say, with the options' names."""
BASE = {
    "Table 3": {"layers": 6, "width": 512, "feed_forward": 2048, "heads": 8, "dropout": 0.1},
    "section 3.1": {"norm": "post"},
    "section 5.3": {"beta1": 0.9, "beta2": 0.98, "adam_epsilon": 1e-9},
    "section 5.4": {"label_smoothing": 0.1, "attention_dropout": 0.0, "feed_forward_dropout": 0.0},
}
"""Vaswani et al. 2017, which the Transformer of Marian follows."""
SMALL = {
    "gnmt": {"width": 8},
    "marian-shallow": {"width": 8, "embedding": 8},
    "marian-deep-transition": {"width": 8, "embedding": 8},
    "marian-transformer": {"width": 8, "feed_forward": 8},
    "hybridnmt": {"width": 8, "embedding": 8},
    "hybridnmt-input-feeding": {"width": 8, "embedding": 8},
}
"""Options of the models by which a test is short."""


def made(recipe: str, model: str | None = None, preset: str | None = None, **given: Any) -> TrainConfig:
    """The settings of a run with this recipe; a mapping has options of a model."""
    options = {name: value for name, value in given.items() if isinstance(value, dict)}
    settings = {name: value for name, value in given.items() if name not in options}
    return make_config(
        {**FILES, **settings}, options, model=model, preset=preset, recipe=recipe, resume=False, host=HOST
    )


def by_place(recipe: str, source: Source, prefix: str = "") -> dict[str, dict[str, Any]]:
    """The values of a recipe from this kind of source, if its place begins with ``prefix``, which is cut off."""
    found: dict[str, dict[str, Any]] = {}
    for value in RECIPES[recipe].values:
        if value.source == source and value.place.startswith(prefix):
            name = value.option.rpartition(".")[2]
            found.setdefault(value.place.removeprefix(prefix), {})[name] = value.value
    return found


@pytest.mark.parametrize("name", RECIPES)
def test_values_of_the_paper_are_those_of_the_paper(name: str) -> None:
    assert by_place(name, "paper") == PAPERS[name]


def test_what_marian_takes_from_vaswani_et_al_is_theirs() -> None:
    assert by_place("marian-transformer", "cited", "Vaswani et al. 2017, ") == BASE


@pytest.mark.parametrize("name", RECIPES)
def test_every_value_is_a_setting_or_an_option_of_the_model_and_has_one_source(name: str) -> None:
    recipe = RECIPES[name]
    names = [value.option for value in recipe.values]
    assert len(names) == len(set(names))
    own = {f"{recipe.model}.{option.name}" for option in describe(HOST.load("model", recipe.model))}
    assert set(names) <= own | {option.name for option in describe(TrainConfig)}
    for value in recipe.values:
        assert value.source in get_args(Source) and bool(value.place) == (value.source != "ours"), value


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_alone_is_a_run_with_its_values(name: str) -> None:
    recipe, config = RECIPES[name], made(name)
    config.require_fit(HOST.load("model", config.model))
    assert {key: getattr(config, key) for key in recipe.settings} == recipe.settings
    assert {key: config.options[key] for key in recipe.options} == recipe.options
    with torch.device("meta"):
        model = HOST.load("model", config.model)(ModelContext(32_000, 32_000, True), **config.options)
    if isinstance(model, GNMT):
        assert (model.key.out_features, model.target_embedding.embedding_dim) == (1024, 1024)


def test_rates_follow_the_schedules_of_the_papers() -> None:
    gnmt, transformer, deep = map(made, ("gnmt", "marian-transformer", "marian-deep-transition"))
    assert {step: (uses_sgd(gnmt, step), learning_rate(gnmt, step, gnmt.max_steps)) for step in (
        1, 60_000, 60_001, 1_200_000, 1_200_001, 1_400_001, 2_000_000)
    } == {
        1: (False, 0.0002), 60_000: (False, 0.0002), 60_001: (True, 0.5), 1_200_000: (True, 0.5),
        1_200_001: (True, 0.25), 1_400_001: (True, 0.125), 2_000_000: (True, 0.03125),
    }  # fmt: skip
    assert [learning_rate(transformer, step, 10**6) for step in (8_000, 16_000, 64_000)] == [
        0.00015, 0.0003, 0.00015
    ]  # fmt: skip
    assert [learning_rate(deep, step, 10**6) for step in (1, 16_000, 64_000)] == [0.0003, 0.0003, 0.00015]


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("gnmt", {"lr": 0.01, "clip": 1.0}, {"lr": 0.01, "clip": 1.0, "batch_pairs": 128}),
        ("gnmt", {"batch_tokens": 500}, {"batch_tokens": 500, "batch_pairs": 0}),
        ("gnmt", {"batch_tokens": 1024}, {"batch_tokens": 1024, "batch_pairs": 0}),
        ("gnmt", {"workspace": 9}, {"workspace": 9, "batch_pairs": 0, "batch_tokens": 1024}),
        ("gnmt", {"batch_pairs": 0}, {"batch_pairs": 0, "batch_tokens": 1024}),
        ("gnmt", {"epochs": 3.0}, {"epochs": 3.0, "max_steps": 0}),
        ("gnmt", {"max_steps": 7}, {"max_steps": 7, "epochs": 20.0}),
        ("gnmt", {"halve_every": 0}, {"halve_every": 0, "anneal_after": 0}),
        ("gnmt", {"sgd_after": 0}, {"sgd_after": 0, "sgd_lr": 0.5}),
        ("marian-transformer", {"batch_pairs": 64}, {"batch_pairs": 64, "workspace": 0}),
        ("marian-transformer", {"max_steps": 9}, {"max_steps": 9, "epochs": 20.0}),
        ("hybridnmt", {"plateau": 0}, {"plateau": 0, "plateau_factor": 0.5, "decay_rule": "best"}),
        ("hybridnmt", {"decay_rule": "best"}, {"plateau_factor": 0.7, "decay_rule": "best"}),
    ],
    ids=str,
)
def test_what_is_given_comes_before_the_recipe(name: str, given: dict[str, Any], expected: dict[str, Any]) -> None:
    config = made(name, **given)
    assert {key: getattr(config, key) for key in expected} == expected


def test_a_smaller_model_is_a_width_given_beside_the_recipe() -> None:
    config = made("gnmt", model="gnmt", gnmt={"width": 16})
    assert config.options == made("gnmt").options | {"width": 16}
    model = HOST.load("model", "gnmt")(ModelContext(20, 20), **config.options)
    assert model.key.out_features == model.target_embedding.embedding_dim == 16


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"model": "luong"}, "--recipe gnmt trains a model gnmt, not --model luong. Give only one of them."),
        (
            {"preset": "gnmt8"},
            "--recipe gnmt and --preset gnmt8 both choose the options of gnmt. Give only one of them; single options "
            "override it.",
        ),
        (
            {"objective": "expected-reward", "start": "run"},
            "--recipe gnmt is a schedule of maximum likelihood, and --objective expected-reward refines a trained "
            "model. Leave --recipe out: --start-from has the model's options.",
        ),
        (
            {"batch_pairs": 64, "batch_tokens": 1024},
            "--batch-pairs and --batch-tokens both define the size of a batch. Give only one of them.",
        ),
    ],
    ids=str,
)
def test_what_contradicts_a_recipe_is_named_with_it(given: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UsageError) as caught:
        made("gnmt", **given)
    assert str(caught.value) == complaint


def test_a_recipe_that_there_is_not_is_one_line() -> None:
    with pytest.raises(UsageError, match=r"^no recipe named 'hybridnnt'\. Did you mean 'hybridnmt'\? Available: "):
        made("hybridnnt")


@pytest.mark.parametrize(
    ("model", "preset", "recipe"),
    [
        ("gnmt", "gnmt8", "gnmt"),
        ("luong", "hybrid", "hybridnmt"),
        ("luong", "baseline", "hybridnmt-input-feeding"),
        ("transformer", "base", "marian-transformer"),
    ],
)
def test_presets_are_the_architectures_of_the_recipes(model: str, preset: str, recipe: str) -> None:
    options = made(recipe).options
    for name, value in HOST.load("model", model).presets[preset].items():
        assert value == (options["width"] if options[name] is None else options[name]), name


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_trains_a_small_model_and_its_run_is_resumed_by_the_same_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    training_case.make_config(tmp_path)  # the files
    monkeypatch.chdir(tmp_path)
    recipe = RECIPES[name]
    words = ["--train", "train.en", "train.de", "--valid", "valid.en", "valid.de", "--tokenizer", "tok.spm"]
    words += ["--recipe", name, "--bleu", "0", "--threads", "1", "--quiet", "--output", "run"]
    words += [word for key, value in SMALL[name].items() for word in (f"--{recipe.model}.{key}", str(value))]
    if "workspace" in recipe.settings:
        words += ["--workspace", "4"]
    assert main(["train", *words, "--max-steps", "2"]) == 0
    assert main(["train", *words, "--max-steps", "3", "--resume"]) == 0
    stored = layout.read_config(tmp_path / "run" / "last")
    assert stored["step"] == 3 and stored["model"] == recipe.model
    assert stored["options"] == made(name).options | SMALL[name]
    differing = {key for key, value in recipe.settings.items() if stored["training"][key] != value}
    assert differing <= {"max_steps", "epochs", "workspace"}
