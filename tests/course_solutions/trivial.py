"""Submissions that do nothing of what an assignment asks for: no promise may be kept by them."""

from __future__ import annotations

import math
import runpy
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
from grader.assignment import COURSE

from sgdec import EOS, Decoder, Predictor, Result, Scores, SearchSpace, Source
from sgdec.ranking import Ranking


class EmptyResult(Decoder):
    def __init__(self, **options: Any) -> None:
        self.ranking = Ranking(options.get("alpha", 0.0))

    def decode(self, space: SearchSpace) -> Result:
        return Result([])


class EmptyResultOfASearch(EmptyResult):
    def decode(self, space: SearchSpace) -> Result:
        space.expand([space.root], limit=1)
        return Result([])


class NoResult(EmptyResult):
    def decode(self, space: SearchSpace) -> Result:
        return None  # type: ignore[return-value]


class NoScores(Predictor):
    """A predictor without a state, whose rows are all the same."""

    max_score = 0.0
    row: Any = None

    def __init__(self, **options: Any) -> None: ...

    def initialize(self, source: Source) -> None: ...

    def predict_next(self, candidates: Any = None) -> Scores:
        return self.row  # type: ignore[no-any-return]

    def consume(self, token: int) -> None: ...

    def get_state(self) -> None: ...

    def set_state(self, state: None) -> None: ...

    def state_key(self, states: Sequence[None]) -> list[Hashable]:
        return [0] * len(states)


class NothingFollows(NoScores):
    row = Scores.sparse((), ())


class OnlyTheEnd(NoScores):
    row = Scores.sparse((EOS,), (0.0,))


class AllTokensAlike(NoScores):
    row = Scores.dense(np.zeros(8))


class FirstToken(NoScores):
    def initialize(self, source: Source) -> None:
        self.row = Scores.sparse(source.tokens[:1], (0.0,))


class NoBounds(runpy.run_path(str(COURSE / "lattice" / "starter.py"), run_name="starter")["MyLattice"]):  # type: ignore[misc]
    bounds: Callable[[int], Any] = staticmethod(lambda states: None)

    def best_remaining(self, states: Sequence[int]) -> list[float]:
        return self.bounds(len(states))  # type: ignore[no-any-return]

    def worst_remaining(self, states: Sequence[int]) -> list[float]:
        found = self.bounds(len(states))
        return found and [-bound for bound in found]


class EmptyBounds(NoBounds):
    bounds = staticmethod(lambda states: [])


class NoPathAnywhere(NoBounds):
    bounds = staticmethod(lambda states: [-math.inf] * states)


DECODERS: list[type] = [EmptyResult, EmptyResultOfASearch, NoResult]
TRIVIAL: dict[str, list[type]] = {
    "beam": DECODERS, "curse": DECODERS, "decode_this": DECODERS,
    "bag": [NoScores, NothingFollows, OnlyTheEnd, AllTokensAlike, FirstToken],
    "lattice": [NoBounds, EmptyBounds, NoPathAnywhere],
}  # fmt: skip
