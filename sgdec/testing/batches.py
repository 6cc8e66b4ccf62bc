"""Batches of sentences with different scores and limits, which detect decoders that confuse sentences."""

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
    """Gives random bonuses, at most 1, to some tokens; each sentence has different bonuses."""

    max_score = 1.0

    def initialize(self, source: Source) -> None:
        self._bonuses = np.random.default_rng(source.id).uniform(-1.0, 1.0, size=3).tolist()

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        return Scores.sparse((UNK, EOS, 3), self._bonuses, default=0.0)


def sentences(tiny: TinySpace) -> list[Source]:
    """The sentence of the space, five times, with different length limits."""
    return [replace(tiny.source, id=number, max_length=limit) for number, limit in enumerate((2, 0, 3, 1, 3), 1)]


def opened(tiny: TinySpace, sources: Sequence[Source], ranking: Ranking, nbest: int, most: int) -> list[LimitedSpace]:
    """One search space per sentence, all of one new constellation; see `TinySpace.open`."""
    plain = tiny.constellation()
    constellation = Constellation(
        [*plain.members, Member("favourites", lift(Favourites()))], vocab_size=plain.vocab_size
    )
    roots = constellation.roots(sources)
    return [LimitedSpace(constellation, root, ranking=ranking, nbest=nbest, most=most) for root in roots]
