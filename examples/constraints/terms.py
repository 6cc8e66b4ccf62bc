"""Make lists of goods, their translations into a made-up language, and the terms that a customer wants in them.

    python terms.py FOLDER [PAIRS [TESTS [WORDS]]]

    hook fan motor gear    zide gale tiru kugu lomi

Each noun has a usual translation, and a rarer one of one or two words, which stands in one place of five. Nothing in
the source tells where. The customer of the lists to test wants some nouns as they are in the target: ``terms.K.tsv``
has K of them for each list, drawn at random. Lists to test have WORDS words, others one to WORDS. There is one list
to test for two TESTS, because their searches take longest.
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
RARER = 1 / 5
WANTED = (1, 2, 5, 10)


class List(NamedTuple):
    source: str
    target: str
    terms: list[str]
    """The nouns of the target."""


def dictionary(draw: random.Random) -> dict[str, tuple[str, str]]:
    """The usual and the rarer translation of each noun."""
    made = iter(dict.fromkeys(made_up(draw, 2) for _ in range(1000)))
    return {noun: (next(made), " ".join(next(made) for _ in range(draw.randrange(1, 3)))) for noun in NOUNS.split()}


def goods(draw: random.Random, words: dict[str, tuple[str, str]], size: int) -> List:
    nouns = draw.sample(NOUNS.split(), size)
    terms = [words[noun][draw.random() < RARER] for noun in nouns]
    return List(" ".join(nouns), " ".join(terms), terms)


def main(folder: str, pairs: str = "6000", tests: str = "100", longest: str = "10") -> None:
    draw = random.Random(1)
    size = int(longest)
    words = dictionary(draw)
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, count in (("train", int(pairs)), ("valid", int(tests))):
        write_pairs(Path(folder), name, [goods(draw, words, draw.randint(1, size))[:2] for _ in range(count)])
    lists = [goods(draw, words, size) for _ in range(int(tests) // 2)]
    write_pairs(Path(folder), "test", [each[:2] for each in lists])
    wanted = [draw.sample(each.terms, size) for each in lists]
    for count in WANTED:
        if count <= size:
            write_lines(Path(folder, f"terms.{count}.tsv"), ["\t".join(terms[:count]) for terms in wanted])


if __name__ == "__main__":
    main(*sys.argv[1:])
