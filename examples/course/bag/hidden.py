"""Hidden checks of assignment ``bag``."""

from __future__ import annotations

from types import ModuleType

import numpy as np
from grader.assignment import Assignment, Make

from sgdec import EOS, Source
from sgdec.protocol import FORBIDDEN
from sgdec.testing.reading import ask


def add(checks: ModuleType) -> None:
    assignment: Assignment = checks.ASSIGNMENT

    @assignment.check("a bag can be large, and its tokens can be any numbers", points=2, hidden=True)
    def _(make: Make, rng: np.random.Generator) -> None:
        size = 500
        tokens = tuple(rng.choice(rng.integers(EOS + 1, size, 40), 120).tolist())
        predictor = make()
        predictor.initialize(Source(1, tokens))
        for length, token in enumerate(tokens):
            expected = np.full(size, FORBIDDEN)
            for token_left, score in checks.formula(Source(1, tokens), tokens[:length], subsets=False).items():
                expected[token_left] = score
            assert np.allclose(ask(predictor, size), expected), (
                f"scores must be those of formula (1) after {length} of {len(tokens)} tokens"
            )
            predictor.consume(token)
