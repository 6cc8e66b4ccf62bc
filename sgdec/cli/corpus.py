"""``sgdec corpus``: decodes or scores a corpus with many workers into a folder, and a later start continues."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import click

from sgdec.cli import running
from sgdec.cli.paths import Command, Read, Written
from sgdec.cli.sections import Row, option
from sgdec.errors import UsageError, counted
from sgdec.plugins.options import separate_dotted, split_dotted
from sgdec.settings import INPUT, OUTPUT, Settings

if TYPE_CHECKING:
    from sgdec.corpus.engine import Engine, Job, Limits
    from sgdec.corpus.manifest import Manifest
    from sgdec.corpus.starter import CorpusProgress
    from sgdec.corpus.starting import EndedRun

log = logging.getLogger(__name__)

INSIDE = (
    "manifest.json", "chunks.npy", "again", "inputs", "leases", "parts", "results", "starters", "tokens", "undecided",
)  # fmt: skip
"""The names that are written in the folder."""
INSTEAD = {
    "output": "--output DIR goes before `--`; `sgdec corpus-merge` writes the outputs of all lines to one file",
    "output_format": "--output-format goes before `--`",
    "ledger": "--ledger goes before `--`",
    "resume": "a second start with the same options continues by itself",
    "overwrite": "to begin again, give another folder",
    "range": "all lines are decoded; give a file with fewer lines",
    **dict.fromkeys(
        ("trace", "trace_sentences", "trace_children", "trace_expansions"),
        "searches are traced by `sgdec decode`, which can repeat the lines in question",
    ),
    "signature": "the manifest has the signature",
}
"""Options of ``sgdec decode`` and ``sgdec score`` that have no place here, and what to do."""
SCORING = ("nbest_list", "old_weight", "alpha", "beta", "normalize", "target_format")
"""Options of ``sgdec score`` that are neither its predictors' nor settings of a run."""
WORKERS = "Workers"
LIMITS = "Limits and failed lines"


class CorpusCommand(Command):
    """A command whose arguments after ``--`` are those of ``sgdec decode``, with --score those of ``sgdec score``."""

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "-- [OPTIONS of sgdec decode or score]"]

    def rows_of_plugins(self) -> dict[str, list[Row]]:
        return {WORKERS: [("--ENGINE.OPTION VALUE", "An option of the engine; 'sgdec plugins ENGINE' lists all.")]}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        from sgdec.cli.decode import command as decode
        from sgdec.cli.score import command as score

        at = args.index("--") if "--" in args else len(args)
        own, dotted = separate_dotted(args[:at])
        ctx.meta["arguments"] = inner = args[at + 1 :]
        with _explained({decode: "`sgdec decode`: these go after `--`", score: "`sgdec score`: these go after `--`"}):
            parsed = super().parse_args(ctx, own)
        here = "`sgdec corpus`: these go before `--`"
        if ctx.params["score"] is None:
            with _explained({self: here, score: "`sgdec score`: give --score FILE before `--`"}):
                ctx.meta["inner"] = decode.make_context("sgdec decode", inner)
        else:
            with _explained({self: here, decode: "`sgdec decode`, and --score takes those of `sgdec score`"}):
                files = [*ctx.params["input"], ctx.params["score"]]
                ctx.meta["inner"] = score.make_context("sgdec score", [*files, *inner])
        ctx.meta["engine"] = split_dotted(dotted)
        return parsed


@contextmanager
def _explained(others: Mapping[click.Command, str]) -> Iterator[None]:
    """Say whose option an unknown one is if another command has it."""
    try:
        yield
    except click.NoSuchOption as error:
        for other, whose in others.items():
            if any(error.option_name in each.opts for each in other.params):
                raise UsageError(f"{error.option_name} is an option of {whose}.") from None
        raise


@click.command("corpus", cls=CorpusCommand)
@click.argument("input", nargs=-1, required=True, type=Read())
@option(
    "--score", section=INPUT, type=Read(), metavar="FILE",
    help="Decode nothing, score the outputs in FILE: a line for each line of all INPUT, or an n-best list.",
)
@option(
    "--output", section=OUTPUT, required=True, type=Written(inside=INSIDE), metavar="DIR",
    help="Folder of the corpus, or a URL such as s3://bucket/corpus; all machines have to see it.",
)
@option(
    "--output-format", section=OUTPUT, type=click.Choice(["text", "ids", "nbest", "jsonl", "fst", "score"]),
    help="As in sgdec decode or sgdec score, with their defaults.",
)
@option(
    "--ledger", section=OUTPUT, is_flag=True,
    help="Add to the JSON lines the score of every token by every predictor, and by the parts of mixes.",
)
@option(
    "--workers", section=WORKERS, type=click.IntRange(1), default=1, show_default=True, metavar="INT",
    help="Number of workers.",
)
@option(
    "--chunk", section=WORKERS, type=click.IntRange(1), default=2000, show_default=True, metavar="LINES",
    help="The most lines that are handed out, and lost with a worker, together.",
)
@option(
    "--lease-seconds", section=WORKERS, type=click.FloatRange(1), default=60.0, show_default=True, metavar="SECONDS",
    help="Time after which other starters take over the chunks of one that shows no life.",
)
@option(
    "--engine", section=WORKERS, metavar="NAME", default="local", show_default=True,
    help="Engine that runs the workers.",
)
@option("--ray-address", section=WORKERS, metavar="ADDRESS", help="Short for --ray.address.")
@option(
    "--line-seconds", section=LIMITS, type=click.FloatRange(0, min_open=True), metavar="SECONDS",
    help="Kill a worker that finishes no line for so long; the line is then found and given up.",
)
@option(
    "--worker-memory", section=LIMITS, type=click.FloatRange(0, min_open=True), metavar="GIB",
    help="Kill a worker that uses more memory of its own, without mapped files (Linux only).",
)
@option(
    "--load-seconds", section=LIMITS, type=click.FloatRange(0, min_open=True), metavar="SECONDS",
    help="Kill a worker that is not ready after so long.",
)
@option("--retry-failed", section=LIMITS, is_flag=True, help="Try again the lines that have failed.")
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> int:
    """Decode all INPUT files, or score outputs of them, with many workers. Options of `sgdec decode` follow `--`;
    with --score, those of `sgdec score`.

    \b
    # with four workers on this machine
    sgdec corpus a.txt b.txt --output DIR --workers 4 -- \\
        --predictors nmt,fst --nmt.model run/best --fst.path 'lattices/{id}.fst'
    # on a cluster that Ray runs
    sgdec corpus a.txt --output DIR --engine ray --ray-address auto -- \\
        --predictors nmt --nmt.model run/best
    # the scores of given outputs, here of an n-best list
    sgdec corpus a.txt b.txt --score list.nbest --output DIR -- \\
        --predictors nmt --nmt.model r2l/best --nbest-list --old-weight 1
    # how far it is; then one file of all outputs
    sgdec corpus-status DIR
    sgdec corpus-merge DIR --output out.txt

    The folder holds what is done. If machines or workers die, start the same command again: it continues. Several
    starts at the same time, on machines that see the folder, share the work. The first Ctrl-C lets the workers
    finish what they have, the second one stops them. Exit status 1 if a line of the corpus has no output.
    """
    from sgdec.corpus.starting import Plan, start
    from sgdec.terminal import Bar

    plan = Plan(
        given["input"], _job(ctx, given), ctx.meta["arguments"], given["chunk"], given["workers"],
        _engine(ctx, given), _limits(given), given["lease_seconds"], given["retry_failed"], given["score"],
    )  # fmt: skip
    folder = given["output"]
    with Bar("scoring" if given["score"] else "decoding", log, unit="lines") as bar:
        shown = _Shown(bar)
        ended = start(plan, shown)
    manifest, progress = ended.manifest, ended.progress
    log.info(f"{folder}: {said(manifest, progress)}")
    if not ended.complete:
        log.info(f"{folder}: {_why_incomplete(ended)}")
        return 1 if ended.undecided else 130
    failed = f", {ended.failed:,} failed (--retry-failed tries them again)" if ended.failed else ""
    reasons = ", and beside it the reasons of failed lines" if ended.failed else ""
    log.info(f"{folder}: complete{failed}. `sgdec corpus-merge {folder} --output FILE` writes one file{reasons}.")
    return 1 if ended.failed else 0


def _why_incomplete(ended: EndedRun) -> str:
    if not ended.undecided:
        return "stopped; start the same command again to continue."
    return (
        f"{ended.undecided:,} lines are undecided, because their workers were killed from outside. Start the same "
        "command again to try them again. If memory is short, give fewer --workers, or --worker-memory."
    )


def _limits(given: dict[str, Any]) -> Limits:
    from sgdec.corpus.engine import Limits

    memory = given["worker_memory"]
    return Limits(given["line_seconds"], None if memory is None else int(memory * 2**30), given["load_seconds"])


class _Shown:
    """Shows the progress of all workers in one line."""

    def __init__(self, bar: Any) -> None:
        self._bar, self._lines, self._first = bar, 0, True

    def __call__(self, manifest: Manifest, progress: CorpusProgress) -> None:
        lines = progress.lines + progress.underway
        if self._first:
            self._first = False
            self._bar.expect(manifest.lines - min(progress.chunks * manifest.chunk, manifest.lines))
        self._bar.advance(max(lines - self._lines, 0))
        self._lines = max(lines, self._lines)
        workers = " ".join(f"{place}:{count}" for place, count in sorted(progress.by_worker.items()))
        failed = f", {progress.failed} failed" if progress.failed else ""
        deaths = f", {counted(progress.deaths, 'death')}" if progress.deaths else ""
        self._bar.note(f"chunk {progress.chunks} of {len(manifest.chunks)}{failed}{deaths}; by worker {workers}")


def said(manifest: Manifest, progress: CorpusProgress) -> str:
    """One line about what this start has done."""
    failed = f", {progress.failed:,} of them failed" if progress.failed else ""
    deaths = f"; {counted(progress.deaths, 'worker')} died" if progress.deaths else ""
    done = f"{progress.chunks:,} of {len(manifest.chunks):,} chunks are done"
    return f"{counted(progress.lines, 'line')} {manifest.command}d here{failed}{deaths}; {done}."


def _job(ctx: click.Context, given: dict[str, Any]) -> Job:
    """The job of all workers: the options after ``--``, with those of their configuration file."""
    from sgdec.corpus.engine import Job

    inner: click.Context = ctx.meta["inner"]
    typed = inner.params
    running.add_config(inner)
    chosen, dotted = running.settings(inner, inner.params)
    scores = given["score"] is not None
    _refuse_files(chosen, given)
    for name, instead in INSTEAD.items():
        if name not in typed:
            continue
        if inner.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise UsageError(f"--{name.replace('_', '-')} after `--`: {instead}.")
        if chosen[name] != typed[name]:
            raise UsageError(f"--config {chosen['config']}: {name}: {instead}.")
    output_format = (_format_of_scores if scores else _format_of_outputs)(given, chosen)
    settings = {field.name: chosen[field.name] for field in fields(Settings) if field.name in chosen}
    output = given["output"]
    scoring = {name: chosen[name] for name in SCORING} if scores else None
    if scoring is not None:
        scoring["target_format"] = scoring["target_format"] or chosen["input_format"]
    return Job(
        output if "://" in output else os.path.abspath(output), os.getcwd(), "", chosen["predictors"],
        running.NO_SEARCH if scores else chosen["decoder"], dotted,
        {name: value for name, value in settings.items() if value is not None},
        tuple(os.path.abspath(path) for path in chosen["plugin_file"]), chosen["input_format"], output_format,
        given["ledger"], scoring,
    )  # fmt: skip


def _refuse_files(chosen: dict[str, Any], given: dict[str, Any]) -> None:
    """Raises UsageError for input files after ``--``, and for two files that are standard input."""
    if given["score"] is None:
        files = list(chosen["input"])
    else:
        files = [*chosen["source"], chosen["target"]]
        for file in (*given["input"], given["score"]):
            files.remove(file)
    if files:
        raise UsageError(f"{files[0]}: input files go before `--`, options of sgdec decode or score after it.")
    if given["score"] == "-" and "-" in given["input"]:
        raise UsageError("standard input is either an INPUT or the --score FILE. Give one of them as a file.")


def _format_of_outputs(given: dict[str, Any], chosen: dict[str, Any]) -> str:
    output_format: str = given["output_format"] or "text"
    if output_format == "score":
        raise UsageError("--output-format score: lines are decoded. Give --score FILE, the outputs to score.")
    if given["ledger"] and output_format != "jsonl":
        raise UsageError(f"--ledger: {output_format} cannot hold it. Give --output-format jsonl.")
    running.note_unwritten(chosen["nbest"], output_format)
    return output_format


def _format_of_scores(given: dict[str, Any], chosen: dict[str, Any]) -> str:
    output_format: str = given["output_format"] or ("nbest" if chosen["nbest_list"] else "score")
    if output_format in ("ids", "fst"):
        raise UsageError(f"--output-format {output_format}: scores are written as score, jsonl, nbest or text.")
    if output_format in ("nbest", "text") and not chosen["nbest_list"]:
        raise UsageError(f"--output-format {output_format} needs --nbest-list after `--`: it has nothing to sort.")
    if given["ledger"]:
        raise UsageError("--ledger: the JSON lines of scores have the score of every token without it.")
    return output_format


def _engine(ctx: click.Context, given: dict[str, Any]) -> Engine:
    from sgdec.plugins.host import Host, name_of
    from sgdec.plugins.options import configure, refuse_unused

    name, options = name_of(given["engine"]), ctx.meta["engine"]
    if given["ray_address"] is not None:
        options.setdefault("ray", {}).setdefault("address", given["ray_address"])
    refuse_unused(options, [name], lambda other: "Options of predictors and decoders go after `--`.")
    found: type[Engine] = Host(ctx.meta["inner"].params["plugin_file"]).load("engine", given["engine"])
    return found(**configure(found, options.get(name, {}), name=name))
