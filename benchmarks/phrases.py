"""What do phrases cost? Beam search with a model of random weights, with and without `phrases`, alternating.

The vocabulary is of made-up words. Each sentence has phrases of one to three words that the model would not choose,
and with `avoid` as many that must not occur. CPU times of one thread, so that other work on the machine changes them
little; the medians of the ratios of the times per expansion, because outputs with phrases can be longer:

    python benchmarks/phrases.py [--layers 2] [--width 512] [--vocabulary 32000] [--sentences 32] [--runs 5]
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from common import frozen, nmt, random_gnmt, sentences
from sgdec_decoders.beam import BeamDecoder
from sgdec_predictors.phrases import Phrases

from sgdec import Context
from sgdec.context import Vocabularies
from sgdec.search.constellation import Constellation
from sgdec.search.scheduler import Scheduler
from sgdec.text.words import SPECIAL, WordVocabulary


def words(number: int) -> WordVocabulary:
    """A vocabulary of made-up words of one to four syllables."""
    draw, found = random.Random(1), dict[str, None]()
    while len(found) < number - len(SPECIAL):
        found["".join(draw.choice("bdfgklmnprst") + draw.choice("aeiou") for _ in range(draw.randint(1, 4)))] = None
    return WordVocabulary([*SPECIAL, *found])


def terms(vocabulary: WordVocabulary, lines: int, each: int, seed: int) -> str:
    """For each sentence this many phrases."""
    draw = random.Random(seed)

    def phrase() -> str:
        tokens = [draw.randrange(3, vocabulary.size) for _ in range(draw.randint(1, 3))]
        return vocabulary.decode(tokens)

    return "".join("\t".join(phrase() for _ in range(each)) + "\n" for _ in range(lines))


class Price:
    """The search of a model with and without phrases, in turn."""

    def __init__(self, layers: int, width: int, size: int, number: int) -> None:
        """``size``: V; ``number`` of sentences."""
        self.vocabulary = words(size)
        self._model = nmt(frozen(random_gnmt(layers, width, size)))
        self._sources = sentences([30] * number, size)
        self._alone = Constellation.of({"nmt": self._model}, vocab_size=size)

    def of(self, option: str, each: int, banks: bool, runs: int) -> tuple[list[float], float, int]:
        """The ratios of the CPU seconds per expansion, that of the expansions, and the sentences without an output.

        ``option``: that of `phrases`; ``each``: the number of phrases of a sentence.
        """
        size = self.vocabulary.size
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "phrases.tsv"
            file.write_text(terms(self.vocabulary, len(self._sources), each, seed=each), encoding="utf-8")
            context = Context(vocabularies=Vocabularies(self.vocabulary, self.vocabulary))
            predictor = Phrases(**{option: str(file)}, context=context)  # type: ignore[arg-type]
            constrained = Constellation.of({"nmt": self._model, "phrases": predictor}, vocab_size=size)
            ratios, before, expansions, missed = [], 1, 0, 0
            for _ in range(runs):
                plain, before, _ = self._decode(self._alone)
                seconds, expansions, missed = self._decode(constrained, banks=banks)
                ratios.append(seconds / plain)
        return ratios, expansions / before, missed

    def _decode(self, constellation: Constellation, **options: Any) -> tuple[float, int, int]:
        """CPU seconds per expansion, the number of expansions, and of sentences without an output."""
        began = time.process_time()
        outcomes = list(Scheduler(constellation, BeamDecoder(5, **options)).run(self._sources))
        seconds, expansions = time.process_time() - began, sum(each.result.expansions for each in outcomes)
        return seconds / expansions, expansions, sum(not each.result.hypotheses for each in outcomes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--vocabulary", type=int, default=32_000)
    parser.add_argument("--sentences", type=int, default=32)
    parser.add_argument("--runs", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    price = Price(given.layers, given.width, given.vocabulary, given.sentences)
    about = f"GNMT {given.layers} x {given.width}, V = {given.vocabulary:,}"
    print(f"{about}, beam 5, {given.sentences} sentences, one thread")
    for option, each, banks in [
        ("avoid", 1, False), ("avoid", 10, False), ("path", 1, False), ("path", 1, True), ("path", 2, True),
        ("path", 4, True), ("path", 8, True),
    ]:  # fmt: skip
        ratios, expansions, missed = price.of(option, each, banks, given.runs)
        kind = f"{each} {'wanted' if option == 'path' else 'avoided'} phrases{', banks' if banks else ''}"
        print(
            f"{kind}: {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f}) per expansion, "
            f"{expansions:.2f} of the expansions, {missed} of {given.sentences} without an output"
        )


if __name__ == "__main__":
    main()
