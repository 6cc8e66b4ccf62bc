"""What no option may be, of whatever command: no number that is infinite or larger than the machine's, no NUL."""

from __future__ import annotations

import click

from sgdec.errors import UsageError
from sgdec.options import flaw


def refuse_unfit(ctx: click.Context) -> None:
    """Raises UsageError for the first value of a command that `sgdec.options.flaw` finds fault with."""
    for parameter in ctx.command.params:
        complaint = flaw(ctx.params.get(parameter.name or ""))
        if complaint is not None:
            raise UsageError(f"{parameter.opts[0]}: {complaint}.")
