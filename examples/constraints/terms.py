"""Make lists of goods, their translations into a made-up language, and the terms that a customer wants.

    python terms.py FOLDER [PAIRS [TESTS [WORDS]]]

    hook fan motor    zide kufo kugu         in the usual style
                      gale tiru modi defe    in the rarer style

The two styles have different words. Three lists in ten are in the rarer style. In the texts to train and to validate,
one word in ten is not in the style of its list. All texts to test are in the rarer style, which the customer wants:
``terms.K.tsv`` has K of the words of each of them. Lists to test have WORDS words, others one to WORDS. There is one
list to test for four TESTS, because their searches take longest.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import NamedTuple

from making import made_up, write_lines, write_pairs

NOUNS = (
    "axle bell bolt cable chain clamp cog cord drill fan gear hinge hook hose key lamp lever lock magnet motor "
    "nail panel pipe pump ring rod rope screw spring tap tube valve wheel wire"
)
RARER, DEVIATING = 0.3, 0.1
WANTED = (1, 2, 5, 10)


class List(NamedTuple):
    source: str
    target: str
    terms: list[str]
    """The nouns of the target."""


def dictionary(draw: random.Random) -> dict[str, tuple[str, str]]:
    """The translations of all nouns in the usual style, and in the rarer one, where some have two words."""
    made = iter(dict.fromkeys(made_up(draw, 2) for _ in range(1000)))
    return {noun: (next(made), " ".join(next(made) for _ in range(draw.randrange(1, 3)))) for noun in NOUNS.split()}


def goods(draw: random.Random, words: dict[str, tuple[str, str]], size: int, rarer: bool, deviating: float) -> List:
    """``deviating``: the chance of each noun to be in the other style."""
    nouns = draw.sample(NOUNS.split(), size)
    terms = [words[noun][rarer != (draw.random() < deviating)] for noun in nouns]
    return List(" ".join(nouns), " ".join(terms), terms)


def main(folder: str, pairs: str = "6000", tests: str = "100", longest: str = "10") -> None:
    draw = random.Random(1)
    size = int(longest)
    words = dictionary(draw)
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, count in (("train", int(pairs)), ("valid", int(tests))):
        sizes = draw.choices(range(1, size + 1), k=count)
        lists = [goods(draw, words, each, draw.random() < RARER, DEVIATING) for each in sizes]
        write_pairs(Path(folder), name, [each[:2] for each in lists])
    lists = [goods(draw, words, size, True, 0) for _ in range(int(tests) // 4)]
    write_pairs(Path(folder), "test", [each[:2] for each in lists])
    wanted = [draw.sample(each.terms, size) for each in lists]
    for count in WANTED:
        if count <= size:
            write_lines(Path(folder, f"terms.{count}.tsv"), ["\t".join(terms[:count]) for terms in wanted])


if __name__ == "__main__":
    main(*sys.argv[1:])
