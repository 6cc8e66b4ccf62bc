"""``sgdec trie``: builds the file of allowed outputs that the predictor trie maps."""

from __future__ import annotations

import logging
import os
from contextlib import ExitStack
from typing import BinaryIO

import click

from sgdec.cli.paths import Command, Read, Written
from sgdec.context import EOS
from sgdec.errors import UsageError, counted
from sgdec.io.writing import whole_file
from sgdec.terminal import Bar, track
from sgdec.text.lines import read_lines

log = logging.getLogger(__name__)

SHOWN = 10
"""The number of lines left out that are printed."""


@click.command("trie", cls=Command)
@click.argument("input", type=Read(default_stdin=True), metavar="[INPUT]", default="-")
@click.option("--output", type=Written(), required=True, metavar="FILE", help="File to write, such as titles.trie.")
@click.option(
    "--tokenizer",
    type=Read(),
    metavar="FILE|DIR",
    help="Tokenizer of the text, that of the model's target side; by default lines are token ids.",
)
@click.option(
    "--vocab-size", type=click.IntRange(min=4), metavar="N", help="Without a tokenizer: ids must be below N."
)
@click.option(
    "--left-out",
    type=Written(),
    metavar="FILE",
    help="File for the lines that are left out: number, tab, reason. The exit status is then 0.",
)
def command(input: str, output: str, tokenizer: str | None, vocab_size: int | None, left_out: str | None) -> int:
    """Build a trie of allowed outputs, for the predictor trie.

    \b
    sgdec trie titles.txt --tokenizer tok.spm --output titles.trie
    sgdec decode --predictors nmt,trie --nmt.model run/best \\
        --trie.path titles.trie input.txt

    INPUT has one output on each line, as text or token ids, or 'OUTPUT<TAB>WEIGHT' on each line: weights are natural
    logs, higher is better. Outputs may be prefixes of each other. Equal outputs count once, with the best weight. An
    empty line allows the empty output.

    Lines with words that the tokenizer does not know are left out: the first ones are printed, and the exit status
    is 1. With --left-out all are listed in a file.
    """
    if tokenizer is not None and vocab_size is not None:
        raise UsageError("--vocab-size is for lists of token ids; with --tokenizer it is known. Omit one of them.")
    from sgdec.io.entries import read_entries
    from sgdec.io.trie import build_trie, is_trie

    if is_trie(input):
        raise UsageError(f"{input} is a trie already. Give the list that it was built from.")
    vocabulary = None
    if tokenizer is not None:
        from sgdec.text.vocabulary import load_vocabulary

        vocabulary = load_vocabulary(tokenizer)
        vocab_size = vocabulary.size
    where = "standard input" if input == "-" else input
    with ExitStack() as stack:
        unusable = _LeftOut(where, stack.enter_context(whole_file(left_out)) if left_out else None)
        lines = track(read_lines(input), "reading", log, unit="lines")
        entries = read_entries(lines, where, vocabulary, vocab_size, leave_out=unusable)
        with Bar("trie", log) as bar:
            trie = build_trie(entries, where, vocabulary, vocab_size, note=bar.note)
            bar.note(f"writing {output}")
            trie.write(output)
    repeated = len(entries.offsets) - 1 - trie.entries
    empty = ", the empty one among them" if EOS in trie.tokens[trie.children(0)] else ""
    log.info(
        f"{output}: {counted(trie.entries, 'output')}{empty} ({counted(repeated, 'duplicate')}, "
        f"{counted(unusable.count, 'line')} left out), at most {counted(trie.longest, 'token')}, "
        f"{counted(trie.nodes - 1, 'arc')}, {os.path.getsize(output):,} bytes"
    )
    return 1 if unusable.count and not left_out else 0


class _LeftOut:
    """Counts the lines that are left out; lists them in a file, or prints the first ones."""

    def __init__(self, where: str, file: BinaryIO | None) -> None:
        self.count = 0
        self._where = where
        self._file = file

    def __call__(self, number: int, reason: str) -> None:
        self.count += 1
        if self._file is not None:
            self._file.write(f"{number}\t{reason}\n".encode())
        elif self.count <= SHOWN:
            log.warning(f"{self._where}: line {number} is left out: {reason}.")
        elif self.count == SHOWN + 1:
            log.warning("more lines are left out; --left-out FILE lists all of them.")
