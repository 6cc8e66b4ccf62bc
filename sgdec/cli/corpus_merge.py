"""``sgdec corpus-merge``: the outputs of a corpus as one file."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import ExitStack, suppress
from typing import IO, TYPE_CHECKING, Any

import click

from sgdec.cli.paths import Command, Read, Written
from sgdec.errors import UsageError, counted

if TYPE_CHECKING:
    from sgdec.corpus.manifest import Manifest

log = logging.getLogger(__name__)


def failed_beside(output: str) -> tuple[str, ...]:
    """The list of failed lines of an output file."""
    return (f"{output}.failed.jsonl",)


@click.command("corpus-merge", cls=Command)
@click.argument("folder", metavar="DIR", type=Read())
@click.option(
    "--output", type=Written(beside=failed_beside), metavar="FILE",
    help="File to write, default standard output; a zip file for the output format fst.",
)
@click.option(
    "--failed", type=Written(), metavar="FILE", help="File for the list of failed lines, default FILE.failed.jsonl."
)
def command(folder: str, output: str | None, failed: str | None) -> int:
    """Write the outputs of all lines of a corpus in the order of the input, as one `sgdec decode` or `sgdec score`.

    \b
    sgdec corpus-merge DIR --output out.txt

    The format is that of `sgdec corpus --output-format`. A failed line is there too, as in these commands: an empty
    line, or an object with the error. The list of failed lines has their numbers, inputs and reasons, as JSON lines.

    Each result is compared with the run, with its lines, and with the hash that was noted when it was published; so
    are the files of patterns that its lines have read. Exit status 1 if a line failed.
    """
    from sgdec.corpus.manifest import existing_manifest
    from sgdec.corpus.merging import merge
    from sgdec.corpus.results import line_of
    from sgdec.corpus.stores import open_store
    from sgdec.io.writing import whole_file
    from sgdec.terminal import Bar

    store = open_store(folder)
    manifest = existing_manifest(store)
    if output is None and manifest.output_format == "fst":
        raise UsageError("the lattices go into a zip file: give --output FILE.zip.")
    listed = failed or (None if output is None else failed_beside(output)[0])
    for path in (output, listed):
        _refuse_input(path, manifest)
    with ExitStack() as stack:
        rows: IO[bytes] = sys.stdout.buffer if output is None else stack.enter_context(whole_file(output))
        notes: Any = None if listed is None else stack.enter_context(whole_file(listed))
        bar = stack.enter_context(Bar("merging", log, unit="lines", total=manifest.lines, hidden=output is None))
        failures = merge(store, manifest, rows, lambda failure: notes and notes.write(line_of(failure)), bar.advance)
    if output is None:
        sys.stdout.flush()
    where = f"; see {listed}" if listed and failures else ""
    log.info(f"{counted(manifest.lines, 'line')}, {failures:,} failed{where}.")
    return 1 if failures else 0


def _refuse_input(output: str | None, manifest: Manifest) -> None:
    """Raises UsageError for an input of the corpus, which a later start needs. None = standard output."""
    for each in (*manifest.inputs, *manifest.targets):
        with suppress(OSError):
            if os.path.samestat(os.stat(1 if output is None else output), os.stat(each.place)):
                raise UsageError(
                    f"{output or 'standard output'}: it is an input of the corpus. Write to another file."
                )
