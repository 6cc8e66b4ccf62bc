"""The hypotheses of many beams as columns of arrays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sgdec import EOS
from sgdec.arrays import Flags, Floats, Ints


class Beams(NamedTuple):
    """H hypotheses: by sentence, and within a sentence in the order of its beam."""

    numbers: Ints
    """``[4, H]``: see the properties."""
    scores: Floats
    """``[2, H]``"""

    @classmethod
    def of(cls, sentence: Ints, token: Ints, length: Ints, trail: Ints, total: Floats, rank: Floats) -> Beams:
        return cls(np.array([sentence, token, length, trail]), np.array([total, rank]))

    @property
    def sentence(self) -> Ints:
        """``[H]``: the position of the sentence among those in flight."""
        sentence: Ints = self.numbers[0]
        return sentence

    @property
    def token(self) -> Ints:
        """``[H]``: the last token."""
        token: Ints = self.numbers[1]
        return token

    @property
    def length(self) -> Ints:
        length: Ints = self.numbers[2]
        return length

    @property
    def trail(self) -> Ints:
        """``[H]``: the index of the last link among the `Links` of its step."""
        trail: Ints = self.numbers[3]
        return trail

    @property
    def total(self) -> Floats:
        total: Floats = self.scores[0]
        return total

    @property
    def rank(self) -> Floats:
        """``[H]``: rank scores, valid only for finished hypotheses."""
        rank: Floats = self.scores[1]
        return rank

    @property
    def finished(self) -> Flags:
        return np.equal(self.token, EOS)

    def and_then(self, others: Beams) -> Beams:
        """These hypotheses, followed by the others."""
        return Beams(*(np.concatenate(parts, axis=1) for parts in zip(self, others, strict=True)))

    def at(self, chosen: Ints) -> Beams:
        """The hypotheses at these places, in this order."""
        return Beams(self.numbers[:, chosen], self.scores[:, chosen])

    def where(self, chosen: Flags) -> Beams:
        """The hypotheses that are marked; itself if all are."""
        return self if chosen.all() else self.at(chosen.nonzero()[0])
