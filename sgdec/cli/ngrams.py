"""``sgdec ngrams``: n-gram posteriors of lattices and n-best lists, for the predictor ngramc."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import click

from sgdec.cli.paths import Command, Read, Written
from sgdec.errors import SgdecError, UsageError, counted
from sgdec.io.documents import parse_json
from sgdec.io.limits import TOKENS, whole_number
from sgdec.io.patterns import numbers_of_files
from sgdec.io.sources import parse_range
from sgdec.terminal import track
from sgdec.text.lines import read_lines

if TYPE_CHECKING:
    from sgdec.context import Vocabulary
    from sgdec.io.nbest import NbestEntry
    from sgdec.io.ngrams import Ngram

log = logging.getLogger(__name__)

Entries: TypeAlias = list[tuple[tuple[int, ...], float]]
"""The hypotheses of one sentence: tokens without ``</s>``, and the total."""
Extracted: TypeAlias = "Iterator[tuple[int, dict[Ngram, float]]]"
"""Ascending sentence numbers with their n-grams."""


@click.command("ngrams", cls=Command)
@click.argument("input", type=Read(), metavar="INPUT")
@click.option(
    "--output",
    type=Written(),
    required=True,
    metavar="PATTERN",
    help="Pattern of the files to write, such as 'ngrams/{id}.txt'.",
)
@click.option(
    "--order",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    metavar="INT",
    help="Length of the longest n-grams.",
)
@click.option(
    "--scale",
    type=click.FloatRange(min=0),
    default=1.0,
    show_default=True,
    metavar="FLOAT",
    help="Factor of the scores before exponentiation; values below 1 flatten the distribution.",
)
@click.option(
    "--counts", is_flag=True, help="Write expected counts: an n-gram counts as often as it occurs in a path."
)
@click.option("--range", "range_", metavar="A:B", help="Read only sentences A to B, counted from 1, both included.")
@click.option(
    "--tokenizer",
    type=Read(),
    metavar="FILE|DIR",
    help="Tokenizer of the text of an n-best list; by default the list has token ids.",
)
def command(
    input: str, output: str, order: int, scale: float, counts: bool, range_: str | None, tokenizer: str | None
) -> int:
    """Write the n-grams of each sentence's hypotheses, with the posterior probability that they occur.

    \b
    sgdec ngrams 'lattices/{id}.fst' --output 'ngrams/{id}.txt'
    sgdec decode --predictors nmt,ngramc --nmt.model run/best \\
        --ngramc.path 'ngrams/{id}.txt' input.txt

    INPUT is a pattern of lattices such as 'lattices/{id}.fst', an n-best list in Moses' format, or the JSON lines of
    sgdec decode (a name that ends in .jsonl or .jsonl.gz). Each path of a lattice or entry of a list has the
    probability exp(scale x score), renormalised; on lattices posteriors are exact.

    A sentence without hypotheses gets an empty file and a warning. A sentence that is missing from a list gets no
    file; consecutive missing sentences share a warning. Both cases give exit status 1 at the end.
    """
    if "{id}" not in output:
        raise UsageError("ngrams go to one file per sentence: give --output a pattern such as 'ngrams/{id}.txt'.")
    from sgdec.io.ngrams import write_ngrams

    first, last = parse_range(range_)
    if "{id}" in input:
        extracted = from_lattices(input, first, last, order, scale, counts)
    else:
        extracted = from_lists(read_lists(input, tokenizer), first, last, order, scale, counts)
    files, empty, expected = 0, 0, first
    for number, ngrams in track(extracted, "extracting n-grams", log, unit="sentences"):
        if number > expected and "{id}" not in input:
            empty += _missing(input, expected, number - 1)
        expected = number + 1
        path = Path(output.replace("{id}", str(number)))
        path.parent.mkdir(parents=True, exist_ok=True)
        write_ngrams(path, ngrams)
        files += 1
        if not ngrams:
            empty += 1
            log.warning(f"sentence {number} has no hypothesis; {path} is empty.")
    if not files:
        where = f" in {range_}" if range_ else ""
        what = ": no file matches" if "{id}" in input else ""
        raise SgdecError(f"{input}: there is no sentence{where}{what}.")
    if last is not None and expected <= last:
        empty += _missing(input, expected, last)
    log.info(f"{output}: {counted(files, 'file')}")
    return 1 if empty else 0


def _missing(input: str, first: int, last: int) -> int:
    """Warn that sentences are missing from a list. Returns their number."""
    which = f"sentence {first} is" if first == last else f"sentences {first} to {last} are"
    log.warning(f"{which} not in {input}, so without an output file.")
    return last + 1 - first


def from_lattices(pattern: str, first: int, last: int | None, order: int, scale: float, counts: bool) -> Extracted:
    """The n-grams of all lattices, or of those in a range. Raises SgdecError if a lattice is missing or invalid."""
    from sgdec.io.lattice import read_lattice, require_ends
    from sgdec.io.openfst import LatticeError
    from sgdec.tasks.posteriors import lattice_posteriors

    for number in _present(pattern, first) if last is None else range(first, last + 1):
        path = pattern.replace("{id}", str(number))
        try:
            lattice = read_lattice(path)
            require_ends(lattice, path)
            yield number, lattice_posteriors(lattice, order, scale=scale, counts=counts)
        except LatticeError as error:
            raise SgdecError(f"{path}: {error.what} (sentence {number}). {error.way_out}".rstrip()) from None
        except SgdecError as error:
            raise SgdecError(f"{path}: {error}") from None


def from_lists(
    lists: Iterable[tuple[int, Entries]], first: int, last: int | None, order: int, scale: float, counts: bool
) -> Extracted:
    """The n-grams of n-best lists, by ascending sentence."""
    from sgdec.tasks.posteriors import nbest_posteriors

    for number, entries in lists:
        if last is not None and number > last:
            break
        if not all(score < math.inf for _, score in entries):
            raise SgdecError(f"a total of sentence {number} is not a finite number. Expected natural-log scores.")
        if number >= first:
            yield number, nbest_posteriors(entries, order, scale=scale, counts=counts)


def read_lists(path: str, tokenizer: str | None) -> Iterator[tuple[int, Entries]]:
    """N-best lists by sentence. Raises SgdecError naming the line."""
    if path.endswith((".jsonl", ".jsonl.gz")):
        yield from _read_jsonl(path)
        return
    from sgdec.io.nbest import read_nbest

    vocabulary = None
    if tokenizer is not None:
        from sgdec.text.vocabulary import load_vocabulary

        vocabulary = load_vocabulary(tokenizer)
    for number, listed in read_nbest(path):
        yield number, [_entry(entry, vocabulary) for entry in listed]


def _entry(entry: NbestEntry, vocabulary: Vocabulary | None) -> tuple[tuple[int, ...], float]:
    if entry.total is None:
        raise SgdecError(f"{entry.where} has no total. Probabilities are computed from totals.")
    if vocabulary is not None:
        return vocabulary.encode(entry.text), entry.total
    words = entry.text.split()
    tokens = tuple(token for token in map(whole_number, words) if token is not None)
    if len(tokens) < len(words):
        wrong = next(word for word in words if whole_number(word) is None)
        raise SgdecError(f"{entry.where}: {wrong!r} is not a token id. For text, give --tokenizer.")
    return tokens, entry.total


def _read_jsonl(path: str) -> Iterator[tuple[int, Entries]]:
    before = 0
    for number, line in enumerate(read_lines(path), 1):
        try:
            row = parse_json(line)
            sentence, listed = row["id"], row["hypotheses"]
            entries = [(tuple(found["tokens"]), float(found["score"])) for found in listed]
            if not all(type(number) is int and 0 <= number < TOKENS for number in (sentence, *_tokens(entries))):
                raise ValueError
        except (ValueError, KeyError, TypeError, OverflowError):
            raise SgdecError(
                f"{path}: line {number} is not a result of `sgdec decode --output-format jsonl`."
            ) from None
        if sentence <= before:
            raise SgdecError(f"{path}: line {number}: sentence ids do not ascend.")
        before = sentence
        yield sentence, entries


def _tokens(entries: Entries) -> Iterator[int]:
    return chain.from_iterable(tokens for tokens, _ in entries)


def _present(pattern: str, first: int) -> Sequence[int]:
    """The numbers of the sentences that have a file, from ``first`` on."""
    return [number for number in numbers_of_files(pattern) if number >= first]
