"""The figures of a submission: ``python examples/course/curse/figures.py my_curse.py``.

Prints the table of the handout for sentences that are drawn with ``--seed``. The row ``exact`` is the exact search of
the same file; A* finds the modes for the search errors.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from curse.checks import ROWS, Figures, Rules, beam, exact, figures_of, search, sentences

from sgdec.plugins.host import Host


def main() -> None:
    parser = argparse.ArgumentParser(description="Print the figures of a submission.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sentences", type=int, default=40)
    given = parser.parse_args()
    make = Host([given.file], autoload=False).load("decoder", "mysearch")
    tested = list(sentences(np.random.default_rng(given.seed), given.sentences))
    found = {"exact": [search(exact(make), tiny, most=100_000)[0] for tiny in tested]}
    found |= {name_of(rules): [search(beam(make, rules), tiny)[0] for tiny in tested] for rules in ROWS}
    print(f"{'':24}", *(f"{name:>7}" for name in Figures._fields))
    for name, hypotheses in found.items():
        figures = figures_of(hypotheses, tested, name)
        print(f"{name:24}", *(f"{value:7.2f}" for value in figures))


def name_of(rules: Rules) -> str:
    """The options of a row that are not the usual ones."""
    usual = Rules()._asdict()
    shown = {name: value for name, value in rules._asdict().items() if name == "size" or value != usual[name]}
    return " ".join(f"{name} {value}" for name, value in shown.items())


if __name__ == "__main__":
    main()
