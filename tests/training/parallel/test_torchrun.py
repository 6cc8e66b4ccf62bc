"""Commands of torchrun that help and documentation show are read as they are meant, and the documented ones run.

torchrun reads all words of its command line before it knows which are its own: a word that abbreviates two of its
options ends it, wherever the word stands.
"""

from __future__ import annotations

import gzip
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from torch.distributed.run import get_args_parser

from sgdec.checkpoints.layout import read_config
from sgdec.cli.train import command
from sgdec.training.preparing import prepare
from tests.helpers.places import ROOT
from tests.helpers.training_case import make_config

pytestmark = pytest.mark.slow

DOCS = ROOT / "docs" / "howto" / "training.md"
SHOWN = [
    re.sub(r"\s*\\\n\s*", " ", shown) for shown in re.findall(r"^torchrun (?:.*\\\n)*.*$", DOCS.read_text(), re.M)
]
"""The commands in the guide, each as one line."""
FLAGS = [flag for option in command.params if isinstance(option, click.Option) for flag in option.opts[:1]]


def arguments_behind(words: list[str]) -> list[str]:
    """What torchrun hands to the program that it starts."""
    read = get_args_parser().parse_args(words)
    assert read.module and read.training_script == "sgdec.cli"
    rest: list[str] = read.training_script_args
    return rest


@pytest.mark.parametrize("flag", FLAGS)
def test_no_option_of_training_is_misread(flag: str) -> None:
    words = ["train", flag, "X", "--gnmt.width", "8"]
    assert arguments_behind(["--standalone", "--nproc-per-node", "2", "-m", "sgdec.cli", *words]) == words


def test_the_older_spelling_of_start_from_is_understood_without_torchrun() -> None:
    (option,) = (option for option in command.params if option.name == "start")
    assert option.opts == ["--start-from", "--start"]


@pytest.mark.parametrize("shown", SHOWN)
def test_torchrun_hands_on_what_the_guide_shows(shown: str) -> None:
    program, *words = shlex.split(shown)
    assert program == "torchrun"
    assert arguments_behind(words) == words[words.index("sgdec.cli") + 1 :]


def test_the_guide_shows_training_and_refining() -> None:
    assert ["--start-from" in shown for shown in SHOWN] == [False, True]


@pytest.mark.slow
def test_the_command_with_start_from_runs_as_it_is_shown(tmp_path: Path) -> None:
    """In a folder with files of these names; behind it, what keeps it short and off a GPU."""
    (shown,) = (shown for shown in SHOWN if "--start-from" in shown)
    config = make_config(tmp_path, max_steps=2)
    for text in config.train:
        (tmp_path / f"{Path(text).name}.gz").write_bytes(gzip.compress(Path(text).read_bytes()))
    for text in config.valid:
        shutil.copy(text, tmp_path / Path(text).name.replace("valid", "val"))
    _, *words = shlex.split(shown)
    settings = ["--max-steps", "2", "--bleu", "2", "--threads", "1", "--device", "cpu"]
    prepare(config, quiet=True).run()
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *words, *settings],
        capture_output=True, text=True, timeout=600, cwd=tmp_path, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "after 2 steps of training" in done.stderr
    assert read_config(tmp_path / "refined" / "last")["step"] == 2
