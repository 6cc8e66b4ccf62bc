"""``sgdec compare``: the outputs of two or more runs on the same sentences."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence

import click

from sgdec.cli.paths import Command, Read, Written
from sgdec.cli.tables import table
from sgdec.errors import SgdecError, UsageError, one_line
from sgdec.io.outputs import FORMATS, Format, Outputs, read_outputs
from sgdec.io.writing import write_all
from sgdec.tasks.comparison import ComparedSentence, Comparison, aligned, compare
from sgdec.tasks.comparison_tables import tables
from sgdec.tasks.metrics import NAMES, SAMPLES, SEED, TESTS, Test
from sgdec.tasks.word_diff import Span, word_diff
from sgdec.text.lines import read_lines


@click.command("compare", cls=Command)
@click.argument("files", type=Read(), nargs=-1, required=True, metavar="A B [C]...")
@click.option(
    "--reference",
    "reference",
    type=Read(),
    multiple=True,
    metavar="FILE",
    help="One reference per line; repeat it for several references per sentence.",
)
@click.option("--source", type=Read(), metavar="FILE", help="The source lines, to be shown with the sentences.")
@click.option(
    "--format",
    type=click.Choice(FORMATS),
    help="Format of A, B, C: lines, n-best lists in Moses' format, or the JSON lines of sgdec decode. By default the "
    "first line of each file decides.",
)
@click.option(
    "--metrics",
    metavar="LIST",
    help="Metrics against references. Default: bleu,chrf,ter; TER is slow for sentences of hundreds of words.",
)
@click.option(
    "--test",
    type=click.Choice(TESTS),
    help="Significance test: approximate randomisation, or sacreBLEU's paired bootstrap, which adds confidence "
    "intervals, but whose p is too small. Default: approx.",
)
@click.option(
    "--samples",
    type=click.IntRange(min=1, max=1_000_000),
    metavar="N",
    help=f"Trials or resamples of the test. Default: {SAMPLES['approx']:,}; {SAMPLES['bootstrap']:,} for bootstrap.",
)
@click.option(
    "--seed", type=click.IntRange(min=1, max=2**32 - 1), metavar="N", help=f"Seed of the test. Default: {SEED}."
)
@click.option(
    "--show",
    type=click.IntRange(min=0),
    default=5,
    show_default=True,
    metavar="N",
    help="Sentences to print: those that differ most.",
)
@click.option("--html", type=Written(), metavar="FILE", help="Write a page with all sentences, to sort and to read.")
@click.option("--json", "json_", type=Written(), metavar="FILE", help="Write all numbers as JSON.")
def command(
    files: tuple[str, ...],
    reference: tuple[str, ...],
    source: str | None,
    format: Format | None,
    metrics: str | None,
    test: Test | None,
    samples: int | None,
    seed: int | None,
    show: int,
    html: str | None,
    json_: str | None,
) -> None:
    """Compare the outputs of two or more runs on the same sentences; A is the baseline.

    \b
    sgdec compare beam.txt sampled.txt --reference test.de --source test.en \\
        --html report.html
    sgdec compare beam4.jsonl beam100.jsonl

    With --reference: BLEU, chrF and TER with sacreBLEU's signatures, the significance of each difference to A, and
    lengths; for n-best lists also the oracle, the hypotheses with the highest chrF. In any case: overlap with A,
    scores in the files, and the sentences that differ most.

    Files have one output per line, or are n-best lists in Moses' format or the JSON lines of sgdec decode. The first
    hypothesis of a list is the output. A sentence without a list has none: scores against references count an empty
    output, the overlap leaves it out. The metrics expect detokenised text; token ids are compared as words.
    """
    if len(files) < 2:
        raise UsageError("compare needs two files or more. `sgdec evaluate` scores one.")
    if not reference:
        for flag, value in (("--metrics", metrics), ("--test", test), ("--samples", samples), ("--seed", seed)):
            if value is not None:
                raise UsageError(f"{flag} is for the differences between scores, which need --reference FILE.")
    chosen = _metrics(metrics)
    runs, references, sources = _read(files, reference, source, format)
    comparison = compare(
        runs, references, source=sources, test=test or "approx", samples=samples, seed=seed or SEED,
        metrics=chosen,
    )  # fmt: skip
    outputs: dict[str, bytes | str] = {}
    if html is not None:
        from sgdec.tasks.comparison_page import page

        outputs[html] = page(comparison)
    if json_ is not None:
        outputs[json_] = json.dumps(comparison.to_dict(), indent=1) + "\n"
    write_all(outputs)
    click.echo("\n\n".join(_report(comparison, show)))


def _metrics(listed: str | None) -> tuple[str, ...]:
    """The keys of the metrics, in the order of `NAMES`. Raises UsageError for an unknown one."""
    if listed is None:
        return tuple(NAMES)
    given = [name.strip().lower() for name in listed.split(",")]
    for name in given:
        if name not in NAMES:
            raise UsageError(f"--metrics {listed}: {name!r} is not a metric; expected a list of {', '.join(NAMES)}.")
    return tuple(name for name in NAMES if name in given)


def _read(
    files: Sequence[str], references: Sequence[str], source: str | None, format: Format | None
) -> tuple[list[Outputs], list[list[str]], list[str] | None]:
    if [*files, *references, source].count("-") > 1:
        raise UsageError("standard input (-) can be only one of the files.")
    runs = [read_outputs(path, format) for path in files]
    lines = {path: list(read_lines(path)) for path in (*references, source) if path is not None}
    for path, found in lines.items():
        if not found:
            raise SgdecError(f"{path}: the file has no lines. Expected one line per sentence.")
    runs = aligned(runs, [(path, len(found)) for path, found in lines.items()])
    return runs, [lines[path] for path in references], None if source is None else lines[source]


def _report(comparison: Comparison, show: int) -> Iterator[str]:
    """The paragraphs of the report."""
    for each in tables(comparison):
        yield "\n".join([each.title, table(each.head, each.rows), *each.notes])
    for sentence in comparison.most_different(show):
        yield _sentence(comparison, sentence)


def _sentence(comparison: Comparison, sentence: ComparedSentence) -> str:
    """The texts of a sentence, and the chrF of its outputs. Those of all runs but the first are shown as changes of
    the first."""
    lines = [] if sentence.source is None else [("source", "", one_line(sentence.source))]
    lines += [("reference", "", one_line(reference)) for reference in sentence.references]
    first, *others = sentence.outputs
    texts = [one_line(first), *("".join(map(_marked, word_diff(first, other))) for other in others)]
    for system, chrf, missing, text in zip(
        comparison.systems, sentence.chrf, sentence.missing, texts, strict=True
    ):
        lines.append((one_line(system.name), f"{chrf:.1f}", "(no output)" if missing else text))
    width = max(len(label) for label, *_ in lines)
    rows = (f"  {label:<{width}}  {chrf:>5}  {text}".rstrip() for label, chrf, text in lines)
    return "\n".join([f"Sentence {sentence.number}, difference in chrF {sentence.difference:+.1f}", *rows])


def _marked(span: Span) -> str:
    """The words of a span with marks, on a terminal in colour, too; the space after them is not marked."""
    text = one_line(span.text.rstrip())
    space = " " if span.text != span.text.rstrip() else ""
    if span.kind == "same":
        return text + space
    marked = f"[-{text}-]" if span.kind == "deleted" else f"{{+{text}+}}"
    if sys.stdout.isatty() and "NO_COLOR" not in os.environ:
        marked = click.style(marked, fg="red" if span.kind == "deleted" else "green", bold=True)
    return marked + space
