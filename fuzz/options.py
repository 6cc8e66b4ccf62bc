"""The options of command lines: those of commands, from click, and those of plugins, from their host."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib import import_module
from typing import Any, get_args, get_origin

import click

from fuzz.files import NOT_READ, TARGETS
from sgdec.cli.main import COMMANDS
from sgdec.cli.paths import Read
from sgdec.plugins.host import Host
from sgdec.plugins.options import Option, describe, parameters


@cache
def commands() -> dict[tuple[str, ...], click.Command]:
    """All commands by the words that call them."""
    found: dict[tuple[str, ...], click.Command] = {}
    for name in COMMANDS:
        command = import_module(f"sgdec.cli.{name.replace('-', '_')}").command
        found[name,] = command
        if isinstance(command, click.Group):
            found |= {(name, inner): inside for inner, inside in command.commands.items()}
    return found


def words_of(args: Sequence[str]) -> tuple[str, ...]:
    """The words at the beginning of a call that name its command."""
    return tuple(args[:2]) if tuple(args[:2]) in commands() else tuple(args[:1])


def plugins_by_kind() -> dict[str, list[str]]:
    """The names of the bundled predictors, decoders and models."""
    found: dict[str, list[str]] = {}
    for entry in Host(autoload=False).names():
        found.setdefault(entry.kind, []).append(entry.name)
    return found


def options_of_plugins() -> dict[str, list[tuple[str, Option]]]:
    """By plugin, its name with each of its options; predictors also have weights."""
    host = Host(autoload=False)
    found: dict[str, list[tuple[str, Option]]] = {}
    for entry in host.names():
        weight = [Option("weight", "float", 1.0, "")] if entry.kind == "predictor" else []
        listed = [*describe(host.load(entry.kind, entry.name)), *weight]
        found.setdefault(entry.name, []).extend((entry.name, option) for option in listed)
    return found


def text_options_of_plugins() -> Iterator[tuple[set[str], str]]:
    """The plugin and name of every option that can be any text, because it may name a file."""
    host = Host(autoload=False)
    names: dict[type[Any], set[str]] = {}
    for entry in host.names():
        names.setdefault(host.load(entry.kind, entry.name), set()).add(entry.name)
    for cls, called in names.items():
        for name, _, annotation in parameters(cls):
            if takes_text(annotation):
                yield called, name


def takes_text(annotation: Any) -> bool:
    """Whether any string is valid: true for ``str | None``, false for a ``Literal``."""
    if annotation is str:
        return True
    return get_origin(annotation) is not None and any(map(takes_text, get_args(annotation)[: _types(annotation)]))


def _types(annotation: Any) -> int | None:
    """The number of arguments that are types: only the first argument of ``Annotated`` is one."""
    return 1 if hasattr(annotation, "__metadata__") else None


def text_options_of_commands() -> Iterator[tuple[str, str]]:
    """The command and name of every parameter that names an input, or can be any text and is not in `NOT_READ`."""
    for words, command in commands().items():
        for parameter in command.params:
            free = isinstance(parameter.type, click.types.StringParamType | Read)
            if free and parameter.name not in NOT_READ:
                yield " ".join(words), str(parameter.name)


def damaged_by_plugin() -> set[tuple[str, str]]:
    """Plugin and option of each value that names something damaged in a target of `fuzz.files`."""
    found = set()
    for target in TARGETS:
        for flag, value in zip(target.args, target.args[1:], strict=False):
            if flag.startswith("--") and "." in flag and names(value, target.damaged):
                plugin, _, option = flag.removeprefix("--").partition(".")
                found.add((plugin, option))
    return found


def damaged_by_command() -> set[tuple[str, str]]:
    """The same for the parameters of commands."""
    found = set()
    known = commands()
    for target in TARGETS:
        words = words_of(target.args)
        command = known[words]
        args = list(target.args[len(words) :])
        context = click.Context(command)
        command.parse_args(context, args)
        for name, value in context.params.items():
            several = value if isinstance(value, tuple) else (value,)
            values = [item for each in several for item in (each if isinstance(each, tuple) else (each,))]
            if any(isinstance(item, str) and names(item, target.damaged) for item in values):
                found.add((" ".join(words), name))
    return found


def names(value: str, paths: Iterable[str]) -> bool:
    """Whether a value is one of these paths, a folder around one, or a pattern for it."""
    pattern = re.escape(value).replace(re.escape("{id}"), r"\d+") + "(/.*)?"
    return any(re.fullmatch(pattern, path) for path in paths)
