"""``sgdec corpus-status``: how far a corpus is."""

from __future__ import annotations

import json
import logging
from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

from sgdec.cli.paths import Command, Read, Written
from sgdec.cli.tables import table

if TYPE_CHECKING:
    from sgdec.corpus.status import Status

log = logging.getLogger(__name__)

SHOWN = 10
"""The most rows of a table that are printed."""


@click.command("corpus-status", cls=Command)
@click.argument("folder", metavar="DIR", type=Read())
@click.option(
    "--watch", type=click.FloatRange(0, min_open=True), metavar="SECONDS",
    help="Look twice, with this time between, to see which starters live and how fast they are now.",
)
@click.option("--json", "json_", type=Written(), metavar="FILE", help="Write everything as JSON.")
@click.option("--html", type=Written(), metavar="FILE", help="Write a page with everything.")
def command(folder: str, watch: float | None, json_: str | None, html: str | None) -> int:
    """Show how far a corpus is: lines, speed, failed lines, starters, workers, and chunks that need attention.

    \b
    sgdec corpus-status DIR
    sgdec corpus-status DIR --watch 30

    It only reads, and can be called from any machine that sees the folder, while the workers work and after.

    Exit status 1 if a line has failed or is undecided, or if a result cannot be used.
    """
    from sgdec.corpus.manifest import existing_manifest
    from sgdec.corpus.status import look
    from sgdec.corpus.status_tables import findings, tables, troubles
    from sgdec.corpus.stores import open_store

    store = open_store(folder)
    details = json_ is not None or html is not None
    status = look(store, existing_manifest(store), seconds=watch, details=details)
    _write(status, json_, html)
    click.echo("\n".join(findings(status)))
    for each in tables(status):
        more = len(each.rows) - SHOWN
        notes = [*([f"{more:,} more rows are on the page (--html FILE)."] if more > 0 else []), *each.notes]
        click.echo("\n" + "\n".join([each.title, table(each.head, each.rows[:SHOWN]), *notes]))
    if trouble := list(troubles(status)):
        log.warning(f"{folder}: {', '.join(trouble)}.")
    return 1 if trouble else 0


def _write(status: Status, json_: str | None, html: str | None) -> None:
    """Write the files that were asked for; if one fails, none is replaced."""
    from sgdec.io.writing import whole_file

    texts = []
    if json_ is not None:
        texts.append((json_, json.dumps(status.to_dict(), indent=1) + "\n"))
    if html is not None:
        from sgdec.corpus.status_page import page

        texts.append((html, page(status)))
    with ExitStack() as files:
        for path, text in texts:
            file = files.enter_context(whole_file(path))
            file.write(text.encode("utf-8"))
            file.flush()
