"""Make a text worse, the same way each time: what a post-editor has to put right.

    python corrupt.py < text.de > worse.de

In each line one word in eight is dropped, one in ten is replaced by a word of the previous line, and one in ten is
doubled. Only the original in the other language still has the information of the dropped words.
"""

from __future__ import annotations

import random
import sys

LOST, OTHER, TWICE = 0.125, 0.1, 0.1


def worse(words: list[str], others: list[str], draw: random.Random) -> list[str]:
    """At least one word stays."""
    found: list[str] = []
    for word in words:
        chance = draw.random() - LOST
        if chance >= 0:
            found.append(draw.choice(others) if chance < OTHER else word)
            found += [word] if OTHER <= chance < OTHER + TWICE else []
    return found or words[:1]


def main() -> None:
    draw, others = random.Random(1), ["ein"]
    for line in sys.stdin:
        words = line.split()
        print(*worse(words, others, draw))
        others = words or others


if __name__ == "__main__":
    main()
