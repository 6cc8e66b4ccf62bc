"""``sgdec decode``: predictors, a decoder, an input; results in input order as they are ready."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from sgdec.cli import running
from sgdec.cli.paths import Read, Written
from sgdec.errors import UsageError
from sgdec.io.unfinished import beside

SHAPING = (
    "nbest", "max_length_factor", "max_length", "batch_size", "window", "max_rows", "deterministic", "copy_unknown",
)  # fmt: skip
"""Options that can change a result, beside those of predictors and decoder: they belong to the signature."""


@click.command("decode", cls=running.RunCommand)
@click.argument("input", nargs=-1, type=Read(default_stdin=True))
@running.options(
    *running.BEFORE,
    click.option("--decoder", metavar="NAME", default="beam", show_default=True, help="How to search."),
    click.option(
        "--nbest", type=click.IntRange(min=1), default=1, show_default=True, help="Hypotheses a sentence, at most."
    ),
    click.option(
        "--max-length-factor", type=click.FloatRange(min=0), default=2.0, show_default=True,
        help="At most this many times the source tokens before </s>.",
    ),
    click.option(
        "--max-length", type=click.IntRange(min=0),
        help="At most this many tokens before </s>; 0 = no limit, but an error where 10,000 tokens come to no end.",
    ),
    click.option(
        "--output", type=Written(beside=beside), metavar="FILE",
        help="Instead of standard output; with {id} for --output-format fst.",
    ),
    *running.UNFINISHED,
    click.option(
        "--output-format", type=click.Choice(["text", "ids", "nbest", "jsonl", "fst"]), default="text",
        show_default=True, help="Best text, best token ids, Moses n-best, JSON lines, or a lattice a sentence.",
    ),
    click.option("--range", metavar="A:B", help="Only sentences A to B, inclusive, from 1."),
    click.option(
        "--deterministic", is_flag=True,
        help="Results do not depend on --batch-size, bit for bit: sentences share no arithmetic, which is slower.",
    ),
    click.option(
        "--copy-unknown", is_flag=True,
        help="Spell unknown words as the source words that they attend to (models of words).",
    ),
    *running.AFTER,
)  # fmt: skip
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> int:
    """Decode INPUT (a file, gzipped or not, or - for standard input), one sentence a line.

    A model of two sources takes two files, or one whose lines hold both with a tab between them.

    Options of a predictor or decoder are --NAME.OPTION VALUE; 'sgdec plugins NAME' lists them. Each entry of
    --predictors also has --NAME.weight (1.0).

    \b
    sgdec decode --predictors nmt,fst --decoder beam --nmt.model run/best \\
        --fst.path 'lattices/{id}.fst' --beam.size 5 input.txt

    A sentence that fails is an empty line, a warning with its number, and exit status 1 at the end.

    With --output FILE the rows are in FILE.partial until all are there. A run that was ended before goes on with the
    same call and --resume.
    """
    return decode(*running.settings(ctx, given))


def decode(given: dict[str, Any], dotted: running.Options) -> int:
    """Put the run together, decode, write; 1 if a sentence failed."""
    from sgdec.assembly import assemble
    from sgdec.copying import Copier
    from sgdec.io.results import make_writer
    from sgdec.io.sources import LengthRule, SourceReader, parse_range
    from sgdec.plugins import Host
    from sgdec.scheduler import Scheduler

    first, last = parse_range(given["range"])
    inputs = given["input"] or ("-",)
    if given["output_format"] == "fst" and "{id}" not in (given["output"] or ""):
        raise UsageError(
            "--output-format fst writes one lattice a sentence: give --output a pattern such as 'out/{id}.fst'."
        )
    config = running.run_config(given, dotted, decoder=given["decoder"], deterministic=given["deterministic"])
    run = assemble(config, Host(given["plugin_file"]))
    running.set_threads(given["threads"])
    lengths = LengthRule(given["max_length_factor"], given["max_length"])
    reader = SourceReader(run.vocabularies.source, given["input_format"], lengths, given["max_source_length"])
    shared = ("nbest", "seed", "batch_size", "window", "max_rows", "deterministic")
    scheduler = Scheduler(run.constellation, run.decoder, **{name: given[name] for name in shared})
    copier = Copier(run.constellation, run.vocabularies) if given["copy_unknown"] else None
    signature = running.sign(run, given, SHAPING)
    never_rises = run.constellation.never_rises(run.constellation.weights)
    if (caveat := run.decoder.caveat(given["nbest"], never_rises)) is not None:
        click.echo(f"Note: {given['decoder']}: {caveat}", err=True)
    if given["resume"]:
        running.refuse_clocks(run)
    about = partial(running.about, given, signature, inputs, ("output_format", "range"))
    with (
        running.collector_spared(),
        reader.open(inputs) as lines,
        running.open_rows(given, about) as rows,
    ):
        if rows.complete:
            return 1 if rows.failed else 0
        progress = running.Progress(given["decoder"])
        writer = make_writer(
            given["output_format"], given["output"], rows, run.vocabularies.target, run.constellation.names
        )
        sentences = reader.read(lines, " and ".join(inputs), max(first, rows.done + 1), last)
        for outcome in scheduler.run(sentence for sentence in sentences if sentence.id > rows.done):
            warning = writer.write(outcome if copier is None else copier.respell(outcome))
            rows.note(outcome.source.id, failed=outcome.error is not None)
            progress.count(outcome)
            for problem in (outcome.error, warning):
                if problem is not None:
                    progress.warn(outcome.source.id, problem)
    progress.finish()
    running.summarise(run, scheduler, signature)
    return 1 if progress.failed or rows.failed else 0
