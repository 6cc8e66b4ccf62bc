"""``sgdec decode``: searches for outputs and writes them in input order, as soon as possible."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import click

from sgdec.cli import running, tracing
from sgdec.cli.paths import Read, Written
from sgdec.cli.sections import option
from sgdec.collector import collector_spared
from sgdec.errors import UsageError
from sgdec.io.unfinished import beside
from sgdec.settings import INPUT, OUTPUT, SHAPING

log = logging.getLogger(__name__)


@click.command("decode", cls=running.RunCommand)
@click.argument("input", nargs=-1, type=Read(default_stdin=True))
@running.options(
    *running.OF_PREDICTORS,
    running.DECODER,
    *running.OF_SEARCH,
    *running.OF_INPUT,
    option(
        "--range", section=INPUT, metavar="A:B", help="Decode only sentences A to B, counted from 1, both included."
    ),
    option(
        "--output", section=OUTPUT, type=Written(beside=beside), metavar="FILE",
        help="File to write, default standard output; a pattern with {id} for --output-format fst.",
    ),
    option(
        "--output-format", section=OUTPUT, type=click.Choice(["text", "ids", "nbest", "jsonl", "fst"]),
        default="text", show_default=True,
        help="Best text, best token ids, Moses n-best list, JSON lines, or lattices.",
    ),
    running.setting("weights", type=Read(), metavar="FILE"),
    *map(running.setting, ("nbest", "distinct_text", "copy_unknown", "coverage")),
    option(
        "--ledger", section=OUTPUT, is_flag=True,
        help="Add to the JSON lines the score of every token by every predictor, and by the parts of mixes.",
    ),
    *running.UNFINISHED,
    *tracing.OPTIONS,
    *running.OF_BATCHES,
    *running.OF_REPRODUCTION,
    running.setting("deterministic"),
)  # fmt: skip
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> int:
    """Decode INPUT, one sentence or prompt per line: a file, gzipped or not, or standard input (-, or no INPUT).

    \b
    # a model of 'sgdec train'
    sgdec decode --predictors nmt --nmt.model run/best input.txt
    # a causal model of Hugging Face, which continues a prompt
    sgdec decode --predictors hf --hf.model FOLDER \\
        --hf.prompt 'Translate to German: {source}' input.txt
    # outputs that match a regular expression
    sgdec decode --predictors nmt,regex --nmt.model run/best \\
        --regex.pattern '[0-9]+ .*' input.txt
    # a model within lattices, both with weights
    sgdec decode --predictors nmt,fst --nmt.model run/best --nmt.weight 0.8 \\
        --fst.path 'lattices/{id}.fst' --fst.weight 0.2 --beam.size 10 input.txt

    'sgdec plugins' lists all predictors and decoders. 'sgdec plugins NAME' describes one, with its options, which
    --NAME.OPTION VALUE sets.

    A causal model continues each line, or --hf.prompt with the line in the place of {source}. A model with two
    sources takes two files, or one file with a tab between the two sides of each line.

    A failed sentence gives an empty line, a warning with its number, and exit status 1 at the end.

    With --output FILE the rows are in FILE.partial until the run is complete. To continue an interrupted run, repeat
    the call with --resume.
    """
    return decode(*running.settings(ctx, given))


def decode(given: dict[str, Any], dotted: running.Options) -> int:
    """Assemble the run, decode and write. Returns the exit status, 1 if a sentence failed."""
    from sgdec.io.results import make_writer
    from sgdec.io.sources import parse_range
    from sgdec.signature import line
    from sgdec.tasks.parts import part_scores, with_parts
    from sgdec.tasks.refusals import Refusals

    first, last = parse_range(given["range"])
    inputs = given["input"] or ("-",)
    if given["output_format"] == "fst" and "{id}" not in (given["output"] or ""):
        raise UsageError(
            "--output-format fst writes one lattice per sentence: give --output a pattern such as 'out/{id}.fst'."
        )
    if given["ledger"] and given["output_format"] != "jsonl":
        raise UsageError(f"--ledger: {given['output_format']} cannot hold it. Give --output-format jsonl.")
    traced = tracing.tracing(given)
    loaded = running.load(given, dotted, decoder=given["decoder"])
    run, reader = loaded.parts, loaded.reader(given["input_format"])
    signature = running.sign(loaded, given, (*SHAPING, "coverage"))
    if loaded.caveat is not None:
        log.info(f"Note: {given['decoder']}: {loaded.caveat}")
    if given["resume"]:
        running.refuse_clocks(run)
    about = partial(running.about, given, signature, inputs, ("output_format", "ledger", "range"))
    with (
        collector_spared(),
        reader.open(inputs) as lines,
        running.open_rows(given, about) as rows,
        tracing.writing(given, loaded, traced, line(signature)) as trace,
    ):
        if rows.complete:
            return 1 if rows.failed else 0
        if rows.noted and rows.done != first - 1 + rows.noted:
            raise UsageError(
                f"--resume: the notes of {given['output']} are damaged: they have {rows.noted} sentences from "
                f"{first} on, and the last one is {rows.done}. Begin again with --overwrite."
            )
        running.note_unwritten(given["nbest"], given["output_format"])
        target, names = run.vocabularies.target, run.constellation.names
        writer = make_writer(
            given["output_format"], given["output"], rows, target, names, ledger=given["ledger"],
            parts=partial(part_scores, run.constellation),
        )  # fmt: skip
        sentences = reader.read(lines, " and ".join(inputs), first, last, done=rows.done)
        due = (sentence for sentence in sentences if sentence.id > rows.done)
        with running.Tally("decoding", given, given["decoder"], done=max(rows.done - first + 1, 0)) as tally:
            tally.expect(inputs, first, last)
            scheduler, refusals = loaded.scheduler(traced, tally.meter), Refusals(run.constellation)
            for outcome in scheduler.run(due, tally.searched):
                warning = writer.write(loaded.respelled(outcome))
                rows.note(outcome.source.id, failed=outcome.error is not None)
                if trace is not None and outcome.trace is not None:
                    trace.write(with_parts(run.constellation, outcome.source, outcome.trace))
                tally.count(outcome)
                for problem in (outcome.error, warning):
                    if problem is not None:
                        tally.warn(outcome.source.id, problem)
    tally.report()
    running.report_refusals(refusals)
    tally.report_limited(loaded.lengths)
    running.summarise(run, scheduler, signature)
    tally.report_unproven()
    return 1 if tally.failed or rows.failed else 0
