"""A run that starts from another's weights, or refines by expected reward: what cannot work is one line."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sgdec.checkpoints import files, layout
from sgdec.cli.main import main
from sgdec.text.sentencepiece import train_vocabulary
from sgdec.training import train
from tests.helpers.training_case import PAIRS, make_config

pytestmark = pytest.mark.slow

Run = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run ``ml`` of one step, and the text and vocabulary of `make_config`."""
    folder = tmp_path_factory.mktemp("start")
    train(make_config(folder, "ml", options={"width": 16, "dropout": 0.1}, max_steps=1, bleu=0), quiet=True)
    return folder


@pytest.fixture
def run(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """``sgdec train`` of one step on the text, into ``new``: exit status and what it said."""
    monkeypatch.chdir(tmp_path)
    for entry in folder.iterdir():
        (tmp_path / entry.name).symlink_to(entry)

    def call(*args: str, text: tuple[str, str] = ("train.en train.de", "valid.en valid.de")) -> tuple[int, str]:
        files = ["--train", *text[0].split(), "--valid", *text[1].split()]
        own = [] if "--tokenizer" in args else ["--tokenizer", "tok.spm"]
        common = ["--output", "new", "--max-steps", "1", "--bleu", "0", "--threads", "1"]
        status = main(["train", *files, *own, *common, *args])
        return status, capsys.readouterr().err

    return call


def error(ran: tuple[int, str], status: int = 2) -> str:
    """The only line of a call that came to nothing."""
    assert ran[0] == status, ran
    assert ran[1].startswith("Error: ") and ran[1].endswith(".\n") and ran[1].count("\n") == 1, ran[1]
    assert not Path("new").exists()
    return ran[1].removeprefix("Error: ").rstrip()


def test_options_are_those_of_the_start_unless_they_are_given(run: Run) -> None:
    status, said = run("--start-from", "ml", "--gnmt.dropout", "0.4")
    assert status == 0, said
    config = layout.read_config("new")
    assert (config["options"]["width"], config["options"]["dropout"]) == (16, 0.4)
    assert "step 0/1: perplexity" in said
    status, said = run("--start-from", "ml", "--gnmt.dropout", "0.4", "--resume", "--max-steps", "2")
    assert status == 0 and "resumed after step 1" in said, said
    assert run("--resume", "--gnmt.width", "16", "--gnmt.dropout", "0.4") == (
        2,
        "Error: --resume: start was ml in new, now it is . Give the same settings, or another --output.\n",
    )


def test_the_model_and_its_direction_are_those_of_the_start_too(folder: Path, run: Run) -> None:
    settings: dict[str, Any] = {"options": {"width": 24, "embedding": 8}, "max_steps": 1, "bleu": 0}
    train(make_config(folder, "backwards", model="shallow", right_left=True, **settings), quiet=True)
    status, said = run("--start-from", str(folder / "backwards"))
    assert status == 0 and said.startswith("shallow: "), said
    config = layout.read_config("new")
    assert config["right_left"] and (config["options"]["width"], config["options"]["embedding"]) == (24, 8)
    assert run("--start-from", str(folder / "backwards"), "--resume", "--max-steps", "2")[0] == 0


def test_another_model_is_refused_with_the_difference(run: Run) -> None:
    of_use = "The weights fit only the same model."
    assert error(run("--start-from", "ml", "--gnmt.width", "24", "--gnmt.normed", "true")) == (
        f"--start-from ml: gnmt.width is 16 there, here 24; gnmt.normed is False there, here True. {of_use}"
    )
    assert error(run("--start-from", "ml", "--model", "luong")) == (
        f"--start-from ml: model is gnmt there, here luong. {of_use}"
    )
    assert error(run("--start-from", "ml", "--right-left", "true")) == (
        f"--start-from ml: right_left is False there, here True. {of_use}"
    )


def test_another_tokenizer_is_refused_even_of_the_same_size(run: Run) -> None:
    lines = [line[::-1] for pair in PAIRS for line in pair]
    Path("other.spm").write_bytes(train_vocabulary(lines, 20, kind="word").serialized)
    size = layout.load_vocabularies("ml").target.size  # type: ignore[union-attr]
    assert train_vocabulary(lines, 20, kind="word").size == size
    assert error(run("--start-from", "ml", "--tokenizer", "other.spm")) == (
        "--start-from ml: its source tokenizer is another. Give that one to --tokenizer."
    )


def test_a_start_that_is_none_is_one_line(run: Run) -> None:
    assert error(run("--start-from", "nowhere"), 1) == (
        "nowhere: no such folder. Expected a checkpoint, as `sgdec train` writes it."
    )
    shutil.copytree("ml/best", "damaged")
    Path("damaged/model.safetensors").write_bytes(b"damage")
    said = error(run("--start-from", "damaged"), 1)
    assert said.startswith("damaged/model.safetensors: the tensor file is damaged")


def test_a_quantised_start_is_refused(run: Run) -> None:
    shutil.copytree("ml/best", "small")
    config = files.read_json(Path("small/config.json"))
    files.write_json(Path("small/config.json"), {**config, "quantised": {"bounds": {}, "from": "ml"}})
    assert error(run("--start-from", "small")) == (
        "--start-from small: this model is quantised. Start from the one that it was made from."
    )


def test_expected_reward_says_what_it_needs(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    reward = ("--objective", "expected-reward")
    assert error(run(*reward)) == (
        "--objective expected-reward refines a trained model: the random outputs of an untrained one have no reward "
        "to learn from. Give --start-from MODEL."
    )
    assert error(run(*reward, "--start-from", "ml", "--sgd-after", "3")) == (
        "--sgd-after: expected-reward uses plain SGD from the first step, at --sgd-lr. Leave --sgd-after out."
    )
    assert error(run(*reward, "--start-from", "ml", "--samples", "1")).startswith("--samples: 1 ")
    assert error(run(*reward, "--start-from", "ml", "--alpha", "-1")).startswith("--alpha: -1.0 ")
    assert "'expected-rewards' is not one of 'ml', 'expected-reward'" in error(run("--objective", "expected-rewards"))
    for name, value in {"TORCHELASTIC_RUN_ID": "1", "RANK": "0", "WORLD_SIZE": "1"}.items():  # as torchrun does
        monkeypatch.setenv(name, value)
    assert error(run(*reward, "--start-from", "ml", "--parallel", "model")) == (
        "--parallel model supports maximum likelihood only. For expected-reward use data, or none."
    )


def test_a_language_model_has_no_expected_reward(run: Run) -> None:
    text = ("train.de", "valid.de")
    assert error(run("--model", "rnnlm", "--objective", "expected-reward", "--start-from", "ml", text=text)) == (
        "--objective expected-reward: rnnlm is a language model and translates nothing. Use ml."
    )
    assert error(run("--model", "rnnlm", "--metric", "gleu", text=text)) == (
        "--metric gleu: rnnlm is a language model and translates nothing. Use perplexity."
    )


def test_steps_of_hard_attention_are_no_words(run: Run) -> None:
    reward = ("--objective", "expected-reward", "--start-from", "ml", "--model", "hard-attention")
    assert error(run(*reward)) == (
        "--objective expected-reward: hard-attention predicts steps between tokens, which GLEU would count as words. "
        "Use ml."
    )


def test_a_metric_of_translations_needs_translations(run: Run) -> None:
    assert error(run("--metric", "gleu")) == (
        "--metric gleu needs translations, and --bleu 0 makes none. Give --bleu 1000."
    )
