"""The figures of a submission: ``python examples/course/curse/figures.py my_curse.py``.

Prints the table of the handout for sentences that are drawn with ``--seed``. The row ``exact`` is the exact search of
the same file; A* finds the modes for the search errors.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from curse.checks import ROWS, Figures, Rules, beam, exact, figures_of, search, sentences
from grader.cli import main

from sgdec.plugins.host import Host


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Seed of the sentences.")
@click.option("--sentences", "count", type=click.IntRange(min=1), default=40, show_default=True, help="Their number.")
def command(file: Path, seed: int, count: int) -> None:
    """Print the figures of the submission FILE."""
    make = Host([file], autoload=False).load("decoder", "mysearch")
    tested = list(sentences(np.random.default_rng(seed), count))
    found = {"exact": [search(exact(make), tiny, most=100_000)[0] for tiny in tested]}
    found |= {name_of(rules): [search(beam(make, rules), tiny)[0] for tiny in tested] for rules in ROWS}
    click.echo(" ".join([f"{'':24}", *(f"{name:>7}" for name in Figures._fields)]))
    for name, hypotheses in found.items():
        figures = figures_of(hypotheses, tested, name)
        click.echo(" ".join([f"{name:24}", *(f"{value:7.2f}" for value in figures)]))


def name_of(rules: Rules) -> str:
    """The options of a row that are not the usual ones."""
    usual = Rules()._asdict()
    shown = {name: value for name, value in rules._asdict().items() if name == "size" or value != usual[name]}
    return " ".join(f"{name} {value}" for name, value in shown.items())


if __name__ == "__main__":
    sys.exit(main(called=command))
