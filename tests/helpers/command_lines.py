"""Whether a command line of the documentation or of a help text exists: its command, options and plugins."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from functools import cache
from importlib import import_module

import click

from sgdec.cli.main import COMMANDS
from sgdec.cli.paths import Read
from sgdec.errors import SgdecError
from sgdec.plugins.host import Host
from sgdec.plugins.options import describe, flag, separate_dotted, split_dotted
from sgdec.plugins.predictor_list import EntryOptions, parse_predictors

PLUGINS = {"--predictors": "predictor", "--decoder": "decoder", "--model": "model", "--engine": "engine"}
"""Options whose values are names of plugins, or in some commands files."""
MADE = {"mine", "gru-lm"}
"""Plugins that pages tell how to write."""


def complaint(command: str) -> str | None:
    """What is wrong with a command, or None."""
    _, name, *words = shlex.split(command)
    if name == "corpus" and "--" in words:
        own, inner = words[: words.index("--")], words[words.index("--") + 1 :]
        work = "score" if "--score" in own else "decode"
        return complaint(shlex.join(["sgdec", name, *own])) or complaint(shlex.join(["sgdec", work, *inner]))
    if name == "COMMAND" or name.startswith("-"):
        return None
    if name not in COMMANDS:
        return f"no command {name}"
    asked: click.Command = import_module(f"sgdec.cli.{name.replace('-', '_')}").command
    if isinstance(asked, click.Group) and words and words[0] != "..." and not words[0].startswith("-"):
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
        if value and not value.isupper() and word in PLUGINS and not isinstance(flags[word].type, Read):
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
