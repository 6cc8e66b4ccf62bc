"""`sgdec evaluate`: BLEU and chrF of translations, with signatures."""

from __future__ import annotations

import click

from sgdec.cli.paths import Command, Read
from sgdec.errors import SgdecError, counted
from sgdec.text.bleu import SMOOTHING, TOKENIZERS, bleu_and_chrf
from sgdec.text.lines import read_lines


@click.command(cls=Command)
@click.option(
    "--reference", type=Read(), required=True, metavar="FILE", help="One reference per line; may be gzipped."
)
@click.option(
    "--tokenize",
    type=click.Choice(TOKENIZERS),
    default=TOKENIZERS[0],
    show_default=True,
    help="SacreBLEU's tokenizer for BLEU; none = both files are tokenised.",
)
@click.option(
    "--smooth-method",
    type=click.Choice(SMOOTHING),
    default=SMOOTHING[0],
    show_default=True,
    help="SacreBLEU's smoothing of BLEU's n-gram precisions of zero.",
)
@click.argument("hypotheses", type=Read(), default="-", metavar="[HYP]")
def command(reference: str, hypotheses: str, tokenize: str, smooth_method: str) -> None:
    """Score translations with sacreBLEU; HYP or standard input has one per line.

    \b
    sgdec evaluate --reference test.de output.txt
    # BLEU of tokenised files, as by Moses' multi-bleu.perl
    sgdec evaluate --tokenize none --smooth-method none \\
        --reference test.tok output.tok
    """
    references, translations = list(read_lines(reference)), list(read_lines(hypotheses))
    if len(references) != len(translations):
        raise SgdecError(
            f"{reference} has {counted(len(references), 'line')} but the translations have {len(translations)}. "
            "Line N of one must belong to line N of the other."
        )
    if not references:
        raise SgdecError(f"{reference}: the file has no lines.")
    for scored in bleu_and_chrf(translations, references, tokenize=tokenize, smooth_method=smooth_method):
        click.echo(f"{scored.text}\n  {scored.signature}")
