"""The baselines, and a submission: ``python examples/course/decode_this/baselines.py [my_decode_this.py]``.

Prints for each kind of sentences the share of the way from a beam search of size 4 to the best hypotheses.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from decode_this.checks import BUDGET, SENTENCES, Sentence, decode, draw_sentences
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.dfs import DfsDecoder
from sgdec_decoders.greedy import GreedyDecoder

from sgdec import Decoder
from sgdec.plugins.host import Host

MAKE: dict[str, Callable[[str, int], Decoder]] = {
    "greedy": lambda kind, budget: GreedyDecoder(),
    "beam of 4": lambda kind, budget: BeamDecoder(4, stop="length"),
    "widest beam": lambda kind, budget: BeamDecoder(BUDGET[kind], stop="length"),
    "widest beam, recombines": lambda kind, budget: BeamDecoder(BUDGET[kind], stop="length", recombine=True),
    "depth first, recombines": lambda kind, budget: DfsDecoder(max_expansions=budget, recombine=True),
}
"""The decoder for a kind and a budget."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Print the baselines, and the figures of a submission.")
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sentences", type=int, help="of each kind; by default as many as are graded")
    given = parser.parse_args()
    make = dict(MAKE)
    if given.file:
        submitted = Host([given.file], autoload=False).load("decoder", "mydecoder")
        make[given.file.name] = lambda kind, budget: submitted(budget=budget)
    drawn = {kind: draw_sentences(kind, given.seed, given.sentences or count) for kind, count in SENTENCES.items()}
    print(f"{'':24}", *(f"{kind:>9}" for kind in BUDGET))
    for name, decoder in make.items():
        ways = [way(partial(decoder, kind), sentences) for kind, sentences in drawn.items()]
        print(f"{name:24}", *(f"{share:9.2f}" for share in ways))


def way(make: Callable[..., Decoder], sentences: Sequence[Sentence]) -> float:
    """The share of the way; not a number if the beam finds the best of all sentences."""
    score = sum(decode(make, sentence.mix, sentence.budget)[0] for sentence in sentences)
    beam, best = sum(sentence.beam for sentence in sentences), sum(sentence.best for sentence in sentences)
    return (score - beam) / (best - beam) if best > beam else math.nan


if __name__ == "__main__":
    main()
