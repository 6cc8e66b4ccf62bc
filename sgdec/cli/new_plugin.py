"""``sgdec new-plugin``: writes a plugin distribution with a predictor, a decoder and tests that pass."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from string import Template

import click

from sgdec.cli.paths import Command, Written
from sgdec.errors import UsageError
from sgdec.io.writing import write_whole
from sgdec.plugins.host import Host

FILES = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "$module.py": "module.py",
    "tests/test_$module.py": "test.py",
}
"""Each file of the new distribution and its template in ``sgdec/templates/plugin``."""


@click.command("new-plugin", cls=Command)
@click.argument("name")
@click.option(
    "--directory",
    type=Written(new=True),
    metavar="D",
    help="Folder to write to, new or empty; default: sgdec-NAME.",
)
def command(name: str, directory: str | None) -> None:
    """Write a distribution with the predictor NAME, the decoder NAME-search, and their tests, which pass."""
    folder = Path(directory or f"sgdec-{name}")
    write_plugin(name, folder)
    commands = [f"pip install -e '{folder}[test]'", f"sgdec plugins {name}", f"pytest '{folder}'"]
    click.echo("\n    ".join([f"Wrote {folder}. Next:\n", *commands]))


def write_plugin(name: str, folder: Path) -> None:
    """Fill in the templates. Raises UsageError if the name is invalid or exists already, and if the folder is not
    empty."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise UsageError(
            f"{name!r} is not a plugin name; expected lower-case letters, digits and hyphens, such as my-idea."
        )
    for entry in Host().names():
        if (entry.kind, entry.name) in {("predictor", name), ("decoder", f"{name}-search")}:
            raise UsageError(
                f"{entry.kind} {entry.name!r} of {entry.distribution} already exists; choose another name."
            )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"--directory {folder}: not an empty folder. Nothing was written.")
    words = {
        "name": name,
        "module": f"sgdec_{name.replace('-', '_')}",
        "Class": "".join(word.capitalize() for word in name.split("-")),
    }
    templates = files("sgdec") / "templates" / "plugin"
    for path, template in FILES.items():
        target = folder / Template(path).substitute(words)
        target.parent.mkdir(parents=True, exist_ok=True)
        text = (templates / f"{template}.template").read_text(encoding="utf-8")
        write_whole(target, Template(text).substitute(words))
