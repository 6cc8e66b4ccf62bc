"""Sentence chrF, the F-score of character n-grams (Popović 2015); with words, chrF++ (Popović 2017).

For each order n, the precision is the share of the hypothesis' n-grams that the reference has, and the recall the
share of the reference's that the hypothesis has. Both are averaged over the orders that both texts have, and

    chrF = 100 (1 + beta^2) P R / (beta^2 P + R)

Scale: 0 to 100. Equal to sacreBLEU's sentence chrF with the same settings, and 0 for two empty texts as there.

For a mean of references, counts are mean counts (Vamvas and Sennrich 2024). Both are equal to fastchrf 0.2.1, which
is slower and therefore not used (``benchmarks/utilities.py``).

Cost: the n-grams of each text are counted once; then one matrix product per order compares all pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from sgdec.arrays import Floats, Ints
from sgdec.plugins.hookspecs import hookimpl
from sgdec.utilities.ngrams import Overlaps, numbered, shared, shared_with_means
from sgdec.utility import Utility

PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
"""The marks that chrF++ separates from words."""
EPSILON = 1e-16
"""The precision or recall of an order that a text lacks, with smoothing."""


class Chrf(Utility):
    """Compare characters; with ``word_order`` 2, words too.

    >>> Chrf().pairwise(["the cat"], ["the cat", "the hat"], None).round(2).tolist()
    [[100.0, 28.06]]
    """

    def __init__(
        self,
        char_order: Annotated[int, Field(ge=1, le=100, description="the longest n-grams of characters")] = 6,
        word_order: Annotated[int, Field(ge=0, le=100, description="the longest n-grams of words; 2 = chrF++")] = 0,
        beta: Annotated[float, Field(gt=0, le=1e6, description="how much more recall counts than precision")] = 2.0,
        lowercase: Annotated[bool, Field(description="ignore case")] = False,
        whitespace: Annotated[bool, Field(description="n-grams of characters include spaces")] = False,
        eps_smoothing: Annotated[bool, Field(description="average F-scores of orders, as chrF++.py does")] = False,
    ) -> None:
        self.char_order, self.word_order, self.factor = char_order, word_order, beta**2
        self.lowercase, self.whitespace, self.eps_smoothing = lowercase, whitespace, eps_smoothing

    def pairwise(self, hypotheses: Sequence[str], references: Sequence[str], source: str | None) -> Floats:
        ours, theirs = self._symbols(hypotheses, references)
        found = [shared(ours[kind], theirs[kind], order) for kind, order in self._orders()]
        return self._f_score(chain(*found), (len(hypotheses), len(references)))

    def aggregated(
        self, hypotheses: Sequence[str], references: Sequence[str], weights: Floats, source: str | None
    ) -> Floats:
        ours, theirs = self._symbols(hypotheses, references)
        found = [shared_with_means(ours[kind], theirs[kind], weights, order) for kind, order in self._orders()]
        return self._f_score(chain(*found), (len(hypotheses), len(weights)))

    def _orders(self) -> list[tuple[int, int]]:
        """The kinds of symbols, 0 = characters and 1 = words, with the longest n-grams of each."""
        return [(0, self.char_order), *([(1, self.word_order)] if self.word_order else [])]

    def _symbols(self, *sides: Sequence[str]) -> list[list[list[Ints]]]:
        """For each side: the characters of each text, then its words."""
        texts = [[text.lower() if self.lowercase else text for text in side] for side in sides]
        characters = [[text if self.whitespace else "".join(text.split()) for text in side] for side in texts]
        code_points = [[_code_points(text) for text in side] for side in characters]
        if not self.word_order:
            return [[each] for each in code_points]
        words = numbered(*[map(_words, side) for side in texts])
        return [list(each) for each in zip(code_points, words, strict=True)]

    def _f_score(self, orders: Iterable[Overlaps], shape: tuple[int, int]) -> Floats:
        """100 times the F-score, of these counts. [H, R]"""
        precision, recall, f_scores, used = np.zeros((4, *shape))
        for own, theirs, matches in orders:
            both = (own[:, None] > 0) & (theirs > 0)
            p = np.divide(matches, own[:, None], out=np.full(shape, EPSILON), where=both)
            r = np.divide(matches, theirs, out=np.full(shape, EPSILON), where=np.broadcast_to(theirs > 0, shape))
            if self.eps_smoothing:
                f_scores += _divided((1 + self.factor) * p * r, self.factor * p + r, EPSILON)
            precision += np.where(both, p, 0)
            recall += np.where(both, r, 0)
            used += both
        if self.eps_smoothing:
            return 100 * f_scores / (self.char_order + self.word_order)
        precision, recall = _divided(precision, used), _divided(recall, used)
        return 100 * _divided((1 + self.factor) * precision * recall, self.factor * precision + recall)


def _divided(above: Floats, below: Floats, otherwise: float = 0.0) -> Floats:
    """``above / below``, or ``otherwise`` where ``below`` is 0."""
    found: Floats = np.divide(above, below, out=np.full(below.shape, otherwise), where=below > 0)
    return found


def _code_points(text: str) -> Ints:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4").astype(np.int64)


def _words(text: str) -> list[str]:
    """Words, from which one punctuation mark at the end, or else at the beginning, is separated.

    >>> _words('He said: "no" (twice).')
    ['He', 'said', ':', '"no', '"', '(twice)', '.']
    """
    found = []
    for word in text.split():
        if len(word) > 1 and word[-1] in PUNCTUATION:
            found += [word[:-1], word[-1]]
        elif len(word) > 1 and word[0] in PUNCTUATION:
            found += [word[0], word[1:]]
        else:
            found.append(word)
    return found


@hookimpl
def sgdec_utilities() -> dict[str, type[Any]]:
    return {"chrf": Chrf}
