"""``sgdec shortlist``: find likely translations of each source token, for the predictor shortlist."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import islice

import click

from sgdec.cli.paths import Command, Read, Written
from sgdec.context import EOS, Vocabulary
from sgdec.errors import SgdecError, counted
from sgdec.terminal import Bar, track
from sgdec.text.lines import read_lines

log = logging.getLogger(__name__)

LINES_AT_ONCE = 10_000


@click.command("shortlist", cls=Command)
@click.argument("source", type=Read(), metavar="SRC")
@click.argument("target", type=Read(), metavar="TGT")
@click.option(
    "--model", type=Read(), required=True, metavar="DIR", help="Checkpoint folder, whose tokenizers split the text."
)
@click.option(
    "--output",
    type=Written(inside=("shortlist.*",)),
    required=True,
    metavar="DIR",
    help="Folder to write the shortlist to.",
)
@click.option("--lines", type=click.IntRange(min=1), metavar="N", help="Use only the first N pairs of lines.")
@click.option(
    "--k",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    metavar="INT",
    help="Number of translations recorded for each source token.",
)
@click.option(
    "--frequent",
    type=click.IntRange(min=0),
    default=1000,
    show_default=True,
    metavar="INT",
    help="Number of frequent target tokens recorded.",
)
@click.option(
    "--iterations",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    metavar="INT",
    help="Iterations of expectation maximisation; 1 = co-occurrence.",
)
@click.option(
    "--held-out",
    type=Read(),
    nargs=2,
    metavar="SRC TGT",
    help="Text on which to measure how many target tokens the lists lack.",
)
def command(
    source: str,
    target: str,
    model: str,
    output: str,
    lines: int | None,
    k: int,
    frequent: int,
    iterations: int,
    held_out: tuple[str, str] | None,
) -> None:
    """Find likely translations of each source token in parallel text, for the predictor shortlist.

    \b
    sgdec shortlist train.en train.de --model run/best --output run/shortlist
    sgdec decode --predictors shortlist --shortlist.model run/best \\
        --shortlist.path run/shortlist test.en

    Line N of SRC belongs to line N of TGT; text, may be gzipped. The translations are those of IBM Model 1. Pairs
    with an empty side are skipped.
    """
    from sgdec.checkpoints.layout import load_vocabularies
    from sgdec.checkpoints.shortlists import FOLDER, save_shortlist
    from sgdec.estimation.lexicon import estimate_lexicon, shortlist_of

    FOLDER.require_room(output)
    vocabularies = load_vocabularies(model)
    if vocabularies.source is None or vocabularies.target is None:
        raise SgdecError(f"{model}: a language model reads no source, so it needs no shortlist.")
    reading = read_pairs(source, target, vocabularies.source, vocabularies.target, lines)
    pairs = list(track(reading, "reading", log, unit="pairs"))
    if not any(one and other for one, other in pairs):
        raise SgdecError(f"{source}, {target}: no pair of lines with text on both sides.")
    with Bar("estimating translations", log) as bar:
        lexicon = estimate_lexicon(pairs, vocabularies.target.size, iterations=iterations, report=bar.note)
    found = shortlist_of(lexicon, vocabularies.source.size, k=k, frequent=frequent)
    about = {"text": [source, target], "pairs": len(pairs), "k": k, "iterations": iterations}
    save_shortlist(output, found, vocabularies, about=about)
    known = int((found.starts.diff() > 0).sum())
    log.info(
        f"{output}: {len(found.tokens):,} translations of {known:,} of {vocabularies.source.size:,} source tokens, "
        f"and {counted(len(found.frequent), 'frequent token')}, from {counted(len(pairs), 'pair')}"
    )
    if held_out is not None:
        missed = total = listed = 0
        common = {EOS, *found.frequent.tolist()}
        held = list(read_pairs(*held_out, vocabularies.source, vocabularies.target, None))
        for one, other in held:
            active = common | set(found.translations(one).tolist())
            missed += sum(token not in active for token in other)
            total, listed = total + len(other), listed + len(active)
        log.info(
            f"{missed / max(total, 1):.2%} of the target tokens of {held_out[1]} are not listed; lists have "
            f"{listed / max(len(held), 1):,.0f} tokens on average"
        )


def read_pairs(
    source: str, target: str, sources: Vocabulary, targets: Vocabulary, limit: int | None
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The tokens of both sides of each pair of lines. Raises `SgdecError` if one file has more lines."""
    texts = [islice(read_lines(path), limit) for path in (source, target)]
    while True:
        blocks = [list(islice(text, LINES_AT_ONCE)) for text in texts]
        if len(blocks[0]) != len(blocks[1]):
            raise SgdecError(
                f"{source} and {target} have different numbers of lines. Line N of one must belong to line N of the "
                "other."
            )
        if not blocks[0]:
            return
        yield from zip(map(sources.encode, blocks[0]), map(targets.encode, blocks[1]), strict=True)
