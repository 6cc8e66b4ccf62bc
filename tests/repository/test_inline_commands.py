"""The promise of commands inside of sentences (`sgdec decode --nbest 3`): they exist, with their options and plugins.

Blocks of code are tested by `test_docs.py`. Words in capitals stand for something, as do `...`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from sgdec.cli.main import main
from tests.helpers.command_lines import complaint
from tests.helpers.places import ROOT

PAGES = [
    ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md")),
]  # fmt: skip
BLOCK = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"(`+)(.+?)\1", re.DOTALL)
RUNS = re.compile(r"sgdec (plugins( [a-z]+)?|[a-z -]*--help)")
"""Commands that need no file of the reader."""


def commands_in(page: Path) -> Iterator[str]:
    text = BLOCK.sub("", page.read_text("utf-8"))
    for _, code in INLINE.findall(text):
        command = " ".join(code.split())
        if command.startswith("sgdec "):
            yield command


FOUND = sorted({(str(page.relative_to(ROOT)), command) for page in PAGES for command in commands_in(page)})


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
        ("sgdec demo --quick", None),
        ("sgdec demo --quik", "no option --quik"),
        ("sgdec decode --nbset 3", "no option --nbset"),
        ("sgdec decode --beam.sise 3", "no option --beam.sise"),
        ("sgdec decode --predictors nmt,fts ...", "no predictor named 'fts'"),
        ("sgdec decode --decoder baem", "no decoder named 'baem'"),
        ("sgdec train --model NAME", None),
        ("sgdec cluster --model run/best", None),
        ("sgdec corpus a.txt --output DIR -- --nbest 3", None),
        ("sgdec corpus a.txt --output DIR -- --nbset 3", "no option --nbset"),
        ("sgdec corpus a.txt --nbest 3 -- --nbest 3", "no option --nbest"),
        ("sgdec decode --predictors l2r=nmt,fsttok:fst --fst.path x --nmt2.weight 3 ...", None),
    ],
)
def test_wrong_commands_are_found(command: str, wrong: str | None) -> None:
    found = complaint(command)
    assert found is None if wrong is None else found is not None and found.startswith(wrong)
