"""Make a catalogue of products, and queries for them, the same way each time.

    python catalogue.py FOLDER [PRODUCTS [QUERIES]]

Writes to FOLDER

    catalogue.tsv           the identifier of each product, a tab, and the log of its popularity
    train.query, train.id   eight queries for each product
    valid.*, test.*         QUERIES further queries each, for products drawn by popularity

An identifier names kind, brand, colour, material and size, in this order: ``shoe albata brown steel xl``. Few of
these combinations are products. A query names some of these words, in any order. It may say *dark* for three colours
or *metal* for three materials, and it has words that mean nothing.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

KINDS = (
    "bag basket belt bench bike blanket boot bottle bowl box brush bucket cap chair clock coat cup desk drill fan "
    "fork frame glove hat jacket jar kettle knife lamp mat mirror pan phone radio scarf shelf shirt shoe stool table"
)
STARTS, ENDS = "alba bera cora dila emra fino gato hera iso jura", "x nu ro ta"
"""The two parts of a brand."""
COLOURS = {
    "black": "dark", "navy": "dark", "brown": "dark", "white": "light", "cream": "light", "grey": "light",
    "red": "bright", "yellow": "bright", "orange": "bright", "green": "green", "blue": "blue", "pink": "pink",
}  # fmt: skip
MATERIALS = {
    "steel": "metal", "copper": "metal", "tin": "metal", "oak": "wood", "pine": "wood", "wool": "soft",
    "cotton": "soft", "leather": "leather", "glass": "glass", "plastic": "plastic",
}  # fmt: skip
"""By colour or material the word of its group."""
SIZES = ("xs", "s", "m", "l", "xl")
FILLERS = "buy cheap for gift me my new nice please shop the with"
NAMED = (0.95, 0.45, 0.7, 0.5, 0.35)
"""The probability that a query names each part of an identifier."""
VAGUE = 0.3
"""The probability that it names a colour or material only by its group."""
PAIRS = 8
"""Training queries for each product."""

Product = tuple[str, ...]


def catalogue(count: int, draw: random.Random) -> list[Product]:
    """Different products, in random order."""
    brands = [start + end for start in STARTS.split() for end in ENDS.split()]
    parts = [KINDS.split(), brands, list(COLOURS), list(MATERIALS), SIZES]
    found: dict[Product, None] = {}
    while len(found) < count:
        found[tuple(map(draw.choice, parts))] = None
    return list(found)


def query(product: Product, draw: random.Random) -> str:
    """A query for a product; never empty."""
    groups = {**COLOURS, **MATERIALS}
    words = [word for word, chance in zip(product, NAMED, strict=True) if draw.random() < chance]
    words = [groups.get(word, word) if draw.random() < VAGUE else word for word in words]
    words += draw.sample(FILLERS.split(), draw.randrange(1, 3))
    draw.shuffle(words)
    return " ".join(words)


def write_pairs(folder: Path, name: str, products: Iterable[Product], draw: random.Random) -> None:
    pairs = [(query(product, draw), " ".join(product)) for product in products]
    for suffix, lines in zip(("query", "id"), zip(*pairs, strict=True), strict=True):
        (folder / f"{name}.{suffix}").write_text("".join(f"{line}\n" for line in lines))


def main(arguments: Sequence[str]) -> None:
    folder = Path(arguments[0])
    count, queries = (int(given) for given in [*arguments[1:], "4000", "500"][:2])
    draw = random.Random(1)
    products = catalogue(count, draw)
    popularity = [1 / (rank + 20) for rank in range(count)]  # Zipf's law, flatter at its head
    total = math.fsum(popularity)
    lines = [f"{' '.join(p)}\t{math.log(each / total):.4f}\n" for p, each in zip(products, popularity, strict=True)]
    (folder / "catalogue.tsv").write_text("".join(lines))
    write_pairs(folder, "train", draw.sample(products * PAIRS, count * PAIRS), draw)
    for name in ("valid", "test"):
        write_pairs(folder, name, draw.choices(products, popularity, k=queries), draw)


if __name__ == "__main__":
    main(sys.argv[1:])
