"""``sgdec new-plugin``: writes a plugin distribution with a predictor, a decoder and tests that pass."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Mapping
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from string import Template

import click

import sgdec
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
    metavar="DIR",
    help="Folder to write to, new or empty; default: sgdec-NAME.",
)
def command(name: str, directory: str | None) -> None:
    """Write a distribution with the predictor NAME, the decoder NAME-search, and their tests, which pass.

    \b
    sgdec new-plugin my-idea

    NAME is lower-case words of a to z and 0 to 9 with single hyphens between them, a letter first, such as my-idea.
    """
    folder = Path(directory or f"sgdec-{name}")
    write_plugin(name, folder)
    commands = [f"pip install -e '{folder}[test]'", f"sgdec plugins {name}", f"pytest '{folder}'"]
    click.echo("\n    ".join([f"Wrote {folder}. Next:\n", *commands]))


def write_plugin(name: str, folder: Path) -> None:
    """Fill in the templates. Raises UsageError if the name is invalid or exists already, and if the folder is not
    empty."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise UsageError(
            f"{name!r} is not a plugin name. Expected lower-case words of a to z and 0 to 9 with single hyphens "
            "between them, a letter first, such as my-idea."
        )
    templates = files("sgdec") / "templates" / "plugin"
    texts = {
        path: (templates / f"{template}.template").read_text(encoding="utf-8") for path, template in FILES.items()
    }
    words = {
        "name": name,
        "module": f"sgdec_{name.replace('-', '_')}",
        "Class": "".join(word.capitalize() for word in name.split("-")),
        "oldest": sgdec.__version__.partition("+")[0],  # a development version comes before its release
    }
    if taken := _taken(words, texts.values()):
        raise UsageError(f"{taken}; choose another name.")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"--directory {folder}: not an empty folder. Nothing was written.")
    for path, text in texts.items():
        target = folder / Template(path).substitute(words)
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, Template(text).substitute(words))


def _taken(words: Mapping[str, str], texts: Iterable[str]) -> str:
    """The plugin, module or class that has a name of the new plugin already; empty if there is none. Predictors and
    decoders share their options, ``--NAME.OPTION``."""
    name, module, made = words["name"], words["module"], words["Class"]
    for entry in Host().names():
        if entry.kind in {"predictor", "decoder"} and entry.name in {name, f"{name}-search"}:
            return f"{entry.kind} {entry.name!r} of {entry.distribution} already exists"
    if find_spec(module):
        return f"{name!r}: its module {module} already exists"
    imported = re.compile(rf"^from [\w.]+ import .*\b{made}\b", re.MULTILINE)
    if keyword.iskeyword(made) or any(map(imported.search, texts)):
        return f"{name!r}: its class {made} has the name of another thing in its module or tests"
    return ""
