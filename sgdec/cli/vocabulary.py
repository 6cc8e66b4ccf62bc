"""`sgdec vocabulary`: writes the symbol table of a tokenizer, for OpenFst's tools and for --ngram.words."""

from __future__ import annotations

import logging

import click

from sgdec.cli.paths import Command, Read, Written
from sgdec.io.symbols import table_lines
from sgdec.io.writing import write_whole

log = logging.getLogger(__name__)


@click.command("vocabulary", cls=Command)
@click.argument("tokenizer", type=Read(), metavar="FILE|DIR")
@click.option("--output", type=Written(), metavar="FILE", help="File to write; by default, standard output.")
def command(tokenizer: str, output: str | None) -> None:
    """Write the table of a tokenizer: each piece with its number, separated by a tab.

    \b
    sgdec vocabulary tok.spm --output tok.words

    FILE is a file of sgdec tokenizer, DIR the folder of a Hugging Face model or tokenizer (its target side). OpenFst,
    pynini and --ngram.words read the table. Numbers 0, 1 and 2 are called <unk>, <s> and </s>.

    A blank in a piece is written \\x20. The page on file formats lists all such replacements.
    """
    from sgdec.text.vocabulary import load_vocabulary

    vocabulary = load_vocabulary(tokenizer)
    table = "".join(f"{line}\n" for line in table_lines(map(vocabulary.piece, range(vocabulary.size))))
    if output is None:
        click.echo(table, nl=False)
        return
    write_whole(output, table)
    log.info(f"{output}: {vocabulary.size:,} symbols")
