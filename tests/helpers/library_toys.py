"""A predictor, a decoder and a wrapper of a few lines, for tests of the library."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import sgdec
from sgdec import EOS, Decoder, Predictor, Result, Scores, Source
from sgdec.context import Vocabularies
from sgdec.library import LoadedRun
from tests.helpers.tiny_models import characters

V = 6


class Copy(Predictor):
    """Likes the source tokens, whatever their order; then the end."""

    max_score = 0.0

    def __init__(self, other: float = -5.0) -> None:
        self.other = other

    def initialize(self, source: Source) -> None:
        if source.tokens[0] == 5:
            raise ValueError("a five")
        self.scores = np.full(V, self.other)
        self.scores[[*source.tokens, EOS]] = [-1.0] * len(source.tokens) + [-2.0]

    def predict_next(self, candidates: Sequence[int] | None = None) -> Scores:
        return Scores.dense(self.scores)


class Threes(Decoder):
    """``times`` token 3, then the end."""

    def __init__(self, times: int = 1) -> None:
        self.times = times

    def decode(self, space: sgdec.SearchSpace) -> Result:
        node = space.root
        for token in [3] * self.times + [EOS]:
            (children,) = space.expand([node])
            node = next(child for child in children if child.step is not None and child.step.token == token)
        return Result([space.finish(node)])


class Around(Copy):
    """A wrapper."""

    def __init__(self, inner: Predictor) -> None:
        super().__init__()


class Speaking(Copy):
    """Brings the vocabularies of ``a`` and ``b``."""

    def __init__(self) -> None:
        super().__init__()
        self.vocabularies = Vocabularies(characters("ab"), characters("ab"))


def load_copy() -> LoadedRun:
    """`Copy` and a word bonus of 1.5 in a beam of 3: the best output repeats a source token to the length limit."""
    return sgdec.load({"copy": Copy(), "wc": "wc"}, wc={"weight": -1.5}, beam={"size": 3, "stop": "full"})
