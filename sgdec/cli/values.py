"""What no option may be, of whatever command: no number that is infinite or larger than the machine's, no NUL.

Text has to be UTF-8, unless it is a path: file systems do not care.
"""

from __future__ import annotations

from typing import Any

import click

from sgdec.errors import UsageError
from sgdec.plugins.options import flaw


def refuse_unfit(ctx: click.Context) -> None:
    """Raises UsageError for the first value of a command that `sgdec.plugins.options.flaw` finds fault with."""
    for parameter in ctx.command.params:
        value = ctx.params.get(parameter.name or "")
        complaint = flaw(value) or (_not_utf8(value) if parameter.type is click.STRING else None)
        if complaint is not None:
            raise UsageError(f"{parameter.opts[0]}: {complaint}.")


def _not_utf8(value: Any) -> str | None:
    """Why text is none: the command line keeps bytes that are not UTF-8 as lone surrogates."""
    try:
        "".join([value] if isinstance(value, str) else value or ()).encode()
    except UnicodeEncodeError:
        return f"{value!r} should be UTF-8"
    return None
