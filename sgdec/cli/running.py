"""Shared code of commands that run predictors on sentences: options, config file, progress, warnings, summary."""

from __future__ import annotations

import logging
import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

import click
from click.shell_completion import CompletionItem

from sgdec.cli.paths import Command, Read, Written
from sgdec.cli.sections import Row, SectionedOption, of_setting, option
from sgdec.context import UNK
from sgdec.errors import SgdecError, UsageError, counted, one_line
from sgdec.io.writing import write_whole
from sgdec.plugins.options import (
    FROM_SGNMT,
    Option,
    configure,
    describe,
    flag,
    load_config,
    merge_options,
    separate_dotted,
    split_config,
    split_dotted,
)
from sgdec.plugins.predictor_list import EntryOptions
from sgdec.search.blame import PredictorFault, told
from sgdec.search.tracing.meter import Meter
from sgdec.settings import INPUT, OUTPUT, REPRODUCTION, SEARCH, Settings
from sgdec.suggest import suggest
from sgdec.terminal import Bar
from sgdec.threads import THREADS

if TYPE_CHECKING:
    from sgdec.io.unfinished import UnfinishedRows
    from sgdec.lengths import LengthRule
    from sgdec.library import LoadedRun
    from sgdec.plugins.assembly import Run
    from sgdec.search.outcome import Outcome
    from sgdec.search.scheduler import Scheduler
    from sgdec.tasks.refusals import Refusals

log = logging.getLogger(__name__)

Options = dict[str, dict[str, Any]]
"""The values of options, by name of the predictor or decoder, then by option."""
Decorated = TypeVar("Decorated", bound=Callable[..., Any])


PREDICTORS = "Predictors"
NO_SEARCH = "greedy"
"""The decoder of commands that do not search; any other would do."""
QUICKLY_READ = 2**30
"""The number of bytes that are counted in about a second."""


class _Checked(click.ParamType):  # type: ignore[type-arg]  # generic in some versions of click
    """Converts and checks values as the library does, with the same messages."""

    def __init__(self, of: type[Any], option: Option) -> None:
        self.name = option.type
        self._of, self._option = of, option

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return configure(self._of, {self._option.name: value}, name=None)[self._option.name]

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        choices = self._option.type.split(" | ")
        return [CompletionItem(each) for each in choices if len(choices) > 1 and each.startswith(incomplete)]


def setting(name: str, of: type[Any] = Settings, **rest: Any) -> Callable[[Decorated], Decorated]:
    """The option of one field of `Settings` or `Penalties`, with its default, check and description."""
    found = next(option for option in describe(of) if option.name == name)
    shown = of_setting(found)
    if isinstance(found.default, bool):
        said = shown["help"].partition("  [")[0]  # that a flag is false by default goes without saying
        return option(flag(name, None), section=found.section, is_flag=True, default=found.default, help=said)
    kind: Any = click.STRING if found.type == "text" else _Checked(of, found)  # known to shells
    return option(flag(name, None), **{"type": kind, "default": found.default, **shown, **rest})


OF_PREDICTORS = (
    option(
        "--predictors", section=PREDICTORS, metavar="LIST",
        help="Comma-separated [NAME=][WRAPPER:]...PREDICTOR, such as nmt,fst, or MIX:PART+PART for a mix.",
    ),
    option(
        "--plugin-file", section=PREDICTORS, type=Read(), multiple=True, metavar="FILE.py",
        help="Python file with a plugin that is not installed.",
    ),
)  # fmt: skip
DECODER = option(
    "--decoder", section=SEARCH, metavar="NAME", default="beam", show_default=True, help="The search strategy."
)
OF_SEARCH = tuple(map(setting, ("max_length_factor", "max_length", "bounds", "check_bounds")))
OF_INPUT = (
    option(
        "--input-format", section=INPUT, type=click.Choice(["text", "ids"]), default="text", show_default=True,
        help="Input as text, which is tokenised, or as token ids.",
    ),
    setting("max_source_length"),
    setting("tokenizer", type=Read(), metavar="FILE|DIR"),
    setting("vocab_size"),
)  # fmt: skip
UNFINISHED = (
    option(
        "--resume", section=OUTPUT, is_flag=True,
        help="Continue the unfinished run in --output, which must have the same options.",
    ),
    option(
        "--overwrite", section=OUTPUT, is_flag=True,
        help="Discard the unfinished run in --output.",
    ),
)  # fmt: skip
"""The options of an output file that appears only when it is complete."""
OF_BATCHES = tuple(map(setting, ("batch_size", "window", "max_rows", "device", "precision", "threads")))
OF_REPRODUCTION = (
    option(
        "--config", section=REPRODUCTION, type=Read(), metavar="FILE",
        help="TOML file with these options as keys; the command line overrides it.",
    ),
    setting("seed"),
    option(
        "--signature", section=REPRODUCTION, type=Written(), metavar="FILE",
        help="File to write the run's signature to.",
    ),
)  # fmt: skip


class DottedCommand(Command):
    """A command that also takes ``--NAME.OPTION VALUE``, kept apart in ``ctx.meta["dotted"]``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest, dotted = separate_dotted(args)
        ctx.meta["dotted"] = split_dotted(dotted)
        return super().parse_args(ctx, rest)


class Needed(SectionedOption):
    """An option of a `RunCommand` that has to be set, on the command line or in the config file."""

    def __init__(self, *names: Any, **rest: Any) -> None:
        super().__init__(*names, required=True, **rest)

    def value_is_missing(self, value: Any) -> bool:
        """Never while the command line is read: `RunCommand` looks when it has read the config file."""
        return False


class RunCommand(DottedCommand):
    """A `DottedCommand` with predictors, and with a config file for options that the command line does not set."""

    def __init__(self, *args: Any, **rest: Any) -> None:
        super().__init__(*args, **{"options_metavar": "[OPTIONS] [--NAME.OPTION VALUE]...", **rest})

    def rows_of_plugins(self) -> dict[str, list[Row]]:
        rows = [("--NAME.OPTION VALUE", "An option of the plugin NAME; 'sgdec plugins NAME' lists all that it has.")]
        for each in describe(EntryOptions):
            shown = of_setting(each)
            rows.append((f"--NAME.{each.name} {shown['metavar']}", shown["help"]))
        return {PREDICTORS: rows}

    def invoke(self, ctx: click.Context) -> Any:
        add_config(ctx)
        for parameter in self.params:
            if isinstance(parameter, Needed) and ctx.params[str(parameter.name)] is None:
                raise click.MissingParameter(ctx=ctx, param=parameter)
        return super().invoke(ctx)


def add_config(ctx: click.Context) -> None:
    """Add the options of the config file, if there is one, to those of a command line."""
    if ctx.params["config"]:
        own, tables = split_config(load_config(ctx.params["config"]))
        typed = ctx.meta["dotted"]
        ctx.meta["of_config"] = {
            name: {key: value for key, value in table.items() if key not in typed.get(name, {})}
            for name, table in tables.items()
        }
        ctx.meta["dotted"] = merge_options(tables, typed)
        ctx.params = _under(ctx, own, ctx.params)


def options(*decorators: Callable[[Decorated], Decorated]) -> Callable[[Decorated], Decorated]:
    """Combine several decorators into one, in the order of the help text."""

    def decorate(function: Decorated) -> Decorated:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


def settings(ctx: click.Context, given: dict[str, Any]) -> tuple[dict[str, Any], Options]:
    """The command's own options, and those of its predictors and decoder.

    Raises UsageError if there are no predictors, and if they or the decoder cannot have the options of the config
    file; later errors would not name the file.
    """
    if not given["predictors"]:
        raise UsageError(
            "--predictors is missing; expected a comma-separated list such as nmt,fst ('sgdec plugins' lists all)."
        )
    if given["config"]:
        from sgdec.plugins.assembly import check_file
        from sgdec.plugins.host import Host

        decoder, host = given.get("decoder", NO_SEARCH), Host(given["plugin_file"])
        check_file(given["predictors"], decoder, ctx.meta["of_config"], host, f"--config {given['config']}")
    return given, ctx.meta["dotted"]


def load(given: dict[str, Any], dotted: Options, *, decoder: str) -> LoadedRun:
    """Assemble the run as the library does."""
    from sgdec.library import prepare
    from sgdec.plugins.host import Host

    chosen = {field.name: given[field.name] for field in fields(Settings) if field.name in given}
    return prepare(given["predictors"], decoder, dotted, Settings.of(chosen), Host(given["plugin_file"]))


def sign(
    loaded: LoadedRun, given: dict[str, Any], shaping: tuple[str, ...], *, searches: bool = True
) -> dict[str, str]:
    """The signature of the run, with those options of ``shaping`` that are set; written to --signature if given.

    It names no decoder and no length limit if there is no search.
    """
    names = (*shaping, "input_format", "max_source_length")
    chosen = {name: str(given[name]) for name in names if given[name] is not None and given[name] is not False}
    signature = {name: value for name, value in loaded.parts.signature.items() if searches or name != "decoder"}
    signature |= chosen | (loaded.lengths.default if searches else {})
    if given["signature"]:
        from sgdec.signature import line

        write_whole(given["signature"], line(signature) + "\n")
    return signature


def about(
    given: dict[str, Any], signature: Mapping[str, str], inputs: Sequence[str], others: Sequence[str]
) -> dict[str, Any]:
    """The settings that an unfinished run must share with this one to be continued.

    ``others`` are the options that determine the number and the format of rows. Raises UsageError if --resume cannot
    read the input again.
    """
    from sgdec.signature import content_hash

    hashes = [{"path": path, "sha256": content_hash(path)} for path in inputs]
    if given["resume"] and (once := [file["path"] for file in hashes if file["sha256"] is None]):
        name = "standard input" if once[0] == "-" else once[0]
        raise UsageError(f"--resume: {name} cannot be read a second time. Give the input as a file.")
    return {
        "about": "unfinished output of sgdec; --resume continues it",
        "signature": dict(signature),
        **{name: given[name] for name in others},
        "input": hashes if all(file["sha256"] for file in hashes) else None,
    }


def open_rows(
    given: dict[str, Any], about: Callable[[], Mapping[str, Any]]
) -> AbstractContextManager[UnfinishedRows]:
    """Open --output for rows, according to --resume and --overwrite."""
    from sgdec.io import results

    return results.open_rows(given["output"], about, resume=given["resume"], overwrite=given["overwrite"])


def note_unwritten(nbest: int, output_format: str) -> None:
    """Tell the user if a format has no place for the list that is asked for."""
    if nbest > 1 and output_format in ("text", "ids"):
        log.info(
            f"Note: --output-format {output_format} writes only the best hypothesis; "
            f"nbest and jsonl write all {nbest}."
        )


def refuse_clocks(run: Run) -> None:
    """Raises UsageError if a time limit affects results, because the parts would then differ from one uninterrupted
    run."""
    if run.clock is not None:
        raise UsageError(
            f"--resume: {run.clock} ends searches by the clock, so a continued run would differ from one run. Begin "
            "again with --overwrite, or bound the search by its size."
        )



def sentences_in(paths: Sequence[str], first: int = 1, last: int | None = None) -> int | None:
    """The number of sentences from ``first`` to ``last`` in the first of these files, for showing progress.

    None if counting would take long or consume the input: for standard input, pipes, packed and very large files.
    """
    path = paths[0]
    if not os.path.isfile(path) or os.path.getsize(path) > QUICKLY_READ or path.endswith((".gz", ".zst")):
        return None
    lines, end = 0, b"\n"
    with open(path, "rb") as file:
        for block in iter(partial(file.read, 2**20), b""):
            lines, end = lines + block.count(b"\n"), block[-1:]
    lines += end != b"\n"
    return max(min(lines, lines if last is None else last) - first + 1, 0)


def summarise(run: Run, scheduler: Scheduler, signature: Mapping[str, str]) -> None:
    """The last lines on standard error: reports of predictors, scheduler and threads, and the signature."""
    from sgdec.signature import line

    for member in run.constellation.members:
        summary = getattr(member.predictor, "summary", None)
        if summary is not None and (text := summary()) is not None:
            log.info(f"{member.name}: {text}")
    if run.products:
        log.info(f"products: {'; '.join(dict.fromkeys(map(str, run.products)))}")
    if (waited := THREADS.summary()) is not None:
        log.info(f"threads: {waited}")
    if (text := run.constellation.summary()) is not None:
        log.info(text)
    if (cost := scheduler.summary()) is not None:
        log.info(cost)
    log.info(f"signature: {line(signature)}")


def report_refusals(refusals: Refusals) -> None:
    """Log which predictors forbid, at most of the steps, what models want."""
    for line in refusals.lines():
        log.info(f"Note: {line}.")


def report_limited(limited: int, outputs: int, lengths: LengthRule) -> None:
    """Log how many outputs have the full length, if there are any: more tokens could not follow."""
    if limited:
        end = "ends" if limited == 1 else "end"
        log.info(
            f"Note: {limited:,} of {counted(outputs, 'output')} {end} at the length limit, where only </s> can "
            f"follow; {lengths.way_out}."
        )


class Tally:
    """Counts the work of a run, shows it on a terminal as the run proceeds, and prints as a summary.

    The line on the terminal counts sentences that were searched: they are written later, in the order of the input.
    """

    def __init__(
        self,
        work: str,
        given: Mapping[str, Any],
        decoder: str | None = None,
        *,
        done: int = 0,
    ) -> None:
        """``work`` is a word for the progress bar. ``decoder`` is the decoder's name, for its errors.

        ``done``: the number of sentences that an earlier run has written.
        """
        self._decoder = decoder
        self.failed = 0
        self._searched = 0
        self._unproven: list[float | None] = []
        """The gaps of outputs that an exact search could not prove to be the best."""
        self._outputs = self._limited = 0
        self._started = time.monotonic()
        self._sentences = self._tokens = self._expansions = self._unknown = 0
        self._text = given["input_format"] == "text"
        in_sight = given["output"] is None and sys.stdout.isatty()  # results on the same terminal show the progress
        self._defects: set[str] = set()
        self._bar = Bar(work, log, unit="sentences", done=done, hidden=in_sight)
        self.meter = Meter(self._show) if self._bar.live else None
        """For the scheduler; None if nothing is shown."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._bar.__exit__(*raised)

    def expect(self, paths: Sequence[str], first: int, last: int | None) -> None:
        """The sentences are those from ``first`` to ``last`` in these files."""
        if self._bar.live and (total := sentences_in(paths, first, last)) is not None:
            self._bar.expect(total)

    def searched(self, number: int) -> None:
        """This number of searches has ended (`sgdec.search.scheduler.Scheduler.run`)."""
        self._bar.advance(number - self._searched)
        self._searched = number

    def count(self, outcome: Outcome) -> None:
        """A sentence is written."""
        self._sentences += 1
        self._expansions += outcome.result.expansions
        self.failed += outcome.error is not None
        self._unknown += UNK in outcome.source.tokens
        for hypothesis in outcome.result.hypotheses[:1]:
            self._tokens += len(hypothesis.tokens) + 1
            self._outputs += 1
            self._limited += outcome.at_limit
            if outcome.result.proven is False:
                self._unproven.append(outcome.result.gap)

    def _show(self, meter: Meter) -> None:
        failed = f", {self.failed} failed" if self.failed else ""
        gap = "" if meter.gap is None else f", gap up to {meter.gap:.3g}" if meter.gap < math.inf else ", gap unknown"
        self._bar.note(f"{meter.expansions:,} expansions{gap}{failed}", now=True)

    def warn(self, sentence: int, problem: Exception | str) -> None:
        """Logs one line about a sentence; an unexpected error of a plugin comes with its traceback the first time."""
        text = told(problem, self._decoder) if isinstance(problem, Exception) else one_line(problem)
        defect = None if isinstance(problem, (str, SgdecError)) or text in self._defects else problem
        if defect is not None:
            self._defects.add(text)
            if isinstance(defect, PredictorFault) and isinstance(defect.__cause__, Exception):
                defect = defect.__cause__  # raised by the predictor; further out are frames of the search alone
        log.warning(f"sentence {sentence}: {text}", exc_info=defect)

    def report(self) -> None:
        """Logs the summary."""
        if self._text and self._unknown:
            log.info(
                f"Note: {self._unknown} of {self._sentences} sentences have words or characters that the source "
                "vocabulary does not know; models read each as <unk>."
            )
        log.info(str(self))

    def report_limited(self, lengths: LengthRule) -> None:
        """Logs how many outputs end at the length limit, if there are any."""
        report_limited(self._limited, self._outputs, lengths)

    def report_unproven(self) -> None:
        """Logs, as the last line of a run, how many outputs an exact search could not prove, if there are any, and
        of how many lists it proved the first output alone, whose gap is then 0."""
        lists = self._unproven.count(0.0)
        if lists:
            are, proven = ("is", "its first output is") if lists == 1 else ("are", "their first outputs are")
            log.warning(f"{lists} of {counted(self._outputs, 'list')} {are} not proven; {proven}")
        if lists < len(self._unproven):
            gaps = [gap for gap in self._unproven if gap is not None and 0 < gap < math.inf]
            known = [f"up to {max(gaps):.4g}"] if gaps else []
            unknown = ["unknown"] if lists + len(gaps) < len(self._unproven) else []
            outputs, number = counted(self._outputs, "output"), len(self._unproven) - lists
            are = "is" if number == 1 else "are"
            log.warning(f"{number} of {outputs} {are} not proven (gap {' or '.join(known + unknown)})")

    def __str__(self) -> str:
        seconds = max(time.monotonic() - self._started, 1e-9)
        failed = f", {self.failed} failed" if self.failed else ""
        work = {"sentence": self._sentences, "token": self._tokens, "expansion": self._expansions}
        sentences, tokens, expansions = (f"{number} {noun}{'s' * (number != 1)}" for noun, number in work.items())
        return (
            f"{sentences}{failed}, {tokens}, {expansions} in "
            f"{seconds:.1f} s: {self._sentences / seconds:.1f} sentences/s, {self._tokens / seconds:.0f} tokens/s"
        )


def _key(parameter: click.Parameter) -> str:
    """The key of a parameter in a config file: the name of its option, which that of its variable can differ from."""
    if isinstance(parameter, click.Argument):
        return str(parameter.name)
    return max(parameter.opts, key=len).lstrip("-").replace("-", "_")


def _under(ctx: click.Context, config: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The run options of the config file, checked like those of the command line, which override them."""
    parameters = {_key(parameter): parameter for parameter in ctx.command.params}
    merged = dict(given)
    for key, value in config.items():
        parameter = parameters.get(key)
        if parameter is None or key == "config":
            known = [each for each in parameters if each not in ("config", "plugin_file", "help")]
            raise UsageError(f"--config {given['config']}: no option {key!r}. {suggest(key, known)} {FROM_SGNMT}")
        name = str(parameter.name)
        if ctx.get_parameter_source(name) is click.core.ParameterSource.DEFAULT or given[name] == ():
            values = [str(item) for item in (value if isinstance(value, list) else [value])]
            several = parameter.multiple or parameter.nargs == -1
            try:
                merged[name] = parameter.type_cast_value(ctx, values if several else ",".join(values))
            except click.BadParameter as error:
                raise UsageError(f"--config {given['config']}: {key}: {error.message.rstrip('.')}.") from None
            except UsageError as error:
                raise UsageError(f"--config {given['config']}: {error}") from None
    return merged
