"""``sgdec corpus``: decodes a corpus with many workers into a folder, and a later start continues."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import click

from sgdec.cli import running
from sgdec.cli.paths import Command, Read, Written
from sgdec.cli.sections import Row, option
from sgdec.errors import UsageError, counted
from sgdec.plugins.options import separate_dotted, split_dotted
from sgdec.settings import OUTPUT, Settings

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
"""Options of ``sgdec decode`` that have no place here, and what to do."""
WORKERS = "Workers"
LIMITS = "Limits and failed lines"


class CorpusCommand(Command):
    """A command whose arguments after ``--`` are those of ``sgdec decode``."""

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "-- [OPTIONS of sgdec decode]"]

    def rows_of_plugins(self) -> dict[str, list[Row]]:
        return {WORKERS: [("--ENGINE.OPTION VALUE", "An option of the engine; 'sgdec plugins ENGINE' lists all.")]}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        from sgdec.cli.decode import command as decode

        at = args.index("--") if "--" in args else len(args)
        own, dotted = separate_dotted(args[:at])
        ctx.meta["arguments"] = args[at + 1 :]
        with _explained(decode, "an option of `sgdec decode`: these go after `--`"):
            parsed = super().parse_args(ctx, own)
        with _explained(self, "an option of `sgdec corpus`: these go before `--`"):
            ctx.meta["inner"] = decode.make_context("sgdec decode", args[at + 1 :])
        ctx.meta["engine"] = split_dotted(dotted)
        return parsed


@contextmanager
def _explained(other: click.Command, what: str) -> Iterator[None]:
    """Say what an unknown option is if another command has it."""
    try:
        yield
    except click.NoSuchOption as error:
        if any(error.option_name in each.opts for each in other.params):
            raise UsageError(f"{error.option_name} is {what}.") from None
        raise


@click.command("corpus", cls=CorpusCommand)
@click.argument("input", nargs=-1, required=True, type=Read())
@option(
    "--output", section=OUTPUT, required=True, type=Written(inside=INSIDE), metavar="DIR",
    help="Folder of the corpus, or a URL such as s3://bucket/corpus; all machines have to see it.",
)
@option(
    "--output-format", section=OUTPUT, type=click.Choice(["text", "ids", "nbest", "jsonl", "fst"]), default="text",
    show_default=True, help="As in sgdec decode.",
)
@option(
    "--ledger", section=OUTPUT, is_flag=True,
    help="Add to the JSON lines the score of every token by every predictor.",
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
@option("--retry-failed", section=LIMITS, is_flag=True, help="Decode again the lines that have failed.")
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> int:
    """Decode the lines of all INPUT files with many workers. Options of `sgdec decode` follow `--`.

    \b
    # with four workers on this machine
    sgdec corpus a.txt b.txt --output DIR --workers 4 -- \\
        --predictors nmt,fst --nmt.model run/best --fst.path 'lattices/{id}.fst'
    # on a cluster that Ray runs
    sgdec corpus a.txt --output DIR --engine ray --ray-address auto -- \\
        --predictors nmt --nmt.model run/best
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
        _engine(ctx, given), _limits(given), given["lease_seconds"], given["retry_failed"],
    )  # fmt: skip
    folder = given["output"]
    with Bar("decoding", log, unit="lines") as bar:
        shown = _Shown(bar)
        ended = start(plan, shown)
    manifest, progress = ended.manifest, ended.progress
    log.info(f"{folder}: {said(manifest, progress)}")
    if not ended.complete:
        log.info(f"{folder}: {_why_incomplete(ended)}")
        return 1 if ended.undecided else 130
    failed = f", {ended.failed:,} failed (--retry-failed decodes them again)" if ended.failed else ""
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
    return f"{counted(progress.lines, 'line')} decoded here{failed}{deaths}; {done}."


def _job(ctx: click.Context, given: dict[str, Any]) -> Job:
    """The job of all workers: the options of ``sgdec decode``, with those of its configuration file."""
    from sgdec.corpus.engine import Job

    inner: click.Context = ctx.meta["inner"]
    typed = inner.params
    running.add_config(inner)
    chosen, dotted = running.settings(inner, inner.params)
    if inner.params["input"]:
        raise UsageError(f"{inner.params['input'][0]}: input files go before `--`, options of sgdec decode after it.")
    for name, instead in INSTEAD.items():
        if inner.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise UsageError(f"--{name.replace('_', '-')} after `--`: {instead}.")
        if chosen[name] != typed[name]:
            raise UsageError(f"--config {chosen['config']}: {name}: {instead}.")
    if given["ledger"] and given["output_format"] != "jsonl":
        raise UsageError(f"--ledger: {given['output_format']} cannot hold it. Give --output-format jsonl.")
    running.note_unwritten(chosen["nbest"], given["output_format"])
    settings = {field.name: chosen[field.name] for field in fields(Settings) if field.name in chosen}
    output = given["output"]
    return Job(
        output if "://" in output else os.path.abspath(output), os.getcwd(), "", chosen["predictors"],
        chosen["decoder"], dotted, {name: value for name, value in settings.items() if value is not None},
        tuple(os.path.abspath(path) for path in chosen["plugin_file"]), chosen["input_format"],
        given["output_format"], given["ledger"],
    )  # fmt: skip


def _engine(ctx: click.Context, given: dict[str, Any]) -> Engine:
    from sgdec.plugins.host import Host, name_of
    from sgdec.plugins.options import configure, refuse_unused

    name, options = name_of(given["engine"]), ctx.meta["engine"]
    if given["ray_address"] is not None:
        options.setdefault("ray", {}).setdefault("address", given["ray_address"])
    refuse_unused(options, [name], lambda other: "Options of predictors and decoders go after `--`.")
    found: type[Engine] = Host(ctx.meta["inner"].params["plugin_file"]).load("engine", given["engine"])
    return found(**configure(found, options.get(name, {}), name=name))
