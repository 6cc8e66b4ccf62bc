"""``sgdec lm``: estimates an n-gram language model from text and writes an ARPA file."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import click

from sgdec.cli.paths import Command, Read, Written
from sgdec.context import BOS, EOS
from sgdec.errors import SgdecError, UsageError, counted
from sgdec.terminal import Bar, track
from sgdec.text.lines import read_lines

log = logging.getLogger(__name__)

SPECIAL = ("<unk>", "<s>", "</s>")
"""The words of tokens 0, 1 and 2."""
WORD = re.compile(r"\S+", re.ASCII)
"""As in an ARPA file, only ASCII blanks separate words: a no-break space may be part of a word."""
LINES_AT_ONCE = 10_000
Line = tuple[str, int, str]
"""File, number and text."""
MANY_VALUES = ("--input", "--prune", "--discounts")
"""Options that take one or more values: ``--prune 0 0 1``."""


def repeat_options(args: Iterable[str]) -> list[str]:
    """The command line with an option of several values repeated for each value.

    >>> repeat_options(["--prune", "0", "1", "--order", "3"])
    ['--prune', '0', '--prune', '1', '--order', '3']
    """
    repeated: list[str] = []
    option = None
    for arg in args:
        if arg.startswith("-") and arg != "-":
            option = arg if arg in MANY_VALUES else None
        elif option is not None and (not repeated or repeated[-1] != option):
            repeated.append(option)
        repeated.append(arg)
    return repeated


class ManyValues(Command):
    """A command with options of `MANY_VALUES`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, repeat_options(args))


@click.command("lm", cls=ManyValues)
@click.option(
    "--input",
    "inputs",
    type=Read(),
    multiple=True,
    required=True,
    metavar="FILE...",
    help="Training text; may be gzipped.",
)
@click.option("--output", type=Written(), required=True, metavar="FILE.arpa[.gz]", help="File to write the model to.")
@click.option(
    "--tokenizer",
    type=Read(),
    metavar="FILE|DIR",
    help="Tokenizer of the text; by default words are separated by blanks.",
)
@click.option(
    "--order",
    type=click.IntRange(1, 6),
    default=5,
    show_default=True,
    metavar="INT",
    help="Length of the longest n-grams; KenLM reads 2 to 6.",
)
@click.option(
    "--words",
    type=click.Choice(["ids", "pieces"]),
    default="ids",
    show_default=True,
    help="Write tokens in the model as pieces or as token ids.",
)
@click.option(
    "--prune",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="N...",
    help="For each order, drop n-grams that occur at most N times; the last N is for all higher orders.",
)
@click.option(
    "--discounts",
    type=float,
    multiple=True,
    metavar="D1 D2 D3...",
    help="Discounts to use instead of the estimated ones: three for all orders, or three for each order.",
)
@click.option(
    "--discount-fallback", is_flag=True, help="Use the discounts 0.5 1 1.5 if the text does not determine them."
)
def command(
    inputs: tuple[str, ...],
    output: str,
    tokenizer: str | None,
    order: int,
    words: str,
    prune: tuple[int, ...],
    discounts: tuple[float, ...],
    discount_fallback: bool,
) -> None:
    """Estimate an interpolated modified Kneser-Ney model; write it as ARPA, for the predictor ngram and for KenLM.

    \b
    sgdec lm --input train.de --tokenizer tok.spm --order 4 --output lm.arpa.gz
    sgdec decode --predictors nmt,ngram --nmt.model run/best \\
        --ngram.path lm.arpa.gz --ngram.weight 0.2 input.txt

    Every token of the tokenizer gets a probability, seen or not. Empty lines are skipped.
    """
    from sgdec.estimation.kneser_ney import estimate, join
    from sgdec.io.arpa import write_arpa

    if words == "pieces" and tokenizer is None:
        raise UsageError(
            "--words pieces needs --tokenizer; without a tokenizer, the model's words are those of the text."
        )
    if not Path(output).absolute().parent.is_dir():
        raise SgdecError(f"{output}: cannot be written (no such folder).")
    lines = track(read_all(inputs), "reading", log, unit="lines")
    sentences, names = split_words(lines) if tokenizer is None else tokenize(lines, tokenizer, words)
    text = join(sentences)
    with Bar("n-gram model", log) as bar:
        model, used = estimate(
            text,
            names,
            order=order,
            prune=prune,
            discounts=[discounts[i : i + 3] for i in range(0, len(discounts), 3)],
            fallback=discount_fallback,
            report=bar.note,
        )
        bar.note(f"writing {output}")
        write_arpa(output, model)
    log.info(f"{output}: {counted(len(text), 'token')} with <s> and </s>, {counted(len(names), 'word')}")
    for n, (ngrams, by_count) in enumerate(zip(model.orders, used, strict=False), 1):
        shown = ", ".join(f"{discount:.3f}" for discount in by_count)
        log.info(f"  {n}-grams: {len(ngrams.scores):,}; discounts {shown}")


def tokenize(lines: Iterable[Line], tokenizer: str, words: str) -> tuple[Iterator[list[int]], list[str]]:
    """The sentences as tokens, and the name of each token."""
    from sgdec.text.vocabulary import load_vocabulary

    vocabulary = load_vocabulary(tokenizer)
    names = [*SPECIAL, *map(str if words == "ids" else vocabulary.piece, range(len(SPECIAL), vocabulary.size))]
    for token, name in enumerate(names):
        if len(name.encode().split()) != 1 or (token >= len(SPECIAL) and name in SPECIAL):
            raise UsageError(f"{tokenizer}: an ARPA file cannot hold piece {token}, {name!r}; set --words ids.")

    def sentences() -> Iterator[list[int]]:
        texts = (line for _, _, line in lines)
        while block := list(islice(texts, LINES_AT_ONCE)):
            yield from vocabulary.encode_all(block)

    return sentences(), names


def split_words(lines: Iterable[Line]) -> tuple[list[list[int]], list[str]]:
    """The sentences, with words numbered in order of appearance, and the words."""
    numbers = {word: token for token, word in enumerate(SPECIAL)}
    sentences = []
    for path, number, line in lines:
        sentence = [numbers.setdefault(word, len(numbers)) for word in WORD.findall(line)]
        if BOS in sentence or EOS in sentence:
            raise SgdecError(
                f"{path}: line {number}: <s> and </s> are added around each line; remove them from the text."
            )
        sentences.append(sentence)
    return sentences, list(numbers)


def read_all(paths: Iterable[str]) -> Iterator[Line]:
    """Each line."""
    for path in paths:
        for number, line in enumerate(read_lines(path), 1):
            yield path, number, line
