"""A predictor with a vocabulary of any size, for beams that are wide."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sgdec import BatchPredictor, Scores, Source
from sgdec.protocol import Candidates, State
from sgdec.search.constellation import Constellation


class Wide(BatchPredictor):
    """Scores that depend on the last token alone."""

    def __init__(self, vocab_size: int) -> None:
        self.table = np.random.default_rng(0).normal(-3.0, 1.0, (vocab_size, vocab_size))

    @classmethod
    def constellation(cls, vocab_size: int) -> Constellation:
        return Constellation.of({"wide": cls(vocab_size)})

    def initialize_batch(self, sources: Sequence[Source]) -> list[State]:
        return [1] * len(sources)

    def predict_batch(
        self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None
    ) -> Scores:
        return Scores.dense(self.table[np.array(states)])

    def consume_batch(self, states: Sequence[State], tokens: Sequence[int]) -> list[State]:
        return list(tokens)
