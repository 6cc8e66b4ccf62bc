"""``sgdec decode``: predictors, a decoder, an input; results in input order as they are ready."""

from __future__ import annotations

import gc
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sgdec.errors import SgdecError, UsageError
from sgdec.options import load_config, merge_options, separate_dotted, split_config, split_dotted
from sgdec.suggest import suggest

if TYPE_CHECKING:
    from sgdec.outcome import Outcome


SHAPING = ("nbest", "max_length_factor", "max_length", "batch_size", "window", "max_rows", "deterministic")
"""Options that can change a result, beside those of predictors and decoder: they belong to the signature."""


class DottedCommand(click.Command):
    """A command that also takes ``--NAME.OPTION VALUE``, kept apart in the parameter ``dotted``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest, dotted = separate_dotted(args)
        ctx.meta["dotted"] = split_dotted(dotted)
        return super().parse_args(ctx, rest)


@click.command("decode", cls=DottedCommand)
@click.argument("input", default="-")
@click.option("--predictors", metavar="LIST", help="Comma list of [NAME=][WRAPPER:]...PREDICTOR, such as nmt,fst.")
@click.option("--decoder", metavar="NAME", default="beam", show_default=True, help="How to search.")
@click.option("--config", metavar="FILE", help="TOML file with the same keys; the command line wins.")
@click.option("--plugin-file", multiple=True, metavar="FILE.py", help="A plugin that is not installed.")
@click.option("--nbest", type=click.IntRange(min=1), default=1, show_default=True, help="Hypotheses a sentence.")
@click.option(
    "--max-length-factor", type=click.FloatRange(min=0), default=2.0, show_default=True,
    help="At most this many times the source tokens before </s>.",
)  # fmt: skip
@click.option("--max-length", type=click.IntRange(min=0), help="At most this many tokens before </s>; 0 = no limit.")
@click.option(
    "--max-source-length", type=click.IntRange(min=0), default=1000, show_default=True,
    help="Longer sources (in tokens) fail; 0 = none does.",
)  # fmt: skip
@click.option("--output", metavar="FILE", help="Instead of standard output; with {id} for --output-format fst.")
@click.option(
    "--output-format", type=click.Choice(["text", "ids", "nbest", "jsonl", "fst"]), default="text", show_default=True,
    help="Best text, best token ids, Moses n-best, JSON lines, or a lattice a sentence.",
)  # fmt: skip
@click.option(
    "--input-format", type=click.Choice(["text", "ids"]), default="text", show_default=True,
    help="Text goes through the tokenizer.",
)  # fmt: skip
@click.option("--range", metavar="A:B", help="Only sentences A to B, inclusive, from 1.")
@click.option("--tokenizer", metavar="FILE", help="The vocabulary where no model brings one.")
@click.option("--vocab-size", type=click.IntRange(min=3), help="Target tokens where no model says how many.")
@click.option("--batch-size", type=click.IntRange(min=1), default=64, show_default=True, help="Sentences in flight.")
@click.option("--window", type=click.IntRange(min=1), help="Sentences sorted by length; default: 16 batches.")
@click.option("--max-rows", type=click.IntRange(min=1), help="At most this many rows a job of the predictors.")
@click.option(
    "--deterministic", is_flag=True,
    help="Results do not depend on --batch-size, bit for bit: sentences share no arithmetic, which is slower.",
)  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, help="For whatever draws at random.")
@click.option("--device", default="cpu", show_default=True, help="cpu or cuda.")
@click.option(
    "--precision", type=click.Choice(["fp32", "bf16", "fp64", "int8"]), default="fp32", show_default=True,
    help="Arithmetic of neural models.",
)  # fmt: skip
@click.option("--threads", type=click.IntRange(min=1), help="Threads of neural models; default: all cores.")
@click.option("--signature", metavar="FILE", help="Also store what reproduces this run.")
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> int:
    """Decode INPUT (a file, gzipped or not, or - for standard input), one sentence a line.

    Options of a predictor or decoder are --NAME.OPTION VALUE; 'sgdec plugins NAME' lists them. Each entry of
    --predictors also has --NAME.weight (1.0).

    \b
    sgdec decode --predictors nmt,fst --decoder beam --nmt.model run/best \\
        --fst.path 'lattices/{id}.fst' --beam.size 5 input.txt

    A sentence that fails is an empty line, a warning with its number, and exit status 1 at the end.
    """
    options = ctx.meta["dotted"]
    if given["config"]:
        run_options, tables = split_config(load_config(given["config"]))
        options = merge_options(tables, options)
        given = _under(ctx, run_options, given)
    if not given["predictors"]:
        raise UsageError(
            "--predictors is missing; expected a comma list such as nmt,fst ('sgdec plugins' lists all)."
        )
    return decode(given, options)


def _under(ctx: click.Context, config: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The file's run options, checked like the command line's, which win."""
    parameters = {parameter.name: parameter for parameter in ctx.command.params}
    merged = dict(given)
    for name, value in config.items():
        parameter = parameters.get(name)
        if parameter is None or name == "config":
            known = [str(key) for key in parameters if key != "config"]
            raise UsageError(f"--config {given['config']}: no option {name!r}. {suggest(name, known)}")
        if ctx.get_parameter_source(name) is click.core.ParameterSource.DEFAULT:
            values = [str(item) for item in (value if isinstance(value, list) else [value])]
            try:
                merged[name] = parameter.type_cast_value(ctx, values if parameter.multiple else ",".join(values))
            except click.BadParameter as error:
                raise UsageError(f"--config {given['config']}: {name}: {error.message.rstrip('.')}.") from None
    return merged


def decode(given: dict[str, Any], options: dict[str, dict[str, Any]]) -> int:
    """Put the run together, decode, write; 1 if a sentence failed."""
    from sgdec.assembly import RunConfig, assemble
    from sgdec.io.results import open_writer
    from sgdec.io.sources import LengthRule, SourceReader, open_input, parse_range
    from sgdec.plugins import Host
    from sgdec.scheduler import Scheduler

    first, last = parse_range(given["range"])
    _refuse_overwriting(given["input"], given["output"])
    run = assemble(
        RunConfig(
            predictors=given["predictors"],
            decoder=given["decoder"],
            options=options,
            tokenizer=given["tokenizer"],
            vocab_size=given["vocab_size"],
            device=given["device"],
            precision=given["precision"],
            seed=given["seed"],
            deterministic=given["deterministic"],
        ),
        Host(given["plugin_file"]),
    )
    _set_threads(given["threads"])
    lengths = LengthRule(given["max_length_factor"], given["max_length"])
    reader = SourceReader(run.vocabularies.source, given["input_format"], lengths, given["max_source_length"])
    scheduler = Scheduler(
        run.constellation,
        run.decoder,
        nbest=given["nbest"],
        seed=given["seed"],
        batch_size=given["batch_size"],
        window=given["window"],
        max_rows=given["max_rows"],
        deterministic=given["deterministic"],
    )
    shaping = {name: given[name] for name in SHAPING if given[name] is not None and given[name] is not False}
    signature = "|".join([run.signature, *(f"{name}:{value}" for name, value in shaping.items())])
    if given["signature"]:
        Path(given["signature"]).write_text(signature + "\n", encoding="utf-8")
    progress = Progress()
    with (
        _collector_spared(),
        open_input(given["input"]) as lines,
        open_writer(
            given["output_format"], given["output"], run.vocabularies.target, run.constellation.names
        ) as writer,
    ):
        for outcome in scheduler.run(reader.read(lines, given["input"], first, last)):
            warning = writer.write(outcome)
            progress.count(outcome)
            for problem in (outcome.error, warning):
                if problem is not None:
                    progress.clear()
                    _warn(outcome.source.id, problem)
    progress.finish()
    for member in run.constellation.members:
        summary = getattr(member.predictor, "summary", None)
        if summary is not None and (text := summary()) is not None:
            click.echo(f"{member.name}: {text}", err=True)
    if (cost := scheduler.summary()) is not None:
        click.echo(cost, err=True)
    click.echo(f"signature: {signature}", err=True)
    return 1 if progress.failed else 0


@contextmanager
def _collector_spared() -> Iterator[None]:
    """Searches make many small values and hardly a cycle: looking for those at every turn costs a fifth of them."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


class Progress:
    """A line on a terminal's standard error while the work goes on, and a summary at its end."""

    def __init__(self) -> None:
        self.failed = 0
        self._started = self._shown = time.monotonic()
        self._sentences = self._tokens = self._expansions = 0
        self._live = sys.stderr.isatty()

    def count(self, outcome: Outcome) -> None:
        self._sentences += 1
        self._expansions += outcome.result.expansions
        self.failed += outcome.error is not None
        for hypothesis in outcome.result.hypotheses[:1]:
            self._tokens += len(hypothesis.tokens) + 1
        if self._live and time.monotonic() - self._shown > 0.5:
            self._shown = time.monotonic()
            click.echo(f"\r\x1b[K{self}", err=True, nl=False)

    def clear(self) -> None:
        if self._live:
            click.echo("\r\x1b[K", err=True, nl=False)

    def finish(self) -> None:
        self.clear()
        click.echo(str(self), err=True)

    def __str__(self) -> str:
        seconds = max(time.monotonic() - self._started, 1e-9)
        failed = f", {self.failed} failed" if self.failed else ""
        return (
            f"{self._sentences} sentences{failed}, {self._tokens} tokens, {self._expansions} expansions in "
            f"{seconds:.1f} s: {self._sentences / seconds:.1f} sentences/s, {self._tokens / seconds:.0f} tokens/s"
        )


def _warn(sentence: int, problem: Exception | str) -> None:
    click.echo(f"Warning: sentence {sentence}: {problem or type(problem).__name__}", err=True)
    if isinstance(problem, Exception) and not isinstance(problem, SgdecError):  # a defect: show where
        click.echo("".join(traceback.format_exception(problem)), err=True, nl=False)


def _refuse_overwriting(input: str, output: str | None) -> None:
    """Opening the output would empty the input before it is read."""
    if output is not None and Path(input).exists() and Path(output).exists() and Path(output).samefile(input):
        raise UsageError(f"--output {output} is the input. Write to another file.")


def _set_threads(threads: int | None) -> None:
    if threads is not None and "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(threads)
