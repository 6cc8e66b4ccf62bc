"""The baselines, and a submission: ``python examples/course/decode_this/baselines.py [my_decode_this.py]``.

Prints for each kind of sentences the share of the way from a beam search of size 4 to the best hypotheses.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from decode_this.checks import BUDGET, SENTENCES, Sentence, decode, draw_sentences
from grader.cli import main
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


@click.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Seed of the sentences.")
@click.option(
    "--sentences", type=click.IntRange(min=1), help="Sentences of each kind. Default: as many as are graded."
)
def command(file: Path | None, seed: int, sentences: int | None) -> None:
    """Print the baselines, and the figures of the submission FILE if there is one."""
    make = dict(MAKE)
    if file is not None:
        submitted = Host([file], autoload=False).load("decoder", "mydecoder")
        make[file.name] = lambda kind, budget: submitted(budget=budget)
    drawn = {kind: draw_sentences(kind, seed, sentences or count) for kind, count in SENTENCES.items()}
    without = [kind for kind, tested in drawn.items() if whole_way(tested) < 1e-9]
    click.echo(" ".join([f"{'':24}", *(f"{kind:>9}" for kind in BUDGET)]))
    for name, decoder in make.items():
        ways = [
            f"{'-':>9}" if kind in without else f"{way(partial(decoder, kind), tested):9.2f}"
            for kind, tested in drawn.items()
        ]
        click.echo(" ".join([f"{name:24}", *ways]))
    if without:
        click.echo(f"-: a beam of 4 finds the best of all sentences ({', '.join(without)}). Take more --sentences.")


def way(make: Callable[..., Decoder], sentences: Sequence[Sentence]) -> float:
    """The share of the way."""
    score = sum(decode(make, sentence.mix, sentence.budget)[0] for sentence in sentences)
    return (score - sum(sentence.beam for sentence in sentences)) / whole_way(sentences)


def whole_way(sentences: Sequence[Sentence]) -> float:
    """From a beam search of size 4 to the best hypotheses; 0 if the beam finds them all."""
    return sum(sentence.best - sentence.beam for sentence in sentences)


if __name__ == "__main__":
    sys.exit(main(called=command))
