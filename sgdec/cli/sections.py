"""The help of commands: rows in sections, all in the same two columns, which fit the terminal.

An option stands in the section that it is made with (`option`). Options of plugins, which are no parameters of a
command, have rows of their own (`Sectioned.rows_of_plugins`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias, TypeVar

import click

from sgdec.plugins.options import Option

Row: TypeAlias = tuple[str, str]
"""What is typed, and what it does."""
Decorated = TypeVar("Decorated", bound=Callable[..., Any])
LEFT = 26
"""The most characters of the left column on a terminal of 80; a longer text has its own line."""


class SectionedOption(click.Option):
    """An option that stands in a section of the help."""

    def __init__(self, *names: Any, section: str, **rest: Any) -> None:
        super().__init__(*names, **rest)
        self.section = section


def option(*names: str, section: str, cls: type[SectionedOption] = SectionedOption, **rest: Any) -> Callable[[Decorated], Decorated]:
    """`click.option` with a section."""
    return click.option(*names, cls=cls, section=section, **rest)


class Sectioned(click.Command):
    """A command whose help has its options in sections, in the order of their first options.

    Options without a section are "Options"; of a command whose own options all have one, --help is "Other".
    """

    def rows_of_plugins(self) -> Mapping[str, Iterable[Row]]:
        """Rows for options of plugins, by the section at whose end they stand."""
        return {}

    def sections(self, ctx: click.Context) -> dict[str, list[Row]]:
        """The rows of all options by section."""
        own = [parameter for parameter in self.params if isinstance(parameter, click.Option)]
        rest = "Other" if own and all(isinstance(each, SectionedOption) for each in own) else "Options"
        found: dict[str, list[Row]] = {}
        for parameter in self.get_params(ctx):
            row = parameter.get_help_record(ctx)
            if row is not None:
                found.setdefault(parameter.section if isinstance(parameter, SectionedOption) else rest, []).append(row)
        for section, rows in self.rows_of_plugins().items():
            found[section] += rows
        return found

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_sections(formatter, self.sections(ctx))


def write_sections(formatter: click.HelpFormatter, sections: Mapping[str, Iterable[Row]]) -> None:
    """Write each section with its heading. Its columns are as wide as those of all others."""
    listed = {section: list(rows) for section, rows in sections.items()}
    most = min(LEFT, formatter.width // 3)
    lengths = [len(typed) for rows in listed.values() for typed, _ in rows]
    left = max((length for length in lengths if length <= most), default=most)
    for section, rows in listed.items():
        with formatter.section(section):
            formatter.write_dl([(typed.ljust(left), does) for typed, does in rows], col_max=left)


def of_setting(setting: Option) -> dict[str, Any]:
    """The arguments of `option` that show a setting: metavar, help and section.

    >>> of_setting(Option("order", "int >= 1", 4, "length of n-grams", "Models"))
    {'metavar': 'INT', 'help': 'Length of n-grams.  [default: 4; x>=1]', 'section': 'Models'}
    """
    kind, _, bounds = setting.type.partition(" ")
    metavar = kind.upper()
    if "|" in bounds:
        metavar, bounds = f"[{setting.type.replace(' | ', '|')}]", ""
    marks = [f"default: {default}"] if (default := default_as_typed(setting.default)) else []
    marks += [", ".join(f"x{bound}" for bound in bounds.replace(" ", "").split(","))] if bounds else []
    said = f"{setting.description[:1].upper()}{setting.description[1:]}."
    return {
        "metavar": metavar,
        "help": f"{said}  [{'; '.join(marks)}]" if marks else said,
        "section": setting.section,
    }


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
