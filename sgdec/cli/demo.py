"""``sgdec demo``: generates, trains and decodes a toy task; some of its steps are also separate commands."""

from __future__ import annotations

from pathlib import Path

import click

from sgdec.cli.paths import Group, Read, Written
from sgdec.errors import SgdecError, UsageError, counted


@click.group("demo", cls=Group, invoke_without_command=True)
@click.option(
    "--directory",
    type=Written(new=True),
    default="demo",
    show_default=True,
    metavar="DIR",
    help="New folder for all files of the demo.",
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=1, show_default=True, metavar="INT",
    help="Seed of the corpus and of the model.",
)  # fmt: skip
@click.option("--quick", is_flag=True, help="Run a smaller task, in seconds.")
@click.pass_context
def command(ctx: click.Context, directory: str, seed: int, quick: bool) -> None:
    """Train and decode a toy task in minutes.

    \b
    sgdec demo
    sgdec demo --quick --directory small

    The task translates English number words into German ones. The demo makes a corpus, a vocabulary, a lattice of
    candidates for each sentence and a small model; it translates without and with the lattices. It shows each command
    as it runs. Exit status 1 if the lattices did not help.
    """
    if ctx.invoked_subcommand is None:
        folder = Path(directory)
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UsageError(f"--directory {directory}: not an empty folder. Remove it, or name another one.")
        from sgdec.demo.tour import FULL, QUICK, demo

        demo(folder, seed, QUICK if quick else FULL, click.echo)


@command.command("corpus", short_help="Write number words in English and German.")
@click.option(
    "--directory",
    type=Written(inside=("train.*", "valid.*", "test.*")),
    required=True,
    metavar="DIR",
    help="Folder to write train, valid and test to, each as .en and .de.",
)
@click.option("--seed", type=int, default=1, show_default=True, metavar="INT", help="Seed of the random numbers.")
@click.option(
    "--train-lines", type=click.IntRange(min=1), default=260, show_default=True, metavar="N", help="Lines of train."
)
@click.option(
    "--valid-lines", type=click.IntRange(min=1), default=50, show_default=True, metavar="N", help="Lines of valid."
)
@click.option(
    "--test-lines", type=click.IntRange(min=1), default=400, show_default=True, metavar="N", help="Lines of test."
)
@click.option(
    "--limit",
    type=click.IntRange(10, 1_000_000),
    default=1_000_000,
    show_default=True,
    metavar="N",
    help="Upper limit of the numbers, excluded.",
)
def corpus(directory: str, seed: int, train_lines: int, valid_lines: int, test_lines: int, limit: int) -> None:
    """Write English and German number words as parallel text, each number once."""
    from sgdec.demo.corpus import write_corpus

    sizes = {"train": train_lines, "valid": valid_lines, "test": test_lines}
    write_corpus(Path(directory), seed, sizes, limit)
    click.echo(f"{directory}: " + ", ".join(f"{counted(size, 'line')} {name}" for name, size in sizes.items()))


@command.command("lattices", short_help="Write a lattice of candidates for each line.")
@click.option(
    "--tokenizer",
    type=Read(),
    required=True,
    metavar="FILE",
    help="SentencePiece model; its token ids are the labels.",
)
@click.option(
    "--output", type=Written(), required=True, metavar="PATTERN", help="Lattice files, such as 'lattices/{id}.fst'."
)
@click.argument("input", type=Read())
def lattices(tokenizer: str, output: str, input: str) -> None:
    """Write a lattice of German candidates for each line of INPUT, which holds English number words."""
    if "{id}" not in output:
        raise UsageError(f"--output {output}: expected a pattern with {{id}}, such as 'lattices/{{id}}.fst'.")
    from statistics import median

    from sgdec.demo.grammar import write_lattices
    from sgdec.text.sentencepiece import SentencePieceVocabulary

    counts = list(write_lattices(SentencePieceVocabulary.load(tokenizer), Path(input), output))
    if not counts:
        raise SgdecError(f"{input}: the file has no lines.")
    click.echo(
        f"{counted(len(counts), 'lattice')}: {min(counts)} to {max(counts)} candidates each, "
        f"{median(counts):.0f} at the median"
    )
