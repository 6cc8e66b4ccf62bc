"""`sgdec quantize`: converts a trained model to 8 bits."""

from __future__ import annotations

import logging

import click

from sgdec.cli.paths import Command, Read, Written
from sgdec.plugins.host import Host

log = logging.getLogger(__name__)


@click.command(cls=Command)
@click.argument("model", type=Read(), metavar="MODEL")
@click.option(
    "--output",
    type=Written(new=True),
    required=True,
    metavar="FOLDER",
    help="Folder of the quantised checkpoint, new or empty.",
)
@click.option(
    "--calibrate", type=Read(), nargs=2, metavar="SRC TGT",
    help="Text on which to measure the ranges of a model that was trained without constraints.",
)  # fmt: skip
@click.option(
    "--plugin-file",
    "plugin_files",
    type=Read(),
    multiple=True,
    metavar="FILE",
    help="Python file with plugins that are not installed.",
)
def command(model: str, output: str, calibrate: tuple[str, str] | None, plugin_files: tuple[str, ...]) -> None:
    """Write MODEL with 8-bit weights, for --precision int8 (GNMT, section 6).

    \b
    sgdec quantize run/best --output run/int8
    sgdec decode --predictors nmt --nmt.model run/int8 --precision int8 input.txt

    The loss is smallest for models trained with constraints: sgdec train --gnmt.constrained true.
    """
    from sgdec.training.quantising import quantise_checkpoint

    done = quantise_checkpoint(model, output, text=calibrate or None, host=Host(plugin_files))
    size = sum(tensor.nbytes for part in (done.tensors, done.rest) for tensor in part.values())
    widest = max(done.bounds.values())
    if done.unsettled is not None:
        log.info(f"{model}: training has not finished: {done.unsettled}")
    log.info(
        f"{output}: {len(done.bounds)} products in 8 bits, {size / 1e6:.1f} MB; inputs within {widest:.3g}"
    )
