"""What has not run on its hardware says so in one form: the help of options and a table of docs/howto/training.md."""

from __future__ import annotations

import re
from importlib import import_module

import click

from sgdec.cli.main import COMMANDS
from tests.helpers.places import ROOT

DOCS = ROOT / "docs" / "howto" / "training.md"


def in_help() -> set[tuple[str, str, str]]:
    """Option, command, and what its help says in brackets."""
    found = set()
    for name in COMMANDS:
        command = import_module(f"sgdec.cli.{name.replace('-', '_')}").command
        for option in command.params:
            help = option.help if isinstance(option, click.Option) else None
            marks = re.findall(r"\(experimental: ([^()]+)\)", help or "")
            assert len(marks) == len(re.findall("experimental", help or "", re.IGNORECASE)), option.opts
            found |= {(option.opts[0], name, mark) for mark in marks}
    return found


def in_docs() -> set[tuple[str, str, str]]:
    rows = re.findall(r"^\| `(--[a-z-]+)` \| (.*?) \| (.*?) \| (.+) \|$", DOCS.read_text("utf-8"), re.MULTILINE)
    return {(option, name, mark) for option, commands, mark, _ in rows for name in re.findall(r"`(.*?)`", commands)}


def test_the_help_and_the_table_mark_the_same_options() -> None:
    assert in_help() == in_docs()
    assert {option for option, _, _ in in_help()} >= {"--workspace", "--parallel", "--device"}


ON_GPUS = re.compile(r"\bGPUs?\b|--device cuda")
STATEMENT = "were tried on one GPU"
"""The one statement about GPUs, in the section that other pages link to."""


def test_every_page_that_speaks_of_gpus_leads_to_the_one_statement() -> None:
    section = DOCS.read_text("utf-8").partition("## Experimental")[2]
    assert STATEMENT in " ".join(section.split())
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]
    speaking = [page for page in pages if ON_GPUS.search(page.read_text("utf-8"))]
    silent = [page for page in speaking if "#experimental)" not in page.read_text("utf-8")]
    assert len(speaking) >= 5 and silent == []
