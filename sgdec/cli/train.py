"""`sgdec train`: train a translation model from parallel text, or a language model from text."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import click
from click.core import ParameterSource

from sgdec.cli.paths import Read, Written
from sgdec.cli.recipes import RecipeName
from sgdec.cli.running import DottedCommand
from sgdec.cli.sections import Row, SectionedOption, of_setting, option
from sgdec.errors import SgdecError, counted
from sgdec.plugins.host import Host
from sgdec.plugins.options import describe
from sgdec.training.config import MODEL, RUN, TEXT, TrainConfig, flag
from sgdec.training.library import make_config

log = logging.getLogger(__name__)

TEXTS = ("--train", "--valid")
"""Options that take one to three files, depending on the model's kind; see `TrainConfig.require_fit`."""
PATHS = ("train", "valid", "tokenizer", "output", "model", "options")
"""Settings whose option has another name than the field of `TrainConfig`."""
READ = ("start", "start_decoder", "token_weights", "embeddings_source", "embeddings_target", "embeddings_output")
"""Settings that name a file or a folder."""
OWN = ("best", "last", "step-*", "metrics.jsonl", "curve.png", "events.*", "text", ".lock", ".text.lock")
"""The folder of a run."""


def _settings(command: click.Command) -> click.Command:
    """Makes one option for each remaining setting of `TrainConfig`."""
    types = {"int": int, "float": float}
    for setting in describe(TrainConfig):
        if setting.name not in PATHS:
            first, *rest = setting.type.split()
            if setting.name in READ:
                kind: Any = Read()
            elif isinstance(setting.default, bool):
                kind = click.BOOL
            elif "|" in rest:
                kind = str if first in types else click.Choice(setting.type.split(" | "))
            else:
                kind = types.get(first, str)
            # The setting's own name stays a flag too: it is the older spelling, which torchrun misreads.
            flags = dict.fromkeys([flag(setting.name), f"--{setting.name.replace('_', '-')}", setting.name])
            shown = {**of_setting(setting), **({"metavar": "PATH"} if setting.name in READ else {})}
            command.params.append(SectionedOption(list(flags), type=kind, default=setting.default, **shown))
    return command


class TrainCommand(DottedCommand):
    """A command whose `TEXTS` take all words that follow; click's options take a fixed number."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, repeat_flags(args))

    def rows_of_plugins(self) -> dict[str, list[Row]]:
        return {MODEL: [("--MODEL.OPTION VALUE", "An option of the model; 'sgdec plugins MODEL' lists all.")]}

    def invoke(self, ctx: click.Context) -> Any:
        """Report an error that all processes of torchrun share only once."""
        try:
            return super().invoke(ctx)
        except SgdecError as error:
            from sgdec.training.parallel.launch import said_by_another

            if said_by_another(error):
                raise SystemExit(error.exit_status) from None
            raise


def repeat_flags(args: Sequence[str]) -> list[str]:
    """Repeats an option of `TEXTS` before each of its words.

    >>> repeat_flags(["--train", "a.en", "a.de", "--quiet", "--valid", "b.de"])
    ['--train', 'a.en', '--train', 'a.de', '--quiet', '--valid', 'b.de']
    """
    repeated: list[str] = []
    text = None
    for word in args:
        if word.startswith("--"):
            text = word.partition("=")[0]
            text = text if text in TEXTS else None
            repeated += [] if text == word else [word]
        else:
            repeated += [text, word] if text else [word]
    return repeated


@_settings
@click.command(cls=TrainCommand, options_metavar="[OPTIONS] [--MODEL.OPTION VALUE]...")
@option(
    "--train",
    "train_files",
    section=TEXT,
    type=Read(),
    multiple=True,
    required=True,
    metavar="[SRC...] TGT",
    help="Training text, parallel by line; may be .gz or .zst. One file for a language model.",
)
@option(
    "--valid",
    "valid_files",
    section=TEXT,
    type=Read(),
    multiple=True,
    required=True,
    metavar="[SRC...] TGT",
    help="Held-out text.",
)
@option(
    "--tokenizer",
    section=TEXT,
    type=Read(),
    multiple=True,
    required=True,
    metavar="FILE",
    help="Vocabulary file; give it twice if source and target differ; for two sources up to three times.",
)
@option(
    "--output",
    section=RUN,
    type=Written(inside=OWN),
    required=True,
    metavar="DIR",
    help="Folder of the run, with the checkpoints best and last, and logs.",
)
@option(
    "--model",
    section=MODEL,
    default="gnmt",
    show_default=True,
    metavar="NAME",
    help="A model plugin; 'sgdec plugins' lists them.",
)
@option(
    "--preset",
    section=MODEL,
    metavar="NAME",
    help="A named set of the model's options, such as gnmt8; single options override it.",
)
@option(
    "--recipe",
    section=MODEL,
    type=RecipeName(),
    metavar="NAME",
    help="The architecture and schedule of a paper ('sgdec recipes'); options that are given override it.",
)
@option(
    "--plugin-file",
    "plugin_files",
    section=MODEL,
    type=Read(),
    multiple=True,
    metavar="FILE",
    help="Python file with plugins that are not installed.",
)
@option("--resume", section=RUN, is_flag=True, help="Continue the run in --output from its last checkpoint.")
@option("--quiet", section=RUN, is_flag=True, help="Print errors only.")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    train_files: tuple[str, ...],
    valid_files: tuple[str, ...],
    tokenizer: tuple[str, ...],
    output: str,
    model: str,
    preset: str | None,
    recipe: str | None,
    plugin_files: tuple[str, ...],
    resume: bool,
    quiet: bool,
    **settings: Any,
) -> None:
    """Train a translation model or a language model.

    \b
    # a translation model, for --predictors nmt
    sgdec train --model transformer --train train.en train.de \\
        --valid val.en val.de --tokenizer tok.spm --output run
    # a language model, for --predictors rnnlm
    sgdec train --model rnnlm --train train.de --valid val.de \\
        --tokenizer tok.spm --output lm --label-smoothing 0
    # the settings of a paper, but a smaller model
    sgdec train --recipe gnmt --gnmt.width 256 --train train.en train.de \\
        --valid val.en val.de --tokenizer tok.spm --output run
    # in four processes
    torchrun --standalone --nproc-per-node 4 -m sgdec.cli train \\
        --parallel data ...

    The folder DIR holds the checkpoints best and last, metrics.jsonl, TensorBoard events and curve.png.

    With --start-from, the model, its options and its direction are those of another run, whose weights are refined by
    --objective expected-reward, on other text, or at other rates.

    With --parallel, torchrun starts one process per device (the last example). In mode data each process computes
    the gradient of a share of every batch; --batch-tokens or --batch-pairs is the sum over all processes. In modes
    model and hybrid the layers are distributed over the devices. Checkpoints do not depend on the mode: a run can be
    resumed with another number of processes, or in another mode. If a process dies, the run ends; with --max-restarts
    N torchrun resumes it from its last checkpoint.

    Training lines are skipped and counted if they are empty, too long (--max-line), of very different lengths
    (--max-ratio) or not UTF-8. A step is one update, over --accumulate batches.
    """
    host = Host(plugin_files)
    files = {"train": train_files, "valid": valid_files, "tokenizer": tokenizer, "output": output}
    said = {name: value for name, value in settings.items() if not _is_default(ctx, name)}
    kind = None if _is_default(ctx, "model") else model
    config = make_config(
        {**files, **said}, ctx.meta["dotted"], model=kind, preset=preset, recipe=recipe, resume=resume, host=host
    )
    from sgdec.training.parallel.launch import is_first
    from sgdec.training.preparing import train

    done = train(config, resume=resume, host=host, quiet=quiet)
    if is_first() and not quiet:
        log.info(f"{done.best}: the best model, after {counted(done.steps, 'step')} of training")


def _is_default(ctx: click.Context, name: str) -> bool:
    return ctx.get_parameter_source(name) is ParameterSource.DEFAULT
