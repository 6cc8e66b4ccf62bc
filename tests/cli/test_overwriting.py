"""The promise of every command: it writes nothing that it reads, and refuses before it opens anything."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from sgdec.cli.main import COMMANDS, main
from sgdec.cli.paths import Command, Group, Read, Written
from tests.helpers.commands import ALL, parameters

TEXTS = {
    "decode": {"predictors", "decoder", "range", "device", "trace_sentences"},
    "diagnose": {"predictors", "decoder", "range", "device", "viewer", "trace_sentences"},
    "compare": {"metrics"},
    "corpus": {"engine", "ray_address"},
    "view": {"sentences"},
    "score": {"predictors", "device"},
    "sweep": {"predictors", "decoder", "device"},
    "tune": {"predictors", "decoder", "device", "alphas"},
    "train": {"model", "preset", "device", "threads"},
    "tokenizer": {"normalization"},
    "ngrams": {"range_"},
    "cluster": {"device"},
    "plugins": {"name"},
    "new-plugin": {"name"},
    "course zip": {"assignment"},
    "course grade": {"assignment"},
}
"""Parameters of free text that name neither a file nor a folder."""
CONTENT = "# 3 4\n"
"""Of every file that is read: also an empty configuration."""


def is_folder(written: click.Parameter) -> bool:
    return isinstance(written.type, Written) and bool(written.type.new or written.type.inside)


PAIRS = [
    (path, written.name, read.name, link)
    for path, command in ALL.items()
    for written in parameters(command, Written)
    for read in parameters(command, Read)
    for link in ("name", "symbolic", "hard", "url")
    if not (link == "hard" and is_folder(written)) and (link != "url" or path[0].startswith("corpus"))
]


def call(path: tuple[str, ...], given: dict[str, str]) -> list[str]:
    """A call with these values; other required ones name a file of their own, or are the first choice or number."""
    options, arguments = list(path), []
    for parameter in ALL[path].params:
        name = parameter.name or ""
        if name not in given and not parameter.required:
            continue
        if isinstance(parameter.type, click.Choice):
            options += [parameter.opts[0], parameter.type.choices[0]]
            continue
        if isinstance(parameter.type, click.IntRange):
            options += [parameter.opts[0], str(parameter.type.min)]
            continue
        several = [given.get(name, f"{name}.{i}") for i in range(parameter.nargs if parameter.nargs > 1 else 1)]
        if isinstance(parameter.type, Read):
            for value in several:
                if not os.path.exists(value):
                    Path(value).write_text(CONTENT)
        if isinstance(parameter, click.Argument):
            arguments += several
        else:
            options += [parameter.opts[0], *several]
    return [*options, *arguments]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_parameter_says_whether_it_names_what_is_read_or_what_is_written(path: tuple[str, ...]) -> None:
    command = ALL[path]
    assert isinstance(command, Command | Group), f"{path} is no Command of sgdec.cli.paths: nothing guards its files"
    free = {parameter.name for parameter in command.params if parameter.type is click.STRING}
    assert free == TEXTS.get(" ".join(path), set()), "neither Read nor Written; if it names no file, list it in TEXTS"
    for parameter in command.params:
        assert type(parameter.type) not in (click.Path, click.File), f"{parameter.name}: say Read or Written"


def test_all_commands_are_walked() -> None:
    assert {path[0] for path in ALL} == set(COMMANDS) and ("demo", "lattices") in ALL
    assert len(PAIRS) > 100


def refused(args: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    assert main(args) == 2, capsys.readouterr()
    error = capsys.readouterr().err
    assert error.startswith("Error: ") and error.count("\n") == 1
    assert {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()} == before
    return error


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "written", "read", "link"), PAIRS, ids=lambda part: part if isinstance(part, str) else " ".join(part)
)
def test_no_command_writes_what_it_reads(
    path: tuple[str, ...], written: str, read: str, link: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("same").write_text(CONTENT)
    other = "./same" if link == "name" else "other"
    if link == "symbolic":
        Path("other").symlink_to("same")
    elif link == "hard":
        Path("other").hardlink_to("same")
    elif link == "url":
        other = f"file://{Path('same').resolve()}"
    assert "Write to another file." in refused(call(path, {written: other, read: "same"}), capsys)


RUN = ["--predictors", "wc", "--vocab-size", "5", "--input-format", "ids"]
DECODE = ["decode", *RUN]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([*DECODE, "--output", "in", "in"], "--output in is the input."),
        ([*DECODE, "--signature", "in", "in"], "--signature in is the input."),
        ([*DECODE, "--output", "x", "--signature", "./x", "in"], "--output x and --signature ./x are the same file."),
        ([*DECODE, "--output", "4.fst", "--fst.path", "{id}.fst", "in"], "--output 4.fst is what --fst.path reads."),
        ([*DECODE, "--output", "9.fst", "--fst.path", "{id}.fst", "in"], "--output 9.fst is what --fst.path reads."),
        ([*DECODE, "--output", "{id}.fst", "--fst.path", "4.fst", "in"], "{id}.fst is what --fst.path reads."),
        ([*DECODE, "--output", "{id}.fst", "--fst.path", "links/{id}.fst", "in"], "is what --fst.path reads."),
        ([*DECODE, "--output", "links/{id}.fst", "--fst.path", "{id}.fst", "in"], "is what --fst.path reads."),
        ([*DECODE, "--output", "new/{id}.fst", "--fst.path", "new/{id}.fst", "in"], "is what --fst.path reads."),
        ([*DECODE, "--output", "folder/new", "--nmt.model", "folder", "in"], "is in a folder that --nmt.model reads"),
        ([*DECODE, "--output", "folder/1/x", "--rtn.path", "folder/{id}", "in"], "is what --rtn.path reads."),
        ([*DECODE, "--output", "4.fst", "--x.paths", "in,4.fst", "in"], "--output 4.fst is what --x.paths reads."),
        ([*DECODE, "--output", "in", "--config", "run.toml"], "--output in is the input."),
        ([*DECODE, "--output", "4.fst", "--config", "run.toml"], "--output 4.fst is what --y.paths reads."),
        ([*DECODE, "--config", "output.toml", "in"], "--output in is the input."),
        (["cluster", "--model", "m", "--input", "folder/clusters.json", "--output", "folder"], "is what --input"),
        (["train", "--train", "a", "--valid", "a", "--tokenizer", "a", "--start", "folder/step-1", "--output",
          "folder"], "--output folder is what --start-from reads."),
    ],
)  # fmt: skip
def test_patterns_folders_lists_and_configurations_count(
    args: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("in", "4.fst", "folder/config.json", "folder/1/a", "folder/clusters.json", "m", "a", "links/other"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(CONTENT)
    Path("folder/step-1").mkdir()
    Path("links/4.fst").symlink_to("../4.fst")
    Path("run.toml").write_text('input = "in"\n[y]\npaths = ["a", "4.fst"]\n')
    Path("output.toml").write_text('output = "in"\n')
    assert message in refused(args, capsys)


@pytest.mark.parametrize(
    "args",
    [
        ["--output", "in.out", "in"],
        ["--output", "/dev/stdout", "in"],
        ["--output", "{id}.out", "--output-format", "fst", "in"],
        ["--output", "out", "--wc.token", "3", "in"],  # a file of that name is no matter
    ],
)
def test_other_files_are_no_matter(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    Path("in").write_text("3\n4\n")
    Path("3").write_text("")
    assert main([*DECODE, *args]) == 0, capsys.readouterr().err


@pytest.mark.parametrize("command", ["average", "quantize", "export --to hf"])
def test_a_new_folder_may_be_inside_the_folder_of_a_run(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("run").mkdir()
    main([*command.split(), "run", "--output", "run/new"])
    assert "run: this is not a checkpoint" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shell", "message"),
    [
        (
            "{decode} in > in",
            "standard output goes to the file that INPUT in reads. The shell has already emptied it",
        ),
        ("{decode} in >> in", "standard output goes to the file that INPUT in reads. Write to another file."),
        ("{decode} --config in x 2>> in", None),
        ("{decode} < in >> in", "standard output goes to the file that standard input reads."),
        ("{decode} - < in --output in", "--output in is the input."),
        ("{decode} --output in < in", "--output in is the input."),
        ("{decode} --output x in > x", "standard output and --output x are the same file."),
        ("{decode} --output x in > x 2>&1", None),
        ("{evaluate} --reference in x >> in", "standard output goes to the file that --reference in reads."),
        ("{evaluate} --reference x < in >> in", "standard output goes to the file that standard input reads."),
    ],
)
def test_redirections_count(shell: str, message: str | None) -> None:
    for name in ("in", "x"):
        Path(name).write_text("3\n")
    python = f"{sys.executable} -m sgdec.cli"
    line = shell.format(decode=" ".join([python, *DECODE]), evaluate=f"{python} evaluate")
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True)
    assert done.returncode == 2, done
    if message is not None:
        assert message in done.stderr and done.stderr.count("\n") == 1
    assert Path("in").read_text().startswith("3\n") or "> in" in shell
