"""Make sentences about people, and the titles of the articles about them in an encyclopedia.

    python entities.py FOLDER [PAIRS [TESTS]]

    Vonega discovered a metal     Kira Vonega (chemist)
    a sonata by U. Tibora         Uma Tibora (composer)

A sentence has the surname, half of the time also the initial of the first name, and a hint at the profession. One
surname in five is misspelled. The file ``titles.txt`` lists all titles. One in three is in the texts to test alone.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from pathlib import Path

from making import Pair, made_up, misspelled, write_lines, write_parts

SENTENCES = {
    "chemist": ("{} discovered a metal", "the laboratory of {}", "{} found the acid"),
    "composer": ("a sonata by {}", "{} played the organ", "the last opera of {}"),
    "painter": ("{} painted the harbour", "a landscape by {}", "the colours of {}"),
    "poet": ("the verses of {}", "{} wrote a ballad", "a rhyme by {}"),
}
"""Hints at each profession."""
NAMES = "Ada Ben Cleo Dora Emil Finn Greta Hugo Ida Jon Kira Lena Max Nora Otto Pia Rosa Sven Tilda Uma"
SURNAMES, TITLES = 60, 400


def titles(draw: random.Random) -> list[str]:
    """Titles in random order."""
    surnames = [made_up(draw, 3).capitalize() for _ in range(SURNAMES)]
    every = [f"{name} {surname} ({job})" for name in NAMES.split() for surname in surnames for job in SENTENCES]
    return draw.sample(every, TITLES)


def pair(draw: random.Random, known: Sequence[str]) -> Pair:
    title = draw.choice(known)
    name, surname, job = title.split()
    mention = misspelled(surname, draw, 0.2)
    if draw.random() < 0.5:
        mention = f"{name[0]}. {mention}"
    return draw.choice(SENTENCES[job.strip("()")]).format(mention), title


def main(folder: str, pairs: str = "6000", tests: str = "100") -> None:
    draw = random.Random(1)
    listed = titles(draw)
    known = listed[len(listed) // 3 :]
    write_parts(Path(folder), int(pairs), int(tests), lambda: pair(draw, known), lambda: pair(draw, listed))
    write_lines(Path(folder, "titles.txt"), listed)


if __name__ == "__main__":
    main(*sys.argv[1:])
