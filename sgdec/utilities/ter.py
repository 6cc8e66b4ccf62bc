"""The translation edit rate, negated (Snover et al. 2006).

Minus 100 times the fewest edits that turn the hypothesis into the reference, per word of the reference. An edit
inserts, deletes or replaces a word, or moves words in a row; moves are found greedily. Case is ignored by default.

Scale: 0 is best; -100 and below are as many edits as words. Equal to minus sacreBLEU's sentence TER.

Cost: each pair is an edit distance for each move that is tried, in Python: half a millisecond for twenty words of
which a third differs, so half a minute for 256 x 256. Compare with few references, or count n-grams (`chrf`, `bleu`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from sgdec.arrays import Floats
from sgdec.plugins.hookspecs import hookimpl
from sgdec.utility import Utility


class Ter(Utility):
    """Count edits of words.

    >>> Ter().pairwise(["the cat sat", "sat the cat"], ["the cat sat"], None).round(1).tolist()
    [[0.0], [-33.3]]
    """

    def __init__(
        self,
        normalized: Annotated[bool, Field(description="separate punctuation from words, as Tercom does")] = False,
        no_punct: Annotated[bool, Field(description="remove punctuation")] = False,
        asian_support: Annotated[bool, Field(description="with these two: characters of Asian scripts, too")] = False,
        case_sensitive: Annotated[bool, Field(description="distinguish case")] = False,
    ) -> None:
        from sacrebleu.metrics.ter import TER

        self._metric = TER(normalized, no_punct, asian_support, case_sensitive)

    def pairwise(self, hypotheses: Sequence[str], references: Sequence[str], source: str | None) -> Floats:
        from sacrebleu.metrics.lib_ter import translation_edit_rate

        def rate(ours: list[str], theirs: list[str]) -> float:
            if ours == theirs:
                return 0.0
            edits: int = translation_edit_rate(ours, theirs)[0]
            return edits / len(theirs) if theirs else 1.0

        ours, theirs = ([self._words(text) for text in side] for side in (hypotheses, references))
        return 0.0 - 100 * np.array([[rate(own, other) for other in theirs] for own in ours])

    def _words(self, text: str) -> list[str]:
        words: list[str] = self._metric.tokenizer(text.rstrip()).split()
        return words


@hookimpl
def sgdec_utilities() -> dict[str, type[Any]]:
    return {"ter": Ter}
