"""The promise of commands inside of sentences (`sgdec decode --nbest 3`): they exist, with their options and plugins.

Blocks of code are tested by `test_docs.py`. Words in capitals stand for something, as do `...`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path

import click
import pytest

from sgdec.cli.main import COMMANDS, main
from sgdec.errors import SgdecError
from sgdec.plugins.host import Host
from sgdec.plugins.options import describe, flag, separate_dotted, split_dotted
from sgdec.plugins.predictor_list import EntryOptions, parse_predictors
from tests.helpers.places import ROOT

PAGES = [
    ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md")),
]  # fmt: skip
BLOCK = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"(`+)(.+?)\1", re.DOTALL)
PLUGINS = {"--predictors": "predictor", "--decoder": "decoder", "--model": "model", "--engine": "engine"}
"""Options whose values are names of plugins."""
MADE = {"mine", "gru-lm"}
"""Plugins that pages tell how to write."""
RUNS = re.compile(r"sgdec (plugins( [a-z]+)?|[a-z -]*--help)")
"""Commands that need no file of the reader."""


def commands_in(page: Path) -> Iterator[str]:
    text = BLOCK.sub("", page.read_text("utf-8"))
    for _, code in INLINE.findall(text):
        command = " ".join(code.split())
        if command.startswith("sgdec "):
            yield command


FOUND = sorted({(str(page.relative_to(ROOT)), command) for page in PAGES for command in commands_in(page)})


def complaint(command: str) -> str | None:
    """What is wrong with a command, or None."""
    _, name, *words = shlex.split(command)
    if name == "COMMAND" or name.startswith("-"):
        return None
    if name not in COMMANDS:
        return f"no command {name}"
    asked: click.Command = import_module(f"sgdec.cli.{name.replace('-', '_')}").command
    if isinstance(asked, click.Group) and words and words[0] != "...":
        if words[0] not in asked.commands:
            return f"no command {name} {words[0]}"
        asked = asked.commands[words.pop(0)]
    try:
        return _of_options(asked, [word for word in words if word != "..."])
    except SgdecError as error:
        return str(error)


def _of_options(command: click.Command, words: Sequence[str]) -> str | None:
    plain, dotted = separate_dotted(words)
    flags = {each: option for option in command.params for each in (*option.opts, *option.secondary_opts)}
    for place, word in enumerate(plain):
        if not word.startswith("--") or word == "--help":
            continue
        if word not in flags:
            return f"no option {word}"
        value = plain[place + 1] if place + 1 < len(plain) else ""
        if value and not value.isupper() and word in PLUGINS:
            _require_plugins(PLUGINS[word], value)
    for part, options in split_dotted(dotted).items():
        known = _options_of(part)
        for option in options:
            if option not in known:
                return f"no option {flag(option, part)}"
    return None


def _require_plugins(kind: str, value: str) -> None:
    names = [value]
    if kind == "predictor":
        names = [part.plugin for entry in parse_predictors(value) for part in entry.parts]
    for name in names:
        if name not in MADE:
            Host(autoload=False).find(kind, name)


@cache
def _options_of(part: str) -> set[str]:
    """Of all plugins of a name, with a number or without."""
    host = Host(autoload=False)
    entries = [entry for entry in host.names() if entry.name == part.rstrip("0123456789")]
    found = {option.name for entry in entries for option in describe(host.load(entry.kind, entry.name))}
    return found | {option.name for option in describe(EntryOptions)}


@pytest.mark.parametrize(("page", "command"), FOUND)
def test_a_command_in_a_sentence_exists(page: str, command: str) -> None:
    assert complaint(command) is None


@pytest.mark.parametrize("command", sorted({command for _, command in FOUND if RUNS.fullmatch(command)}))
def test_a_command_that_needs_no_file_runs(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(shlex.split(command)[1:]) == 0
    assert capsys.readouterr().out


def test_the_readme_installs_the_folder_that_new_plugin_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    (name,) = re.findall(r"`sgdec new-plugin (\w+)`", readme)
    monkeypatch.chdir(tmp_path)
    assert main(["new-plugin", name]) == 0
    (written,) = tmp_path.iterdir()
    assert f"`pip install -e {written.name}`" in readme and f"the distribution `{written.name}`" in readme
    assert f"the folder {written.name}" in (ROOT / "docs" / "howto" / "decoding.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("command", "wrong"),
    [
        ("sgdec decod", "no command decod"),
        ("sgdec course mark", "no command course mark"),
        ("sgdec decode --nbset 3", "no option --nbset"),
        ("sgdec decode --beam.sise 3", "no option --beam.sise"),
        ("sgdec decode --predictors nmt,fts ...", "no predictor named 'fts'"),
        ("sgdec decode --decoder baem", "no decoder named 'baem'"),
        ("sgdec train --model NAME", None),
        ("sgdec decode --predictors l2r=nmt,fsttok:fst --fst.path x --nmt2.weight 3 ...", None),
    ],
)
def test_wrong_commands_are_found(command: str, wrong: str | None) -> None:
    found = complaint(command)
    assert found is None if wrong is None else found is not None and found.startswith(wrong)
