"""Batches of sentences that differ, so that a decoder which takes one for another is found out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sgdec.context import EOS, UNK
from sgdec.lifting import lift
from sgdec.protocol import Candidates, Predictor, Scores, Source
from sgdec.ranking import Ranking
from sgdec.search.constellation import Constellation
from sgdec.search.member import Member
from sgdec.testing.limited import LimitedSpace
from sgdec.testing.tiny_spaces import TinySpace


class Favourites(Predictor):
    """Each sentence has bonuses of its own, at most 1, for some tokens."""

    max_score = 1.0

    def initialize(self, source: Source) -> None:
        self._bonuses = np.random.default_rng(source.id).uniform(-1.0, 1.0, size=3).tolist()

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        return Scores.sparse((UNK, EOS, 3), self._bonuses, default=0.0)


def sentences(tiny: TinySpace) -> list[Source]:
    """That of the space, several times, with different limits."""
    return [replace(tiny.source, id=number, max_length=limit) for number, limit in enumerate((2, 0, 3, 1, 3), 1)]


def opened(tiny: TinySpace, sources: Sequence[Source], ranking: Ranking, nbest: int, most: int) -> list[LimitedSpace]:
    """Spaces over these sentences, of one new constellation; see `TinySpace.open`."""
    plain = tiny.constellation()
    constellation = Constellation(
        [*plain.members, Member("favourites", lift(Favourites()))], vocab_size=plain.vocab_size
    )
    roots = constellation.roots(sources)
    return [LimitedSpace(constellation, root, ranking=ranking, nbest=nbest, most=most) for root in roots]
