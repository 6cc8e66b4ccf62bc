"""Sentence BLEU with effective order (Papineni et al. 2002), as sacreBLEU's ``sentence_bleu``.

    BLEU = 100 min(1, exp(1 - r / h)) (p_1 ... p_N)^(1/N)

h and r are the lengths of hypothesis and reference, p_n is the share of the hypothesis' n-grams that the reference
has, and N is 4, or h if the hypothesis is shorter. 0 if they share no word. Precisions of zero are smoothed (Chen and
Cherry 2014).

Scale: 0 to 100. Equal to sacreBLEU with the same settings.

For a mean of references, r is the mean length, and an n-gram of the hypothesis matches up to its mean count (DeNero,
Chiang and Knight 2009, "Fast Consensus Decoding over Translation Forests").

Cost: the n-grams of each text are counted once; then one matrix product per order compares all pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from sgdec.arrays import Floats, Ints
from sgdec.plugins.hookspecs import hookimpl
from sgdec.text.bleu import tokenizer
from sgdec.utilities.ngrams import Overlaps, numbered, shared, shared_with_means
from sgdec.utility import Utility

FLOOR = 0.1
"""The number of matches in place of none, with ``floor``."""
ADDED = 1
"""The number that ``add-k`` adds to matches and n-grams, for n > 1."""
LOG_OF_ZERO = -9999999999.0
"""sacreBLEU's."""


class Bleu(Utility):
    """Compare words and up to ``order`` words in a row.

    >>> Bleu().pairwise(["the cat sat"], ["the cat sat", "the cat sat down"], None).round(2).tolist()
    [[100.0, 71.65]]
    """

    def __init__(
        self,
        order: Annotated[int, Field(ge=1, le=100, description="the longest n-grams")] = 4,
        tokenize: Annotated[
            Literal["13a", "intl", "zh", "ja-mecab", "ko-mecab", "char", "none"],
            Field(description="sacreBLEU's tokenizer; none = the texts are tokenised"),
        ] = "13a",
        smooth_method: Annotated[
            Literal["exp", "floor", "add-k", "none"], Field(description="sacreBLEU's smoothing of precisions of zero")
        ] = "exp",
        lowercase: Annotated[bool, Field(description="ignore case")] = False,
    ) -> None:
        self.order, self.smooth_method, self.lowercase = order, smooth_method, lowercase
        self._tokenize = tokenizer(tokenize)

    def pairwise(self, hypotheses: Sequence[str], references: Sequence[str], source: str | None) -> Floats:
        ours, theirs = self._words(hypotheses, references)
        return self._bleu(shared(ours, theirs, self.order))

    def aggregated(
        self, hypotheses: Sequence[str], references: Sequence[str], weights: Floats, source: str | None
    ) -> Floats:
        ours, theirs = self._words(hypotheses, references)
        return self._bleu(shared_with_means(ours, theirs, weights, self.order))

    def _words(self, *sides: Sequence[str]) -> list[list[Ints]]:
        texts = [[text.lower() if self.lowercase else text for text in side] for side in sides]
        return numbered(*[(self._tokenize(text.rstrip()).split() for text in side) for side in texts])

    def _bleu(self, orders: Iterable[Overlaps]) -> Floats:
        unigrams, *longer = orders
        lengths = np.broadcast_to(unigrams.hypotheses[:, None], unigrams.matches.shape)
        logs, used, halved = np.zeros((3, *lengths.shape))
        counts = np.ones(lengths.shape, bool)  # whether this order does
        for n, (own, _, found) in enumerate([unigrams, *longer], start=1):
            added = ADDED if self.smooth_method == "add-k" and n > 1 else 0
            matches, total = found + added, own[:, None] + added
            counts &= total > 0
            missed = counts & (matches == 0)
            if self.smooth_method == "exp":
                halved += missed
                matches = np.where(missed, 0.5**halved, matches)
            elif self.smooth_method == "floor":
                matches = np.where(missed, FLOOR, matches)
            positive = counts & (matches > 0)
            precisions = np.divide(matches, total, out=np.ones(lengths.shape), where=positive)
            logs += np.where(counts & ~positive, LOG_OF_ZERO, np.log(precisions))
            used += counts
        brevity = 1 - np.divide(unigrams.references, lengths, out=np.ones(lengths.shape), where=lengths > 0)
        mean = np.divide(logs, used, out=np.zeros(lengths.shape), where=used > 0)
        return np.where(unigrams.matches > 0, 100 * np.exp(np.minimum(0, brevity) + mean), 0)


@hookimpl
def sgdec_utilities() -> dict[str, type[Any]]:
    return {"bleu": Bleu}
