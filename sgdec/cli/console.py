"""Messages of a command: sgdec's log messages as plain lines on standard error."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import click

from sgdec.terminal import above


class Console(logging.Handler):
    """Writes to the current standard error. A failed write is an error of the command."""

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        with above():
            click.echo(f"Warning: {text}" if record.levelno >= logging.WARNING else text, err=True)


@contextmanager
def console() -> Iterator[None]:
    """Show messages inside the block, each only once even if one command calls another."""
    log = logging.getLogger("sgdec")
    if any(isinstance(handler, Console) for handler in log.handlers):
        yield
        return
    handler, level, propagate = Console(), log.level, log.propagate
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
        log.propagate = propagate
