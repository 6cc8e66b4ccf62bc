"""Generate the reference pages from sgdec itself before Sphinx reads the pages: commands, plugins and public modules.

The files are in ``docs/reference/{commands,predictors,decoders,models,engines,utilities,api}``, which git ignores.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from configparser import ConfigParser
from importlib import import_module
from pathlib import Path

import click
from docstrings import inline, to_rst
from sphinx.application import Sphinx
from sphinx.util.typing import ExtensionMetadata

import sgdec
from sgdec.cli.main import COMMANDS, SECTIONS
from sgdec.cli.sections import Sectioned, default_as_typed
from sgdec.plugins import hookspecs
from sgdec.plugins.host import HOOK_OF, HOOKS, Entry, Host
from sgdec.plugins.options import Option, describe
from sgdec.plugins.summaries import summaries

ROOT = Path(__file__).parents[2]
KIT = ("sgdec.testing", "sgdec.testing.seq2seq_contract", "sgdec.testing.language_model_contract")
"""Modules that are also public, for the tests of plugins."""
TRACE = "sgdec.trace"
"""The package that reads traces."""
FACES = ("sgdec.files", "sgdec.vocabularies")
"""Public modules that collect names of others."""
FORMATS = ROOT / "docs" / "reference" / "file-formats.md"
PROTOCOL = ("Predictor", "BatchPredictor", "SearchSpace", "ABC", "object", "tuple")
"""Classes whose members are described on other pages."""


def public_modules() -> list[str]:
    """The modules that plugins may import, according to import-linter's contract, those that their tests may
    import, and the one that reads traces."""
    settings = ConfigParser(interpolation=None)
    settings.read_string((ROOT / "setup.cfg").read_text())
    contracts = settings.values()
    (contract,) = (section for section in contracts if section.get("name") == "Plugins import public names only")
    lines = contract["ignore_imports"].splitlines()
    patterns = [line.removeprefix("** -> ") for line in lines if line.startswith("** -> ")]
    return [*(name for pattern in patterns for name in _matching(pattern)), *KIT, TRACE]


def _matching(pattern: str) -> list[str]:
    if not pattern.endswith(".*"):
        return [pattern]
    package = pattern.removesuffix(".*")
    files = sorted((ROOT / package.replace(".", "/")).glob("*.py"))
    return [package if file.stem == "__init__" else f"{package}.{file.stem}" for file in files]


def defining_modules() -> list[str]:
    """Other modules with pages: those that define names of `FACES`, and those that define formats of files."""
    homes = {home for face in FACES for home in _collected(face)}
    formats = set(re.findall(r"\]\(api/([\w.]+)\)", FORMATS.read_text()))
    return sorted((homes | formats) - set(public_modules()))


def _collected(face: str) -> dict[str, list[str]]:
    """The names that a module collects, by the modules that define them."""
    tree = ast.parse((ROOT / f"{face.replace('.', '/')}.py").read_text())
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module != "__future__"]
    return {node.module or "": [alias.name for alias in node.names] for node in imports}


def heading(text: str, line: str = "=") -> str:
    return f"{text}\n{line * len(text)}"


# Commands


def command_page(name: str) -> str:
    """A command, with its subcommands as sections."""
    command: Sectioned = import_module(f"sgdec.cli.{name.replace('-', '_')}").command
    context = click.Context(command, info_name=f"sgdec {name}", max_content_width=100)
    return "\n\n".join(_command(command, context, "="))


def _command(command: Sectioned, context: click.Context, line: str) -> Iterator[str]:
    yield heading(context.command_path, line)
    yield ".. code-block:: text\n\n   " + command.get_usage(context).removeprefix("Usage: ").replace("\n", "\n   ")
    yield to_rst(inspect.cleandoc(command.help or ""))
    yield f".. program:: {context.command_path}"
    for section, rows in command.sections(context).items():
        yield f".. rubric:: {section}"
        for typed, does in rows:
            yield f".. option:: {typed}\n\n   {inline(' '.join(does.split()))}"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert isinstance(below, Sectioned)
            yield from _command(below, click.Context(below, context, name), "-")


def _summary_of_commands() -> Iterator[str]:
    for section, commands in SECTIONS.items():
        rows = [(f":doc:`sgdec {name} <commands/{name}>`", inline(line)) for name, line in commands.items()]
        yield f".. rubric:: {section}"
        yield list_table(("Command", "What it does"), rows, ":width: 100%", ":widths: 27 73")  # aligned columns


# Plugins


def folder_of(kind: str) -> str:
    """The folder with the pages of a kind of plugins, such as ``decoders``."""
    return HOOK_OF[kind].removeprefix("sgdec_")


def plugin_page(host: Host, entry: Entry) -> str:
    """The page of a plugin: its class, the docstrings of its module and class, its options and presets."""
    cls = host.load(entry.kind, entry.name)
    documents = [vars(thing).get("__doc__") for thing in (sys.modules[cls.__module__], cls)]
    options = describe(cls)
    if entry.kind == "predictor":
        options.append(Option("weight", "float", 1.0, "what its scores are multiplied by"))
    parts = [
        heading(entry.name),
        f"*{entry.kind}*, ``{cls.__module__}.{cls.__qualname__}``",
        *(to_rst(inspect.cleandoc(document)) for document in documents if document),
    ]
    if options:
        parts += [heading("Options", "-"), _table(entry.name, options)]
    if presets := getattr(cls, "presets", {}):
        rows = [(f"``{name}``", _typed(entry.name, given)) for name, given in presets.items()]
        parts += [heading("Presets", "-"), list_table(("Preset", "Stands for"), rows)]
    return "\n\n".join(parts)


def _typed(name: str, given: dict[str, object]) -> str:
    return " ".join(f"``--{name}.{option} {str(value).lower()}``" for option, value in given.items())


def _table(name: str, options: list[Option]) -> str:
    rows = [
        (f"``--{name}.{option.name}``", f"``{option.type}``", _default(option), inline(option.description))
        for option in options
    ]
    return list_table(("Option", "Type", "Default", "What it is"), rows)


def _default(option: Option) -> str:
    """The default as it would be typed on the command line."""
    if option.required:
        return "required"
    shown = default_as_typed(option.default)
    return f"``{shown}``" if shown else ""


def list_table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]], *settings: str) -> str:
    lines = [".. list-table::", "   :header-rows: 1", *(f"   {setting}" for setting in settings), ""]
    for row in [head, *rows]:
        lines += [f"   {'*' if number == 0 else ' '} - {cell}" for number, cell in enumerate(row)]
    return "\n".join(lines)


# Modules


def module_page(name: str) -> str:
    """The members of a public module; for ``sgdec.testing`` also those that it imports from its private modules."""
    options = [":members:", ":undoc-members:", ":show-inheritance:"]
    if name == "sgdec.testing":  # its contracts inherit from private modules, where their settings are described
        options.append(f":inherited-members: {', '.join(PROTOCOL)}")
    elif name != TRACE:
        options.append(":ignore-module-all:")
    return "\n   ".join([f"{heading(name)}\n\n.. automodule:: {name}", *options])


def face_page(name: str) -> str:
    """A module that collects names: which, and where they are described."""
    rows = [(f":doc:`{home}`", ", ".join(f"``{one}``" for one in names)) for home, names in _collected(name).items()]
    document = to_rst(inspect.cleandoc(import_module(name).__doc__ or ""))
    parts = [heading(name), f".. py:module:: {name}", document, list_table(("Described in", "Names"), rows)]
    return "\n\n".join(parts)


def package_page() -> str:
    """The page of ``import sgdec``: each name with its module; names that are in no other public module are
    documented here."""
    modules = public_modules()
    rows, here = [], []
    for name in sorted(set(sgdec.__all__) - {"__version__"}, key=str.lower):
        home = sgdec._HOME[name]
        elsewhere = getattr(getattr(sgdec, name), "__module__", home)
        place = next((module for module in (elsewhere, home) if module in modules), None)
        if place is None:
            here.append(name)
        rows.append((f":py:obj:`~{place or 'sgdec'}.{name}`", f":doc:`{place}`" if place else "below"))
    parts = [
        heading("sgdec"),
        to_rst(inspect.cleandoc(sgdec.__doc__ or "")),
        ".. py:module:: sgdec",
        list_table(("Name", "Described in"), rows),
    ]
    for name in here:
        thing = getattr(sgdec, name)
        if thing is hookspecs.hookimpl:
            parts.append(hook_section())
            continue
        directive = "autoclass" if inspect.isclass(thing) else "autofunction" if callable(thing) else "autodata"
        members = "\n   :members:\n   :undoc-members:" if inspect.isclass(thing) else ""
        parts.append(f".. {directive}:: sgdec.{name}{members}")
    return "\n\n".join(parts)


def hook_section() -> str:
    """The decorator of a plugin's functions, and what each function returns."""
    text = inspect.cleandoc(hookspecs.__doc__ or "").partition("\n\n")[2]
    body = [to_rst(text), *(f"``{hook}()``\n   {inline(_hook_doc(hook))}" for hook in HOOKS)]
    indented = "\n\n".join(body).replace("\n", "\n   ")
    return f".. py:decorator:: hookimpl\n\n   {indented}"


def _hook_doc(hook: str) -> str:
    return inspect.cleandoc(getattr(hookspecs, hook).__doc__ or "")


# All of them


def pages() -> Iterator[tuple[str, str]]:
    """The path below ``docs/reference`` and the text of each page."""
    for name in COMMANDS:
        yield f"commands/{name}.rst", command_page(name)
    host = Host(autoload=False)
    for entry in host.names():
        yield f"{folder_of(entry.kind)}/{entry.name}.rst", plugin_page(host, entry)
    engines = host.names("engine")
    lines = zip(engines, summaries(engines), strict=True)
    rows = [(f":doc:`engines/{entry.name}`", inline(line)) for entry, line in lines]
    yield "engines/summary.txt", list_table(("Name", "What it is"), rows)
    yield "commands/summary.txt", "\n\n".join(_summary_of_commands())
    for module in [*public_modules(), *defining_modules()]:
        page = package_page() if module == "sgdec" else face_page(module) if module in FACES else module_page(module)
        yield f"api/{module}.rst", page
    modules = [(f":doc:`api/{module}`", inline(_first_line(module))) for module in public_modules()]
    yield "api/summary.txt", list_table(("Module", "What it is"), modules)


def _first_line(module: str) -> str:
    document = inspect.cleandoc(import_module(module).__doc__ or "")
    return " ".join(document.partition("\n\n")[0].split())


def write(app: Sphinx) -> None:
    """Write only changed pages, so that a second build is fast, and remove obsolete pages."""
    folder = Path(app.srcdir) / "reference"
    written = dict(pages())
    for path, text in written.items():
        file = folder / path
        file.parent.mkdir(exist_ok=True)
        if not file.is_file() or file.read_text() != f"{text}\n":
            file.write_text(f"{text}\n")
    for name in {path.partition("/")[0] for path in written}:
        for file in (folder / name).iterdir():
            if f"{name}/{file.name}" not in written:
                file.unlink()


def setup(app: Sphinx) -> ExtensionMetadata:
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
