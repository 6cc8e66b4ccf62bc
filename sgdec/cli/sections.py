"""The help of commands: rows in sections, all in the same two columns, which fit the terminal.

An option is listed in the section that it is made with (`option`). Options of plugins are only known when a command
runs: rows of `Sectioned.rows_of_plugins` stand for them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from textwrap import TextWrapper
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import click

if TYPE_CHECKING:
    from sgdec.plugins.options import Option

Row: TypeAlias = tuple[str, str]
"""An option or a command as it is typed, and its description."""
Decorated = TypeVar("Decorated", bound=Callable[..., Any])
LEFT = 26
"""The most characters of the left column on a terminal of 80; a longer text has its own line."""
UNWRAPPED = "\b\n"
"""Paragraphs that keep their lines begin with this, as in click."""
SELF_EVIDENT = re.compile(r"; x>=?[01](?=\])|  \[x>=?[01]\]")
"""Bounds of numbers that are not shown in terminals."""
MARKS = re.compile(r"\[[^][]+\]$")
"""The default and the bounds at the end of a help text."""


class SectionedOption(click.Option):
    """An option that stands in a section of the help."""

    def __init__(self, *names: Any, section: str, **rest: Any) -> None:
        super().__init__(*names, **rest)
        self.section = section


def option(
    *names: str, section: str, cls: type[SectionedOption] = SectionedOption, **rest: Any
) -> Callable[[Decorated], Decorated]:
    """`click.option` with a section."""
    return click.option(*names, cls=cls, section=section, **rest)


class Formatter(click.HelpFormatter):
    """Breaks lines at blanks only, so that --max-line stays whole."""

    def write_text(self, text: str) -> None:
        """Write paragraphs, each as one or, after `UNWRAPPED`, with its own lines."""
        indent = " " * self.current_indent
        for number, block in enumerate(text.split("\n\n")):
            own = block.removeprefix(UNWRAPPED).split("\n") if block.startswith(UNWRAPPED) else None
            lines = own or wrapped(" ".join(block.split()), self.width - self.current_indent)
            self.write("\n" * (number > 0) + "".join(f"{indent}{line}\n" for line in lines))


class _Context(click.Context):
    formatter_class = Formatter


class Sectioned(click.Command):
    """A command whose help has its options in sections, in the order of their first options.

    Options without a section are "Options"; of a command whose own options all have one, --help is "Other".
    """

    context_class = _Context

    def rows_of_plugins(self) -> Mapping[str, Iterable[Row]]:
        """Rows for options of plugins, by the section at whose end they stand."""
        return {}

    def sections(self, ctx: click.Context) -> dict[str, list[Row]]:
        """The rows of all options by section."""
        own = [each for each in self.params if isinstance(each, click.Option)]
        rest = "Other" if own and all(isinstance(each, SectionedOption) for each in own) else "Options"
        found: dict[str, list[Row]] = {}
        for each in self.get_params(ctx):
            if isinstance(each, click.Option) and (row := each.get_help_record(ctx)) is not None:
                found.setdefault(each.section if isinstance(each, SectionedOption) else rest, []).append(row)
        for section, rows in self.rows_of_plugins().items():
            found[section] += rows
        return found

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_sections(formatter, self.sections(ctx))


def write_sections(formatter: click.HelpFormatter, sections: Mapping[str, Sequence[Row]]) -> None:
    """Write each section with its heading. Its columns are as wide as those of all others."""
    most = min(LEFT, formatter.width // 3)
    lengths = [len(typed) for rows in sections.values() for typed, _ in rows]
    left = max((length for length in lengths if length <= most), default=most)
    for section, rows in sections.items():
        with formatter.section(section):
            for typed, does in rows:
                right = wrapped(SELF_EVIDENT.sub("", does), formatter.width - formatter.current_indent - left - 2)
                for one, other in zip_longest([typed], right if len(typed) <= left else ["", *right], fillvalue=""):
                    formatter.write(f"{'':{formatter.current_indent}}{one:<{left}}  {other}".rstrip() + "\n")


def wrapped(text: str, width: int) -> list[str]:
    """The lines of a text. The `MARKS` at its end stay together.

    >>> wrapped("The size of batches.  [default: 64; x>=2]", 35)
    ['The size of batches.', '[default: 64; x>=2]']
    """
    joined = MARKS.sub(lambda marks: marks[0].replace(" ", "\0"), text)
    lines = TextWrapper(width, break_on_hyphens=False, break_long_words=False).wrap(joined)
    return [line.replace("\0", " ") for line in lines]


def of_setting(setting: Option) -> dict[str, Any]:
    """The arguments of `option` that show a setting: metavar, help and section.

    >>> from sgdec.plugins.options import Option
    >>> of_setting(Option("order", "int >= 1", 4, "length of n-grams", "Models"))
    {'metavar': 'INT', 'help': 'Length of n-grams.  [default: 4; x>=1]', 'section': 'Models'}
    """
    kind, _, bounds = setting.type.partition(" ")
    metavar = kind.upper()
    if "|" in bounds:
        metavar, bounds = f"[{setting.type.replace(' | ', '|')}]", ""
    said = f"{setting.description[:1].upper()}{setting.description[1:]}."
    marks = "; ".join(_marks(default_as_typed(setting.default), bounds.replace(" ", "")))
    return {"metavar": metavar, "help": f"{said}  [{marks}]" if marks else said, "section": setting.section}


def _marks(default: str, bounds: str) -> Iterator[str]:
    """As click shows them: ``x>=0``, ``0<=x<1``."""
    if default:
        yield f"default: {default}"
    if bounds:
        yield re.sub(r"^x>(=?)(.+),<", r"\2<\1x<", f"x{bounds}")


def default_as_typed(default: object) -> str:
    """A default as a user would type it; "" if there is none.

    >>> default_as_typed(False), default_as_typed((1, 2)), default_as_typed(None)
    ('false', '1,2', '')
    """
    if default is None or default == () or default is inspect.Parameter.empty:
        return ""
    if isinstance(default, bool):
        return str(default).lower()
    return ",".join(map(str, default)) if isinstance(default, tuple | list) else str(default)
