"""Checks the values of all options of all commands: finite numbers in the machine's range, no NUL.

Text must be UTF-8, except paths, which file systems keep as bytes.
"""

from __future__ import annotations

from typing import Any

import click

from sgdec.errors import UsageError
from sgdec.plugins.options import flaw


def refuse_unfit(ctx: click.Context) -> None:
    """Raises UsageError for the first value of a command that `sgdec.plugins.options.flaw` rejects."""
    for parameter in ctx.command.params:
        value = ctx.params.get(parameter.name or "")
        complaint = flaw(value) or (_not_utf8(value) if parameter.type is click.STRING else None)
        if complaint is not None:
            raise UsageError(f"{parameter.opts[0]}: {complaint}.")


def _not_utf8(value: Any) -> str | None:
    """The error for text that is not UTF-8, or None. The command line keeps invalid bytes as lone surrogates."""
    try:
        "".join([value] if isinstance(value, str) else value or ()).encode()
    except UnicodeEncodeError:
        return f"{value!r} should be UTF-8"
    return None
