"""`sgdec recipes` names every recipe, and for one of them every value that shapes its run, with its source."""

from __future__ import annotations

import re

import pytest

from sgdec.cli.main import main
from sgdec.plugins.host import Host
from sgdec.plugins.options import describe
from sgdec.training.config import DEFAULTS
from sgdec.training.recipes import RECIPES

MACHINE = {"seed", "device", "parallel", "compile", "threads", "shard_tokens", "save_every", "keep", "bleu"}
FILES = {"token_weights", "start", "start_decoder", "embeddings_source", "embeddings_target", "embeddings_output"}
UNUSED = {"samples", "alpha", "baseline", "source_noise_kind"}
"""They do nothing without settings that no recipe has."""
ROW = re.compile(r"^--(\S+) +(\S+) +((?:section|Table|cited: ).*|silent: ours)", re.M)


def printed(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    assert main(["recipes", *args]) == 0
    out, err = capsys.readouterr()
    assert not err
    return out


def test_all_are_listed_with_model_paper_and_experiment(capsys: pytest.CaptureFixture[str]) -> None:
    head, *lines = printed(capsys).splitlines()
    assert head.split() == ["recipe", "model", "paper", "experiment"]
    assert [line.split()[:2] for line in lines] == [[name, recipe.model] for name, recipe in RECIPES.items()]
    assert all(re.search(r"et al\. 20\d\d ", line) for line in lines)


@pytest.mark.parametrize("name", RECIPES)
def test_every_value_of_a_recipe_is_printed_once_and_with_its_source(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    recipe, text = RECIPES[name], printed(capsys, name)
    rows = {option: (value, source) for option, value, source in ROW.findall(text)}
    assert len(rows) == len(recipe.values)
    defaults = text.split("defaults (silent: ours): ")[1].split(".\n")[0]
    others = dict(re.findall(r"--(\S+)\s(\S+?)(?:,|$)", defaults))
    assert not rows.keys() & others.keys()
    family = describe(Host(autoload=False).load("model", recipe.model))
    with_values = {f"{recipe.model}.{option.name}" for option in family if option.default is not None}
    assert {option for option in {*rows, *others} if "." in option} <= {f"{recipe.model}.{o.name}" for o in family}
    assert with_values <= {*rows, *others}
    settings = {option.replace("-", "_") for option in {*rows, *others} if "." not in option}
    missing = DEFAULTS.keys() - settings - MACHINE - FILES - UNUSED
    sizes = {"batch_tokens", "batch_pairs", "workspace"} - settings
    assert len(sizes) == 2 and len({"epochs", "max_steps"} & settings) >= 1
    off = missing - sizes - {"epochs", "max_steps"}
    assert off <= {"plateau_factor", "decay_rule", "sgd_lr", "anneal_after"}, "they do nothing here"


def test_values_are_shown_as_they_are_typed(capsys: pytest.CaptureFixture[str]) -> None:
    rows = {option: (value, source.split("  ")[0]) for option, value, source in ROW.findall(printed(capsys, "gnmt"))}
    assert rows["gnmt.layers"] == ("8", "section 8")
    assert rows["gnmt.constrained"] == ("true", "section 6")
    assert rows["max-steps"] == ("2000000", "section 8.3")
    assert rows["adam-epsilon"] == ("1e-08", "cited: Kingma and Ba 2015, Algorithm 1")
    assert rows["label-smoothing"] == ("0", "silent: ours")


def test_an_unknown_name_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes", "hybrid"]) == 2
    assert capsys.readouterr().err.startswith("Error: no recipe named 'hybrid'. Did you mean 'hybridnmt'? ")
