"""The share of right pronunciations: greedy search beside the model's proven optimum.

    python accuracy.py

The package g2p-en ships a list of homographs, words such as *progress* with two pronunciations each. An output is
right if it is one of the two.
"""

from __future__ import annotations

from importlib.metadata import distribution
from pathlib import Path

from g2p import G2P

import sgdec


def homographs() -> dict[str, set[str]]:
    """The pronunciations of each word."""
    path = Path(str(distribution("g2p-en").locate_file("g2p_en/homographs.en")))
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    fields = [line.strip().split("|") for line in lines]
    return {word.lower(): {first, second} for word, first, second, _ in fields}


def pronounced(decoder: str, words: list[str]) -> list[str | None]:
    """The best output of each word; of an exact search, with its proof."""
    run = sgdec.load({"g2p": G2P}, decoder, max_length=20, precision="fp64")
    found = list(run.decode(words, errors="raise"))
    assert all(each.proven is not False for each in found)
    return [each.best.text for each in found]


def main() -> None:
    right = homographs()
    words = list(right)
    greedy, exact = pronounced("greedy", words), pronounced("astar", words)
    differ = [i for i in range(len(words)) if greedy[i] != exact[i]]
    print(f"words: {len(words)}; search errors of greedy search: {len(differ)}")
    for name, outputs in (("greedy", greedy), ("exact", exact)):
        correct = [output in right[word] for word, output in zip(words, outputs, strict=True)]
        share = f"{100 * sum(correct) / len(words):.1f} %"
        print(f"{name}: {sum(correct)} right ({share}), {sum(correct[i] for i in differ)} of them where they differ")


if __name__ == "__main__":
    main()
