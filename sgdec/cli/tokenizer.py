"""`sgdec tokenizer`: trains a vocabulary of pieces, characters or words."""

from __future__ import annotations

import logging
from itertools import chain

import click

from sgdec.cli.paths import Command, Read, Written
from sgdec.io.writing import write_whole
from sgdec.text.lines import read_lines
from sgdec.text.vocabulary import KINDS, Kind, train

log = logging.getLogger(__name__)


@click.command(cls=Command)
@click.option(
    "--input",
    "inputs",
    type=Read(),
    multiple=True,
    required=True,
    metavar="FILE",
    help="Training text; may be gzipped; repeat for a vocabulary shared by source and target.",
)
@click.option(
    "--output", type=Written(), required=True, metavar="FILE", help="File to write the model to, such as tok.spm."
)
@click.option(
    "--vocab-size", type=click.IntRange(min=4), default=8000, show_default=True, metavar="INT",
    help="Number of pieces, characters or words, with the three special ones.",
)  # fmt: skip
@click.option(
    "--kind", type=click.Choice(KINDS), default="bpe", show_default=True,
    help="Pieces (bpe, unigram), characters, words (rare ones as X_UNK_Y), or words with rare ones spelled (mixed); "
    "mixed spells characters without a piece as UTF-8 bytes.",
)  # fmt: skip
@click.option(
    "--coverage",
    type=click.FloatRange(0, 1),
    default=1.0,
    show_default=True,
    metavar="FLOAT",
    help="Share of the text's characters that get a piece (bpe, unigram, char).",
)
@click.option(
    "--normalization",
    default="nmt_nfkc",
    show_default=True,
    metavar="NAME",
    help="Normalisation by SentencePiece (bpe, unigram, char); identity = none.",
)
def command(
    inputs: tuple[str, ...], output: str, vocab_size: int, kind: Kind, coverage: float, normalization: str
) -> None:
    """Train a tokenizer on text: ids 0 <unk>, 1 <s>, 2 </s>, then the pieces.

    \b
    sgdec tokenizer --input train.en --input train.de --output tok.spm
    """
    lines = chain.from_iterable(read_lines(path) for path in inputs)
    vocabulary = train(lines, vocab_size, kind, coverage=coverage, normalization=normalization)
    write_whole(output, vocabulary.serialized)
    log.info(f"{output}: {vocabulary.size} pieces")
