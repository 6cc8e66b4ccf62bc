"""`sgdec average`: one model from several checkpoints."""

from __future__ import annotations

import logging

import click

from sgdec.cli.paths import Command, Read, Written
from sgdec.plugins.host import Host

log = logging.getLogger(__name__)


@click.command(cls=Command)
@click.argument("checkpoints", type=Read(), nargs=-1, required=True, metavar="RUN_OR_CHECKPOINT...")
@click.option(
    "--output",
    type=Written(new=True),
    required=True,
    metavar="DIR",
    help="Folder of the averaged checkpoint, new or empty.",
)
@click.option(
    "--last",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="N",
    help="Average only the last N checkpoints of a run; 0 = all.",
)
@click.option(
    "--plugin-file",
    "plugin_files",
    type=Read(),
    multiple=True,
    metavar="FILE",
    help="Python file with plugins that are not installed.",
)
def command(checkpoints: tuple[str, ...], output: str, last: int, plugin_files: tuple[str, ...]) -> None:
    """Average the weights of several checkpoints of one model.

    \b
    sgdec train ... --keep 4 --output run
    sgdec average run --last 4 --output run/averaged
    sgdec decode --predictors nmt --nmt.model run/averaged input.txt

    The folder of a run stands for all its checkpoints: best, last, and the others that --keep retained.
    """
    from sgdec.checkpoints.averaging import average_checkpoints

    folders = average_checkpoints(checkpoints, output, last=last, host=Host(plugin_files))
    log.info(f"{output}: the mean of {', '.join(folder.name for folder in folders)}")
