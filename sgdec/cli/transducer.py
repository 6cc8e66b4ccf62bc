"""``sgdec transducer``: maps one tokenizer's tokens to another's, for the predictors fsttok and word2char."""

from __future__ import annotations

import logging
from itertools import chain
from typing import Any

import click

from sgdec.cli.paths import Command, Read, Written
from sgdec.errors import UsageError, counted
from sgdec.io.writing import write_whole
from sgdec.text.lines import read_lines
from sgdec.text.transducers import UNLISTED

log = logging.getLogger(__name__)


@click.command("transducer", cls=Command)
@click.option(
    "--from",
    "outer",
    type=Read(),
    required=True,
    metavar="FILE|DIR",
    help="Tokenizer of the decoder: a file that sgdec tokenizer wrote, or a folder of a Hugging Face model.",
)
@click.option(
    "--to", "inner", type=Read(), required=True, metavar="FILE|DIR", help="Tokenizer of the wrapped predictor."
)
@click.option(
    "--output",
    type=Written(),
    required=True,
    metavar="FILE",
    help="File to write, such as char2piece.fst (.fst.gz is gzipped).",
)
@click.option(
    "--text", "texts", type=Read(), multiple=True, metavar="FILE",
    help="Text with the words to list; may be gzipped or repeated; a word tokenizer adds its own words.",
)  # fmt: skip
@click.option(
    "--segmentations", type=click.Choice(["canonical", "all"]), default="canonical", show_default=True,
    help="The tokenizer's own segmentation of each listed word, or all segmentations of any text.",
)  # fmt: skip
@click.option(
    "--unlisted", type=click.Choice(UNLISTED), default="unk", show_default=True,
    help="Replace words that are not listed by <unk> or by their characters, or forbid them.",
)  # fmt: skip
@click.option(
    "--eager", is_flag=True,
    help="Write each token with the character that completes it, not when the rest of the word is certain.",
)  # fmt: skip
@click.option("--word2char", is_flag=True, help="Write the spellings of words for the predictor word2char instead.")
def command(
    outer: str,
    inner: str,
    output: str,
    texts: tuple[str, ...],
    segmentations: str,
    unlisted: Any,
    eager: bool,
    word2char: bool,
) -> None:
    """Write a transducer from the decoder's tokens to a predictor's, for fsttok.

    \b
    # decode characters with models of words and of pieces
    sgdec transducer --from char.spm --to word.spm --text train.de \\
        --eager --output char2word.fst
    sgdec transducer --from char.spm --to bpe.spm --text train.de \\
        --eager --unlisted forbid --output char2bpe.fst
    sgdec decode --predictors nmt,fsttok:nmt,fsttok:nmt --nmt.model char/best \\
        --nmt2.model word/best --fsttok.path char2word.fst \\
        --nmt3.model bpe/best --fsttok2.path char2bpe.fst \\
        --decoder beam --beam.stop full input.txt

    Tokenizers are of any kind: characters, words, BPE or unigram pieces, but not byte-level BPE.

    A word that is not listed, or that is segmented differently from the tokenizer, becomes <unk> at the first
    character that differs from the list. With --unlisted spell it becomes the single characters that the inner
    tokenizer has, and <unk> for the others. With --unlisted forbid it is impossible.

    With --eager scores come as early as they can, which a search over characters needs, at the cost of more steps of
    the predictor; words that are not listed are replaced as a whole.
    """
    from sgdec.text import transducers
    from sgdec.text.vocabulary import load_vocabulary

    vocabularies = load_vocabulary(outer), load_vocabulary(inner)
    if word2char:
        _write_spellings(output, *vocabularies)
        return
    if segmentations == "all":
        if texts or eager:
            raise UsageError(f"--segmentations all lists no words; omit {'--text' if texts else '--eager'}.")
        drawing, about = transducers.all_segmentations(*vocabularies), "all segmentations"
    else:
        words = transducers.words_of(*vocabularies, chain.from_iterable(map(read_lines, texts)))
        if not words:
            raise UsageError("no words to list; give --text FILE, such as the target side of the training text.")
        draw = transducers.eager if eager else transducers.canonical
        drawing, skipped = draw(*vocabularies, words, unlisted)
        about = f"{counted(len(words) - skipped, 'word')}"
        if skipped:
            about += f" ({skipped:,} left out: {outer} cannot spell them)"
    from sgdec.io.transducer import write_transducer

    write_transducer(output, drawing.arcs, {0: 0.0})
    log.info(f"{output}: {about}, {counted(drawing.states, 'state')}, {counted(len(drawing.arcs), 'arc')}")


def _write_spellings(output: str, outer: Any, inner: Any) -> None:
    from sgdec.text.transducers import spellings

    found, skipped = spellings(outer, inner)
    lines = [" ".join(map(str, (word, *letters))) + "\n" for word, letters in sorted(found.items())]
    write_whole(output, "".join(lines))
    left_out = f" ({skipped:,} left out: their spelling is not unique)" if skipped else ""
    log.info(f"{output}: {counted(len(found), 'word')}{left_out}")
