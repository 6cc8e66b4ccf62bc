"""A damaged log or progress file ends a resumed run with one line that says where; nothing of the run is lost."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from sgdec.cli.main import main
from tests.helpers.training_case import make_config

pytestmark = pytest.mark.slow

ROW = b'{"step": 1, "loss": 2.0}\n'


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of two updates."""
    folder = tmp_path_factory.mktemp("logs")
    assert train(folder / "run", folder, "--max-steps", "2", "--quiet") == 0
    return folder


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished / "run", tmp_path / "run", symlinks=True)
    return tmp_path / "run"


def train(run: Path, texts: Path, *more: str) -> int:
    config = make_config(texts)
    words = ["train", "--train", *config.train, "--valid", *config.valid, "--tokenizer", *config.tokenizer]
    words += ["--output", str(run), "--gnmt.width", "16", "--gnmt.dropout", "0.1", "--bleu", "0", "--threads", "1"]
    return main([*words, "--batch-tokens", "48", "--precision", "fp32", *more])


def resume(run: Path, texts: Path) -> int:
    return train(run, texts, "--max-steps", "3", "--resume")


@pytest.mark.parametrize(
    "line",
    [
        b"{\n",
        b"\n",
        b"[1, 2]\n",
        b"7\n",
        b'{"loss": 2.0}\n',
        b'{"step": "1"}\n',
        b'{"step": 1.5}\n',
        b'{"step": true}\n',
        b'{"step": 1, "loss": "low"}\n',
        b'{"step": 1, "loss": null}\n',
        b'{"step": 1, "loss": [[]]}\n',
        b"\xff\xfe\n",
        b"[" * 100_000 + b"\n",
        b'{"step": ' + b"9" * 5_000 + b"}\n",
        b"\x00" * 100 + b"\n",
    ],
)
def test_a_row_that_is_none_is_named_and_the_log_stays(
    line: bytes, run: Path, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = run / "metrics.jsonl"
    log.write_bytes(damaged := ROW + line + ROW)
    assert resume(run, finished) == 1
    said = capsys.readouterr().err.splitlines()
    assert said[-1].startswith(f"Error: {log}, line 2: ")
    assert "Traceback" not in "".join(said)
    assert log.read_bytes() == damaged
    assert (run / "last").resolve().name == "step-2"


def test_a_last_row_that_a_kill_cut_short_is_left_out(run: Path, finished: Path) -> None:
    log = run / "metrics.jsonl"
    whole = log.read_bytes()
    log.write_bytes(whole + b'{"step": 2, "lo')
    assert resume(run, finished) == 0
    assert log.read_bytes().startswith(whole)
    assert [json.loads(line)["step"] for line in log.read_bytes().splitlines()][-1] == 3


@pytest.mark.parametrize(
    ("name", "value"),
    [("step", "three"), ("step", None), ("epoch", 1.5), ("unfit", 3), ("best", "good"), ("surprise", 1)],
)
def test_progress_of_the_wrong_kind_is_named(
    name: str, value: object, run: Path, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = run / "last" / "progress.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), name: value}))
    assert resume(run, finished) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"Error: {file}: {name} ")
