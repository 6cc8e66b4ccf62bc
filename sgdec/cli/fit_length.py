"""``sgdec fit-length``: fits the weights of a length model to parallel text."""

from __future__ import annotations

import logging
from pathlib import Path
from statistics import median

import click

from sgdec.cli.paths import Command, Read, Written
from sgdec.errors import SgdecError, counted
from sgdec.terminal import Bar
from sgdec.text.lines import read_lines

log = logging.getLogger(__name__)

POISSON = 0.01
"""Below this p the variance equals the mean within 1 %: the distribution cannot become narrower."""


@click.command("fit-length", cls=Command)
@click.argument("source", type=Read(), metavar="SRC")
@click.argument("target", type=Read(), metavar="TGT")
@click.option(
    "--output",
    type=Written(),
    required=True,
    metavar="FILE",
    help="File to write the weights to, for --length.weights.",
)
@click.option(
    "--tokenizer",
    type=Read(),
    metavar="FILE|DIR",
    help="Tokenizer of the target side; by default tokens are separated by blanks.",
)
def command(source: str, target: str, output: str, tokenizer: str | None) -> None:
    """Fit a negative binomial distribution of target lengths to parallel text, for the predictor length.

    \b
    sgdec fit-length train.en train.de --tokenizer tok.spm --output length.txt
    sgdec decode --predictors nmt,length --nmt.model run/best \\
        --length.weights length.txt input.txt

    Line N of SRC belongs to line N of TGT; text or token ids, may be gzipped. Features are computed from the
    unchanged lines of SRC, so SRC must be preprocessed in the same way as the text to decode. Pairs with an empty
    side are skipped.
    """
    if not Path(output).absolute().parent.is_dir():
        raise SgdecError(f"{output}: cannot be written (no such folder).")
    lines, lengths = read_pairs(source, target, tokenizer)
    from sgdec.estimation.lengths import fit_lengths
    from sgdec.io.lengths import write_length_weights

    with Bar("fitting", log) as bar:
        try:
            fitted = fit_lengths(lines, lengths, bar.note)
        except SgdecError as error:
            raise SgdecError(f"{source}, {target}: {error}") from None
    unit = "words" if tokenizer is None else f"pieces of {tokenizer}"
    write_length_weights(output, fitted.weights, f"sgdec fit-length: {target} given {source}, in {unit}")
    log.info(
        f"{output}: {counted(fitted.pairs, 'pair')}; log-probability of a length {fitted.log_probability:.4f} on "
        f"average ({fitted.by_mean:.4f} by one Poisson distribution for all)\n"
        f"  {fitted.evaluations} evaluations; largest component of the gradient {fitted.gradient:.1e}"
    )
    p = median(fitted.weights.distribution(line).p for line in lines)
    if p < POISSON:
        log.info(
            f"  lengths vary no more than those of a Poisson distribution: p is {p:.1e} (median), and the model is "
            "as narrow as possible"
        )


def read_pairs(source: str, target: str, tokenizer: str | None) -> tuple[list[str], list[int]]:
    """The source lines and the numbers of their target tokens, without pairs that have an empty side."""
    sources, targets = list(read_lines(source)), list(read_lines(target))
    if len(sources) != len(targets):
        raise SgdecError(
            f"{source} has {counted(len(sources), 'line')} but {target} has {len(targets)}. "
            "Line N of one must belong to line N of the other."
        )
    if tokenizer is None:
        lengths = [len(line.split()) for line in targets]
    else:
        from sgdec.text.vocabulary import load_vocabulary

        lengths = list(map(len, load_vocabulary(tokenizer).encode_all(targets)))
    pairs = [(line, length) for line, length in zip(sources, lengths, strict=True) if line.strip() and length]
    return [line for line, _ in pairs], [length for _, length in pairs]
