"""``sgdec plugins``: lists, checks and describes the installed plugins."""

from __future__ import annotations

import inspect
import logging
import shutil
import sys
from collections.abc import Mapping, Sequence

import click

from sgdec.cli.paths import Command, Read
from sgdec.cli.sections import default_as_typed
from sgdec.errors import UsageError
from sgdec.plugins.host import KINDS, Entry, Host, name_of
from sgdec.plugins.predictor_list import EntryOptions
from sgdec.plugins.summaries import summaries
from sgdec.suggest import suggest

log = logging.getLogger(__name__)

INNER = (
    "A decoder is NAME or NAME:OPTION=VALUE,OPTION=VALUE, such as beam:size=8; a value with a comma stands in "
    "double quotes. Besides its own options it has nbest, the hypotheses that it lists, and seed."
)


@click.command("plugins", cls=Command)
@click.argument("name", required=False)
@click.option(
    "--check", is_flag=True, help="Import all plugins and report broken ones; exit status 1 if there are any."
)
@click.option(
    "--plugin-file",
    type=Read(),
    multiple=True,
    metavar="FILE.py",
    help="Python file with a plugin that is not installed.",
)
def command(name: str | None, check: bool, plugin_file: tuple[str, ...]) -> int:
    """List the plugins, one per line, or describe the plugin NAME: its documentation and its options.

    \b
    sgdec plugins
    sgdec plugins fst

    Listing imports no plugin. Lines are cut at the width of the terminal. If several plugins have one name,
    NAME@DISTRIBUTION is one of them.
    """
    host = Host(plugin_file)
    if check:
        return check_all(host)
    if name is not None:
        describe_one(host, name)
    else:
        list_all(host)
    return 0


def list_all(host: Host) -> None:
    """Kind, name, distribution and summary, in columns."""
    entries = host.names()
    called = [host.call(entry) for entry in entries]
    names = max(map(len, called), default=0)
    distributions = max((len(entry.distribution) for entry in entries), default=0)
    lines = (
        f"{entry.kind:<9}  {name:<{names}}  {entry.distribution:<{distributions}}  {summary}".rstrip()
        for entry, name, summary in zip(entries, called, summaries(entries), strict=True)
    )
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in lines:
        click.echo(line if width is None or len(line) <= width else f"{line[: width - 3]}...")
    warn_of_shadowed(host)


def warn_of_shadowed(host: Host) -> None:
    """Name the third-party plugins that have the names of bundled ones."""
    for warning in filter(None, map(host.shadowed, host.names())):
        log.warning(warning)


def check_all(host: Host) -> int:
    problems = list(host.problems())
    for problem in problems:
        click.echo(problem)
    if not problems:
        click.echo(f"All {len(host.names())} plugins import.")
    warn_of_shadowed(host)
    return 1 if problems else 0


def describe_one(host: Host, name: str) -> None:
    """``name``: ``[KIND.]NAME[@DISTRIBUTION]``."""
    kind, _, plugin = name.partition(".")
    kinds: Sequence[str] = [kind]
    if kind not in KINDS:
        kinds, plugin = KINDS, name
    found = [kind for kind in kinds if host.named(kind, plugin)]
    found = found or [kind for kind in kinds if host.named(kind, name_of(plugin))]  # of another distribution
    if not found:
        raise UsageError(f"no plugin named {name!r}. {suggest(name, (entry.name for entry in host.names()))}")
    click.echo("\n\n".join(description(host, host.find(kind, plugin)) for kind in found))


def description(host: Host, entry: Entry) -> str:
    """The description of a plugin: a title, the docstrings of its module and class, and a table of options."""
    from sgdec.plugins.options import describe

    cls = host.load(entry.kind, host.call(entry))
    options = describe(cls)
    rows = [(f"--{entry.name}.{o.name} {o.type}", _help(o.description, o.default)) for o in options]
    if entry.kind == "predictor":
        of_entries = describe(EntryOptions)
        rows += [(f"--{entry.name}.{o.name} {o.type}", _help(o.description, o.default)) for o in of_entries]
    table = click.HelpFormatter(width=100)
    if rows:
        with table.section("Options"):
            table.write_dl(rows, col_max=40)
        if any("decoder" in o.type.split(" | ") for o in options):
            table.write("\n")
            table.write_text(INNER)
    if presets := getattr(cls, "presets", {}):
        with table.section("Presets"):
            table.write_dl([(name, _preset(entry.name, options)) for name, options in presets.items()], col_max=40)
    documents = [vars(thing).get("__doc__") for thing in (sys.modules[cls.__module__], cls)]
    place = cls.__qualname__ if entry.value == entry.distribution else f"{cls.__module__}.{cls.__qualname__}"
    title = f"{entry.kind} {entry.name} ({entry.distribution}: {place})"  # a plugin file stands for its module
    parts = [title, *(inspect.cleandoc(document) for document in documents if document), table.getvalue()]
    return "\n\n".join(part.rstrip() for part in parts if part)


def _preset(name: str, options: Mapping[str, object]) -> str:
    """The options of a preset as a user would type them."""
    return " ".join(f"--{name}.{option} {str(value).lower()}" for option, value in options.items())


def _help(description: str, default: object) -> str:
    """A line of the table, with the default as a user would type it."""
    if default is inspect.Parameter.empty:
        return f"{description}  [required]".strip()
    if default is None or default == ():
        return description
    return f"{description}  [default: {default_as_typed(default)}]".strip()
