"""`sgdec evaluate`: BLEU and chrF of translations, with signatures."""

from __future__ import annotations

import click

from sgdec.cli.paths import Command, Read
from sgdec.errors import SgdecError, counted
from sgdec.text.lines import read_lines


@click.command(cls=Command)
@click.option(
    "--reference", type=Read(), required=True, metavar="FILE", help="One reference per line; may be gzipped."
)
@click.argument("hypotheses", type=Read(), default="-", metavar="[HYP]")
def command(reference: str, hypotheses: str) -> None:
    """Score translations with sacreBLEU; HYP or standard input has one per line.

    \b
    sgdec evaluate --reference test.de output.txt
    """
    references, translations = list(read_lines(reference)), list(read_lines(hypotheses))
    if len(references) != len(translations):
        raise SgdecError(
            f"{reference} has {counted(len(references), 'line')} but the translations have {len(translations)}. "
            "Line N of one must belong to line N of the other."
        )
    if not references:
        raise SgdecError(f"{reference}: the file has no lines.")
    from sgdec.text.bleu import bleu_and_chrf

    for scored in bleu_and_chrf(translations, references):
        click.echo(f"{scored.text}\n  {scored.signature}")
