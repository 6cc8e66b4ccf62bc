"""`sgdec export`: writes a trained model for another program."""

from __future__ import annotations

import logging

import click

from sgdec.cli.paths import Command, Read, Written

log = logging.getLogger(__name__)


@click.command(cls=Command)
@click.argument("model", type=Read(), metavar="MODEL")
@click.option(
    "--to",
    "program",
    type=click.Choice(["hf"]),
    required=True,
    help="Program that will load the model: hf = Hugging Face's transformers.",
)
@click.option(
    "--output",
    type=Written(new=True),
    required=True,
    metavar="FOLDER",
    help="Folder of the exported model, new or empty.",
)
@click.option(
    "--max-positions",
    type=click.IntRange(1, 65_536),
    default=1024,
    show_default=True,
    metavar="INT",
    help="Most tokens of a source, and of an output, in the other program.",
)
@click.option("--no-tokenizer", is_flag=True, help="Export the model without its tokenizer.")
def command(model: str, program: str, output: str, max_positions: int, no_tokenizer: bool) -> None:
    """Write MODEL, a checkpoint of the model transformer, as a folder that another program loads.

    \b
    sgdec export run/best --to hf --output translator
    sgdec decode --predictors hf --hf.model translator input.txt

    The program computes the same logits. Token ids are the same, and the tokenizer is exported too. A setting without
    counterpart there is an error.
    """
    from sgdec.checkpoints.hf import export

    loaded_by = export(model, output, tokenizer=not no_tokenizer, positions=max_positions)
    log.info(f"{output}: a model for the class {loaded_by} of transformers")
