"""Checks the values of all options of all commands: finite numbers in the machine's range, no NUL.

Text must be UTF-8, except paths, which file systems keep as bytes. Numbers are ASCII digits, a sign, a point and an
exponent; Python itself also reads ``1_0`` and the digits of all scripts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from sgdec.errors import UsageError
from sgdec.io.limits import real_number
from sgdec.plugins.options import flaw

NUMERIC = (type(click.INT), type(click.FLOAT))
"""The types of numbers, ranges included."""


def refuse_unfit(ctx: click.Context) -> None:
    """Raises UsageError for the first value of a command that `sgdec.plugins.options.flaw` rejects."""
    for parameter in ctx.command.params:
        value = ctx.params.get(parameter.name or "")
        complaint = flaw(value) or (_not_utf8(value) if parameter.type is click.STRING else None)
        if complaint is not None:
            raise UsageError(f"{parameter.opts[0]}: {complaint}.")


def refuse_lax_numbers(ctx: click.Context, args: Sequence[str]) -> None:
    """Raises UsageError for the first value of a numeric option that `real_number` does not read."""
    given, *_ = ctx.command.make_parser(ctx).parse_args(args=list(args))
    for parameter in ctx.command.params:
        if isinstance(parameter.type, NUMERIC) and parameter.name in given:
            values = given[parameter.name]
            for word in [values] if isinstance(values, str) else values:
                if real_number(word) is None:
                    raise UsageError(f"{parameter.opts[0]}: {word!r} should be a number, such as 10.")


def _not_utf8(value: Any) -> str | None:
    """The error for text that is not UTF-8, or None. The command line keeps invalid bytes as lone surrogates."""
    try:
        "".join([value] if isinstance(value, str) else value or ()).encode()
    except UnicodeEncodeError:
        return f"{value!r} should be UTF-8"
    return None
