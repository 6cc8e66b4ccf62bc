"""The promise of a signature: it names what numbers come from, so that runs with equal ones give equal numbers."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

import sgdec
from sgdec import signature
from sgdec.cli.main import main
from sgdec.plugins.host import Entry
from tests.helpers.tiny_models import characters, write_checkpoint, write_lattice

pytestmark = pytest.mark.slow

MINE = """
import sgdec
from sgdec_predictors.wc import WordCount

class Mine(WordCount):
    def __init__(self, words: tuple[str, ...] = (), name: str = "", token: int = 3) -> None:
        super().__init__(token)

@sgdec.hookimpl
def sgdec_predictors():
    return {"mine": Mine}
"""


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run with a file of each kind."""
    monkeypatch.chdir(tmp_path)
    write_checkpoint(tmp_path / "run" / "best")
    (tmp_path / "run" / "metrics.jsonl").write_text("{}\n")
    (tmp_path / "run" / "best" / "optimizer.safetensors").write_bytes(b"for training")
    for number in (3, 12):
        write_lattice(tmp_path / f"{number}.fst", [((4,), float(number))])
    (tmp_path / "mine.py").write_text(MINE)
    for name in ("a", "b", "3"):
        (tmp_path / name).write_text(name)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "x").write_text("x")
    (tmp_path / "same.spm").write_bytes(characters("abc").serialized)
    (tmp_path / "in").write_text("a\n")
    return tmp_path


RUN = [
    "--predictors", "nmt,fst,mine,o=mine", "--nmt.model", "run", "--fst.path", "{id}.fst", "--mine.words", "a, b",
    "--mine.token", "3", "--mine.name", "other", "--o.name", ".", "--plugin-file", "mine.py",
    "--tokenizer", "same.spm",
]  # fmt: skip


def signed(capsys: pytest.CaptureFixture[str]) -> str:
    """Of a run whose sentence may fail."""
    assert main(["decode", *RUN, "--signature", "sig", "in"]) in (0, 1), capsys.readouterr().err
    written = Path("sig").read_text()
    assert capsys.readouterr().err.splitlines()[-1] == f"signature: {written.strip()}"
    return written


def test_files_bear_their_hash_and_other_values_do_not(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = signed(capsys)
    first = sha((folder / "3.fst").read_bytes())
    assert f",1*fst(path={{id}}.fst#{first})," in written
    assert f"1*mine(words=a, b#{sha(b'a')}#{sha(b'b')},token=3,name=other#" in written
    assert "1*o=mine(name=.)" in written
    assert f"|tokenizer:same.spm#{sha((folder / 'same.spm').read_bytes())}|" in written
    assert f"|plugins:mine.py#{sha(MINE.encode())}|" in written
    assert re.search(r"predictors:1\*nmt\(model=run#[0-9a-f]{12}\),", written)
    for name in ("numpy", "torch", "sentencepiece"):
        assert f"|{name}:{version(name)}|" in written
    assert "|input_format:text|" in written and "|max_source_length:1000" in written and "|threads:" in written


def appended(path: Path, text: str) -> int:
    return path.write_text(path.read_text() + text)


CHANGES: dict[str, Callable[[Path], object]] = {
    "weights": lambda folder: write_checkpoint(folder / "run" / "best", seed=2),
    "config": lambda folder: appended(folder / "run/best/config.json", "\n"),
    "tokenizer of the model": lambda folder: (folder / "run/best/tokenizer.spm").write_bytes(
        characters("abd").serialized
    ),
    "first lattice": lambda folder: write_lattice(folder / "3.fst", [((4,), 0.0)]),
    "a lattice before it": lambda folder: write_lattice(folder / "1.fst", [((4,), 0.0)]),
    "plugin file": lambda folder: (folder / "mine.py").write_text(MINE + "\n"),
    "second of a list": lambda folder: (folder / "b").write_text("c"),
    "folder": lambda folder: (folder / "other" / "y").write_text("y"),
    "name in a folder": lambda folder: (folder / "other" / "x").rename(folder / "other" / "z"),
    "best checkpoint": lambda folder: (
        shutil.copytree(folder / "run" / "best", folder / "run" / "step")
        and (folder / "run" / "best").rename(folder / "run" / "last")
        and write_checkpoint(folder / "run" / "best", seed=3)
    ),
}
NO_CHANGES: dict[str, Callable[[Path], object]] = {
    "what only training reads": lambda folder: (folder / "run/best/optimizer.safetensors").write_bytes(b"other"),
    "the log of the run": lambda folder: (folder / "run/metrics.jsonl").write_text("{}\n{}\n"),
    "a later lattice": lambda folder: write_lattice(folder / "12.fst", [((4,), 0.0)]),
    "a file that a number may mean": lambda folder: (folder / "3").write_text("4"),
    "a time": lambda folder: os.utime(folder / "a", (1, 1)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_numbers_come_from_changes_it(folder: Path, change: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = signed(capsys)
    CHANGES[change](folder)
    if change == "tokenizer of the model":
        shutil.copy(folder / "run/best/tokenizer.spm", folder / "same.spm")
        before = before.partition("tokenizer:")[0]
        assert before.split("nmt(")[1][:30] != signed(capsys).split("nmt(")[1][:30]
    else:
        assert before != signed(capsys)


@pytest.mark.parametrize("change", NO_CHANGES)
def test_nothing_else_changes_it(folder: Path, change: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = signed(capsys)
    NO_CHANGES[change](folder)
    assert before == signed(capsys)


def test_a_distribution_bears_its_version() -> None:
    found = signature.versions([Entry("predictor", "x", "pluggy", "mine"), Entry("decoder", "y", "nowhere", "mine")])
    assert found["plugins"] == f"pluggy:{version('pluggy')},nowhere:unknown"


def test_nothing_is_read_of_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert signature.digest(tmp_path / "pipe") == signature.digest(tmp_path / "none") == "none"
    assert signature.digest(f"{tmp_path}/{{id}}.fst") == "none"


def git(folder: Path, *args: str) -> str:
    done = subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b", *args], cwd=folder, capture_output=True, text=True,
        env={**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_commit_is_the_one_that_git_says(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    clone.mkdir()
    assert signature.commit(clone) is None
    git(clone, "init", "-q", "-b", "main")
    assert signature.commit(clone) is None, "there is none yet"
    git(clone, "commit", "-q", "--allow-empty", "-m", "first")
    first = git(clone, "rev-parse", "HEAD")
    assert signature.commit(clone) == first
    git(clone, "branch", "side/line")
    git(clone, "worktree", "add", "-q", "../tree", "side/line")
    git(clone, "commit", "-q", "--allow-empty", "-m", "second")
    assert signature.commit(clone) == git(clone, "rev-parse", "HEAD") != first
    assert signature.commit(tmp_path / "tree") == first
    git(clone, "pack-refs", "--all")
    assert signature.commit(clone) == git(clone, "rev-parse", "HEAD")
    assert signature.commit(tmp_path / "tree") == first
    git(clone, "checkout", "-q", "--detach", first)
    assert signature.commit(clone) == first


def test_a_checkout_says_what_its_source_is(tmp_path: Path) -> None:
    assert signature._checkout(tmp_path) == ""
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("a" * 40 + "\n")
    (tmp_path / "sgdec").mkdir()
    for source in ("x = 1", "x = 2"):
        (tmp_path / "sgdec" / "x.py").write_text(source)
        signature._checkout.cache_clear()
        expected = sha(b"sgdec/x.py\n" + source.encode())
        assert signature._checkout(tmp_path) == f"+g{'a' * 12}.{expected}"
    signature._checkout.cache_clear()


def test_symbolic_runs_name_no_library_that_they_do_not_load(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("3\n")
    run = ["decode", "--predictors", "wc", "--vocab-size", "5", "--input-format", "ids", "in"]
    done = subprocess.run([sys.executable, "-m", "sgdec.cli", *run], cwd=tmp_path, capture_output=True, text=True)
    line = done.stderr.splitlines()[-1]
    assert line.startswith(f"signature: sgdec:{sgdec.__version__.partition('+')[0]}")
    assert "torch" not in line and "threads" not in line


def test_scores_of_given_outputs_come_from_no_decoder(folder: Path) -> None:
    (folder / "ids").write_text("4\n")
    line = ["--predictors", "fst", "--fst.path", "3.fst", "--vocab-size", "9", "--input-format", "ids"]
    for command, files in (("decode", ["ids"]), ("score", ["--target-format", "ids", "ids", "ids"])):
        assert main([command, *line, "--signature", f"of-{command}", *files]) == 0
    assert "|decoder:beam" in (folder / "of-decode").read_text()
    assert "decoder:" not in (folder / "of-score").read_text()


def test_what_is_in_a_cache_does_not_matter(tmp_path: Path) -> None:
    """Otherwise a run that has filled it could not be resumed."""
    given = {"pattern": "a+", "cache": str(tmp_path)}
    before = signature.part("regex", "regex", given, given)
    (tmp_path / "entry.npz").write_bytes(b"x")
    assert signature.part("regex", "regex", given, given) == before == f"regex(pattern=a+,cache={tmp_path})"


def test_a_value_of_several_lines_leaves_it_one_line() -> None:
    assert signature.line({"predictors": "1*regex(pattern=(?x)a\r\n|b)", "seed": "0"}) == (
        "predictors:1*regex(pattern=(?x)a\\r\\n|b)|seed:0"
    )


def test_all_files_of_a_foreign_model_count(tmp_path: Path) -> None:
    """All weights that the index can name, the index, and each template."""
    names = ("config.json", "x.safetensors", "y.safetensors", "model.safetensors.index.json", "tokenizer.json")
    (tmp_path / "additional_chat_templates").mkdir()
    files = [tmp_path / name for name in (*names, "additional_chat_templates/default.jinja")]
    for file in files:
        file.write_text("{}")
    found = {signature.digest(tmp_path)}
    for file in files:
        file.write_text('{"a": 1}')
        found.add(signature.digest(tmp_path))
    assert len(found) == 1 + len(files)
    (tmp_path / "pytorch_model.bin").write_text("not read")
    assert signature.digest(tmp_path) in found
