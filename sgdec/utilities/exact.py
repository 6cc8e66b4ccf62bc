"""1 if the texts are equal, else 0: the expected utility of a text is its probability.

So the choice is the most probable text, as far as the references tell: of several tokenisations of a text, all count.

Scale: 0 or 1. Cost: one comparison of numbers a pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sgdec.arrays import Floats
from sgdec.plugins.hookspecs import hookimpl
from sgdec.utility import Utility


class Exact(Utility):
    """Compare whole texts, character by character.

    >>> Exact().pairwise(["a", "b"], ["b"], None).tolist()
    [[0.0], [1.0]]
    """

    symmetric = True

    def pairwise(self, hypotheses: Sequence[str], references: Sequence[str], source: str | None) -> Floats:
        numbers = {text: number for number, text in enumerate([*hypotheses, *references])}
        ours, theirs = (np.array([numbers[text] for text in side], np.int64) for side in (hypotheses, references))
        equal: Floats = (ours[:, None] == theirs).astype(np.float64)
        return equal


@hookimpl
def sgdec_utilities() -> dict[str, type[Any]]:
    return {"exact": Exact}
