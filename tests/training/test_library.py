"""Training as a library call is what the command line does: the same weights, the same refusals."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import sgdec
from sgdec.cli.main import main
from tests.helpers.training_case import make_config

pytestmark = pytest.mark.slow

COMMON: Mapping[str, Any] = {"max_steps": 2, "bleu": 0, "batch_tokens": 64, "threads": 1}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The text and the vocabulary of `make_config`."""
    make_config(tmp_path, "unused")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def command(output: str, *others: str) -> int:
    files = ["--train", "train.en", "train.de", "--valid", "valid.en", "valid.de", "--tokenizer", "tok.spm"]
    common = [word for name, value in COMMON.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    return main(["train", *files, *common, "--quiet", "--output", output, *others])


def call(output: str, **others: Any) -> Any:
    files = {"train": ["train.en", Path("train.de")], "valid": ("valid.en", "valid.de"), "tokenizer": Path("tok.spm")}
    return sgdec.train(**files, **COMMON, output=output, quiet=True, **others)


def test_a_run_is_the_same_both_ways() -> None:
    options = ["--gnmt.width", "8", "--gnmt.layers", "2", "--lr", "0.002", "--right-left", "true"]
    assert command("one", *options) == 0
    trained = call("two", gnmt={"width": 8, "layers": 2}, lr=0.002, right_left=True)
    assert trained.steps == 2 and trained.best == Path("two/best").resolve() and trained.scores["perplexity"] > 1
    for name in ("model.safetensors", "config.json"):
        assert Path("one/best", name).read_bytes() == Path("two/best", name).read_bytes().replace(b'"two"', b'"one"')
    assert command("three", "--start-from", "one/best") == 0
    call("four", start="two/best")
    configs = [json.loads(Path(run, "best", "config.json").read_text()) for run in ("three", "four")]
    assert configs[0]["options"] == configs[1]["options"] and configs[0]["options"]["width"] == 8
    assert Path("three/best/model.safetensors").read_bytes() == Path("four/best/model.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        (["--lr", "-1"], {"lr": -1.0}),
        (["--gnmt.widht", "8"], {"gnmt": {"widht": 8}}),
        (["--luong.width", "8"], {"luong": {"width": 8}}),
        (["--model", "gnmd"], {"model": "gnmd"}),
        (["--preset", "gnmt9"], {"preset": "gnmt9"}),
        (["--recipe", "gnmd"], {"recipe": "gnmd"}),
        (["--recipe", "gnmt", "--model", "luong"], {"recipe": "gnmt", "model": "luong"}),
        (["--recipe", "gnmt", "--preset", "gnmt8"], {"recipe": "gnmt", "preset": "gnmt8"}),
        (["--recipe", "hybridnmt", "--gnmt.width", "8"], {"recipe": "hybridnmt", "gnmt": {"width": 8}}),
        (["--batch-pairs", "9"], {"batch_pairs": 9}),
        (["--start-from", "nowhere"], {"start": "nowhere"}),
        (["--model", "rnnlm"], {"model": "rnnlm"}),
    ],
)
def test_what_one_way_refuses_the_other_refuses_in_the_same_words(
    options: list[str], settings: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    status = command("new", *options)
    with pytest.raises(sgdec.SgdecError) as error:
        call("new", **settings)
    assert capsys.readouterr().err == f"Error: {error.value}\n" and status == error.value.exit_status


def test_a_setting_that_there_is_not_is_one_line() -> None:
    with pytest.raises(sgdec.UsageError, match=r"no option --max-stepz\. Did you mean 'max_steps'\?"):
        call("new", max_stepz=3)
