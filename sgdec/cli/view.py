"""``sgdec view``: a page that shows what searches did, or a figure of one search."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import click

from sgdec.cli.paths import Command, Read, Written
from sgdec.collector import collector_spared
from sgdec.errors import SgdecError, UsageError
from sgdec.io.sources import parse_range
from sgdec.io.writing import write_all, write_whole
from sgdec.view.runs import TracedRun, require_same_sources

Kind = Literal["svg", "pdf"]


@click.command("view", cls=Command)
@click.argument("trace", type=Read(), metavar="TRACE")
@click.argument("other", type=Read(), required=False, metavar="[TRACE2]")
@click.option(
    "--output", type=Written(), metavar="FILE",
    help="The page to write. Default: the name of TRACE with the ending .html.",
)
@click.option(
    "--diagnosis", type=Read(), metavar="FILE",
    help="JSON lines about TRACE from sgdec diagnose --output FILE: the page shows their search errors.",
)
@click.option("--sentences", metavar="A:B", help="Show only sentences A to B, counted from 1, both included.")
@click.option("--sentence", type=click.IntRange(min=1), metavar="N", help="The sentence of --svg and --pdf.")
@click.option("--svg", type=Written(), metavar="FILE", help="Write a figure of one search as SVG instead of a page.")
@click.option("--pdf", type=Written(), metavar="FILE", help="Write a figure of one search as PDF instead of a page.")
@click.option(
    "--dropped", type=click.IntRange(min=0), metavar="N",
    help="Dropped continuations to draw in a figure at each prefix of the best hypothesis. Default: 0.",
)  # fmt: skip
def command(
    trace: str,
    other: str | None,
    output: str | None,
    diagnosis: str | None,
    sentences: str | None,
    sentence: int | None,
    svg: str | None,
    pdf: str | None,
    dropped: int | None,
) -> None:
    """Write a page that shows the searches of TRACE, which sgdec decode --trace FILE has written.

    \b
    sgdec decode --predictors nmt --nmt.model run/best \\
        --trace beam.jsonl.zst input.txt
    sgdec view beam.jsonl.zst --output beam.html
    sgdec view beam.jsonl.zst --sentence 3 --pdf search.pdf

    The page is one file, which a browser opens from the disk. With TRACE2, another run on the same sentences, it
    shows two searches side by side and the step where their outputs part. PAGE.html#sentence=12 shows sentence 12.
    """
    if svg is None and pdf is None:
        if sentence is not None:
            raise UsageError("--sentence is about --svg and --pdf. Give one of them, or --sentences A:B for a page.")
        if dropped is not None:
            raise UsageError("--dropped is about --svg and --pdf. Give one of them.")
        write_page(trace, other, output, sentences, diagnosis)
    else:
        if output is not None:
            raise UsageError("--svg and --pdf write no page. Leave out --output.")
        if other is not None:
            raise UsageError(f"--svg and --pdf draw one search. Give {trace} or {other}.")
        if sentences is not None:
            raise UsageError("--svg and --pdf draw one search. Leave out --sentences.")
        if diagnosis is not None:
            raise UsageError("--svg and --pdf show no search errors. Leave out --diagnosis.")
        if sentence is None:
            raise UsageError("--svg and --pdf draw one search. Give its sentence: --sentence N.")
        write_figures(trace, sentence, {"svg": svg, "pdf": pdf}, dropped or 0)


def write_page(
    trace: str, other: str | None, output: str | None, sentences: str | None, diagnosis: str | None
) -> None:
    """Write the page of one or two traces; ``diagnosis`` is about the first."""
    from sgdec.view.diagnosed import read_search_errors
    from sgdec.view.page import page

    first, last = parse_range(sentences, "--sentences")
    paths = [trace] if other is None else [trace, other]
    if [*paths, diagnosis].count("-") > 1:
        raise UsageError("standard input can be read only once. Give the other one as a file.")
    if output == "-":
        raise UsageError("--output -: a page is a file that a browser opens. Give its name.")
    target = output or default_output(paths)
    with collector_spared():
        runs = [read_run(path, first, last) for path in paths]
        require_same_sources(runs)
        if diagnosis is not None:
            runs[0] = replace(runs[0], diagnosed=read_search_errors(diagnosis, runs[0]))
        html = page(runs)
    write_whole(target, html)
    click.echo(target)


def write_figures(trace: str, sentence: int, targets: Mapping[Kind, str | None], dropped: int) -> None:
    """Write a figure of one sentence."""
    from sgdec.view.figure import draw, packed

    run = read_run(trace, sentence, sentence)
    figure = draw(run, run.sentences[0], dropped=dropped)
    write_all({target: packed(figure, kind) for kind, target in targets.items() if target is not None})


def read_run(path: str, first: int, last: int | None) -> TracedRun:
    """The sentences of a trace from ``first`` to ``last``. Raises SgdecError if it has none of them."""
    from sgdec.trace import read_trace
    from sgdec.trace.records import Tracing

    trace = read_trace(path, Tracing(first=first, last=last))
    if not trace.sentences:
        if (first, last) == (1, None):
            raise SgdecError(f"{path} has no sentence. Trace a run that has one.")
        wanted = f"sentence {first}" if first == last else f"sentence from {first} to {last or 'the end'}"
        raise SgdecError(f"{path} has no {wanted}. The page of 'sgdec view {path}' lists its sentences.")
    return TracedRun(Path(path).name, trace.header, trace.pieces, trace.sentences)


def default_output(paths: Sequence[str]) -> str:
    """The name of the first trace with the ending ``.html``. Raises UsageError if that is one of the traces."""
    if paths[0] == "-":
        raise UsageError("standard input has no name to write to. Give --output FILE.")
    name, ending = os.path.splitext(paths[0])
    if ending in (".gz", ".zst"):
        name, _ = os.path.splitext(name)
    target = f"{name}.html"
    if any(os.path.exists(target) and os.path.samefile(target, path) for path in paths if path != "-"):
        raise UsageError(f"{target} is a trace. Give --output another file.")
    if os.path.exists(target) and not is_own_page(target):
        raise UsageError(f"{target} exists, and was not written by sgdec view. Give --output FILE.")
    return target


def is_own_page(path: str) -> bool:
    """Whether a file is a page of this command, which may be replaced without being named."""
    from sgdec.view.page import TITLE

    with open(path, encoding="utf-8", errors="replace") as file:
        return f"<title>{TITLE}" in file.read(2000)
