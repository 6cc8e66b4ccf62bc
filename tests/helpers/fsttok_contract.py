"""What tests of `fsttok` share: toy transducers, totals of plain walks, and the contract."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from sgdec_predictors.fsttok import FstTok

from sgdec import EOS, Source
from sgdec.io.transducer import OTHERWISE, UNK_LABEL, TransducerArc
from sgdec.lifting import lift
from sgdec.protocol import FORBIDDEN, BatchPredictor, Predictor
from sgdec.testing import PassThrough, PredictorContract, Table
from tests.helpers.drawn_transducers import Drawn

OUTER = (3, 4)
"""Decoder tokens that transducers read."""
V = 6
"""Inner tokens."""
SOURCE = Source(1, (3, 4, 5), max_length=3)


def together(scores: Sequence[float], semiring: str) -> float:
    highest = max(scores, default=FORBIDDEN)
    if semiring == "tropical" or highest == FORBIDDEN:
        return highest
    return highest + math.log(sum(math.exp(score - highest) for score in scores))


def total(predictor: Predictor | BatchPredictor, tokens: Sequence[int]) -> float:
    """As a plain walk says; -inf as soon as a token is forbidden."""
    lifted = lift(predictor)
    states, found = lifted.initialize_batch([SOURCE]), 0.0
    for token in (*tokens, EOS):
        scores = lifted.predict_batch(states, [[token]])
        score = float(scores.values[0][token]) if scores.values is not None else scores.rows[0].get(token)
        if score == FORBIDDEN:
            return FORBIDDEN
        found += score
        if token != EOS:
            states = lifted.consume_batch(states, [token])
    return found


def strings(tokens: Sequence[int] = OUTER, longest: int = 3) -> list[tuple[int, ...]]:
    return [string for n in range(longest + 1) for string in itertools.product(tokens, repeat=n)]


def ambiguous(path: Path) -> str:
    """Delayed, early, ambiguous and failing: all at once."""
    arcs = {
        0: [TransducerArc(3, 0, 0.0, 1), TransducerArc(3, 3, 0.5, 0), TransducerArc(4, 5, 0.0, 2),
            TransducerArc(OTHERWISE, UNK_LABEL, 0.0, 3)],
        1: [TransducerArc(4, 4, 0.0, 0), TransducerArc(0, 3, 0.25, 2), TransducerArc(3, 5, 1.0, 1)],
        2: [TransducerArc(0, 4, 0.0, 4), TransducerArc(5, 0, 0.0, 0)],
        3: [TransducerArc(5, 3, 0.0, 4), TransducerArc(3, 3, 0.0, 0)],
        4: [TransducerArc(3, 4, 0.0, 2), TransducerArc(5, 5, 0.75, 0)],
    }  # fmt: skip
    return Drawn(arcs, {0: 0.0, 4: 0.5}).write(str(path / "t.fst"))


class FstTokContract(PredictorContract):
    plugin = "fsttok"
    vocab_size = V
    walk_length = 5
    options: ClassVar[dict[str, Any]] = {}

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _prepare(cls, tmp_path_factory: pytest.TempPathFactory) -> None:
        cls.path = ambiguous(tmp_path_factory.mktemp("fsttok"))

    def inner(self) -> Predictor | BatchPredictor:
        return Table(np.random.default_rng(1).uniform(-3, 1, (V, V)))

    def make(self) -> BatchPredictor:
        return FstTok(PassThrough(lift(self.inner())), self.path, **self.options)
