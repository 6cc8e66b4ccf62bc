"""The command ``sgdec``: one file per subcommand, each imported only when it runs.

A user's mistake is reported here in one line on standard error; a defect of sgdec keeps its traceback.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any, TextIO

import click
from click.shell_completion import CompletionItem

from sgdec.cli.sections import Row, Sectioned
from sgdec.cli.streams import prepare_output
from sgdec.errors import SgdecError, UsageError, one_line
from sgdec.plugins.host import install_hint
from sgdec.suggest import suggest

SECTIONS = {
    "Decode": {
        "decode": "Search for the best outputs of every sentence or prompt.",
        "score": "Score given outputs with predictors; rescore n-best lists.",
        "corpus": "Decode a corpus with many workers, here or on a cluster.",
        "corpus-status": "Show how far a corpus is.",
        "corpus-merge": "Write the outputs of a corpus to one file.",
    },
    "Evaluate and explain": {
        "evaluate": "Compute BLEU and chrF of translations with sacreBLEU.",
        "compare": "Compare outputs: metrics, significance, sentences.",
        "sweep": "Evaluate many weights and penalties from one decode.",
        "tune": "Tune the weights of predictors for a metric.",
        "diagnose": "Say whether the search or the model is to blame for outputs.",
        "view": "Show what searches did: a page or a figure of a trace.",
    },
    "Train models": {
        "tokenizer": "Train a tokenizer: pieces, characters or words.",
        "train": "Train a translation model or a language model.",
        "recipes": "List the settings of papers, for train --recipe.",
        "average": "Average the weights of checkpoints.",
        "quantize": "Write a model with 8-bit weights, for --precision int8.",
        "export": "Write a trained model for Hugging Face's transformers.",
    },
    "Make what predictors read": {
        "lm": "Estimate an n-gram language model, for the predictor ngram.",
        "trie": "Build a trie of allowed outputs, for the predictor trie.",
        "ngrams": "Extract n-gram posteriors of lattices and lists, for ngramc.",
        "fit-length": "Fit a target length model, for the predictor length.",
        "cluster": "Cluster a model's contexts, for clusternmt.",
        "shortlist": "Find likely translations of source tokens, for shortlist.",
        "transducer": "Write a transducer between two tokenizers, for fsttok.",
        "vocabulary": "Write the table of a tokenizer's pieces and their numbers.",
    },
    "Plugins": {
        "plugins": "List, check and describe the installed plugins.",
        "new-plugin": "Write a template of a plugin distribution.",
    },
    "Learn and teach": {
        "demo": "Train and decode a toy task in minutes.",
        "course": "Export the course, make autograders, grade a class.",
    },
}
"""Each command with its help, by section; ``sgdec/cli/COMMAND.py`` defines the click command, named ``command``."""
COMMANDS = {name: line for section in SECTIONS.values() for name, line in section.items()}

COMPLETION = "_SGDEC_COMPLETE"
"""The environment variable by which a shell requests completions from click."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
INTERRUPTED = 130
"""The exit status after Ctrl-C, as shells report it: 128 + SIGINT."""


class LazyGroup(Sectioned, click.Group):
    """Imports a command only when it runs; shows the help text if no command is given."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args or ["--help"])

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name.startswith("-"):
            return None
        if cmd_name not in COMMANDS:
            if ctx.resilient_parsing:  # a shell asks for completions
                return None
            raise UsageError(f"no command named {cmd_name!r}. {suggest(cmd_name, COMMANDS)}")
        module = import_module(f"sgdec.cli.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        if ctx.resilient_parsing and name is not None and command is not None:
            from sgdec.cli.completion import CompletedCommand

            command = command if isinstance(command, click.Group) else CompletedCommand(name, command, rest)
        return name, command, rest

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        commands = [CompletionItem(name, help=line) for name, line in COMMANDS.items() if name.startswith(incomplete)]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]

    def sections(self, ctx: click.Context) -> dict[str, list[Row]]:
        return {**{section: [*lines.items()] for section, lines in SECTIONS.items()}, **super().sections(ctx)}


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="sgdec")
def sgdec() -> None:
    """Predictors score the next token, decoders search the space they span together. Predictors are translation
    models, prompted causal models, lattices, n-gram models, regular expressions, lists and more, in any mix.

    \b
    # train a small model and decode with it, in minutes
    sgdec demo
    # decode with a causal model of Hugging Face and a prompt
    sgdec decode --predictors hf --hf.model FOLDER \\
        --hf.prompt 'Translate to German: {source}' input.txt
    # list the predictors and decoders; describe one of them
    sgdec plugins
    sgdec plugins fst

    'sgdec COMMAND --help' has examples of each command, and its options.
    """


def main(args: Sequence[str] | None = None) -> int:
    """Run one command. Exit status: 0, 1 for a failed run, 2 for a wrong call, 130 after Ctrl-C."""
    if COMPLETION in os.environ:
        from sgdec.cli import completion

        completion.register()
    prepare_output(sys.stdout)
    with _buffered_output():
        return _run(args)


def _run(args: Sequence[str] | None) -> int:
    try:
        status = sgdec.main(args=args, prog_name="sgdec", standalone_mode=False)
        sys.stdout.flush()
    except SgdecError as error:
        return _fail(str(error), error.exit_status)
    except click.ClickException as error:
        return _fail(_one_line(error), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except ModuleNotFoundError as error:  # a part of sgdec that needs an optional dependency
        hint = install_hint(error.name or "")
        if not hint:
            raise
        return _fail(f"{error.msg}{hint}.", SgdecError.exit_status)
    except OSError as error:
        return _world(error)
    return status if isinstance(status, int) else 0


def _world(error: OSError) -> int:
    """Report a full disk, an unreadable file or a closed pipe, which are not defects of sgdec."""
    _settle(sys.stdout)
    if error.errno == errno.EPIPE:
        return 1
    if error.errno is None:  # not raised by the system: a defect
        raise error
    if error.filename:
        return _fail(f"{error.filename}: {error.strerror}.", SgdecError.exit_status)
    work = "writing" if error.errno in FULL else "reading or writing"
    return _fail(f"could not continue {work}: {error.strerror}.", SgdecError.exit_status)


@contextlib.contextmanager
def _buffered_output() -> Iterator[None]:
    """With PYTHONUNBUFFERED, standard output on an almost full disk drops the rest of a partial write without an
    error. A buffered stream writes all or raises.
    """
    unbuffered = sys.stdout
    if not isinstance(getattr(unbuffered, "buffer", None), io.RawIOBase):
        yield
        return
    text = unbuffered.encoding, unbuffered.errors
    sys.stdout = buffered = open(unbuffered.fileno(), "w", 1, *text, closefd=False)  # noqa: SIM115 - closed below
    prepare_output(buffered)
    try:
        yield
    finally:
        sys.stdout = unbuffered
        with contextlib.suppress(OSError):  # it has been reported
            buffered.close()


def _settle(stream: TextIO) -> None:
    """Flush a stream; if that fails, let the interpreter's own flush at exit succeed."""
    try:
        stream.flush()
    except OSError:
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _one_line(error: click.ClickException) -> str:
    message = " ".join(error.format_message().split()).rstrip(".")
    message += "" if message.endswith("?") else "."
    context: Any = getattr(error, "ctx", None)
    if context is None:
        return message
    if isinstance(error, click.NoSuchOption) and "dotted" in context.meta:
        name = error.option_name
        if written := _of_a_part(name.lstrip("-")):
            message = f"No such option '{name}'. {written}"
        else:
            from sgdec.plugins.options import FROM_SGNMT

            message += " Options of predictors and decoders are --NAME.OPTION, such as --beam.size."
            message += f" {FROM_SGNMT}" if "_" in name else ""
    return f"{message} See '{context.command_path} --help'."


def _of_a_part(name: str) -> str:
    """How an unknown option is written that is the name of a plugin, or ``NAME_OPTION`` as in SGNMT; else nothing."""
    from sgdec.plugins.host import Host
    from sgdec.plugins.misplaced import kind_of, option_of, options_of

    host, (plugin, _, option) = Host(), name.replace("-", "_").partition("_")
    if option in options_of(host, plugin):
        return f"Write --{plugin}.{option}."
    if known := option_of(host, name):
        return f"Write --{name}.{known} VALUE; 'sgdec plugins {name}' lists the options of {name}."
    if kind := kind_of(host, name):
        return f"Write --{kind}{'s' * (kind == 'predictor')} {name}; it has no options."
    return ""


def _fail(message: str, status: int) -> int:
    with contextlib.suppress(OSError):  # standard error may be on the full disk, too
        print(f"Error: {one_line(message)}", file=sys.stderr)
    _settle(sys.stderr)
    return status
