"""Hidden checks of assignment ``bag``."""

from __future__ import annotations

import math
from types import ModuleType

import numpy as np
from grader.assignment import Make

from sgdec import EOS, Source


def add(checks: ModuleType) -> None:
    @checks.ASSIGNMENT.check("a bag can be large, and its tokens can be any numbers", points=2, hidden=True)
    def _(make: Make, rng: np.random.Generator) -> None:
        tokens = tuple(rng.choice(rng.integers(EOS + 1, 50_000, 40), 120).tolist())
        predictor = make()
        predictor.initialize(Source(1, tokens))
        for length, token in enumerate(tokens):
            row = predictor.predict_next().rows[0]
            expected = checks.formula(Source(1, tokens), tokens[:length], subsets=False)
            found = {token: score for token, score in zip(row.tokens, row.scores, strict=True) if score > -math.inf}
            same = {*found} == {*expected} and all(math.isclose(found[t], s) for t, s in expected.items())
            assert same, f"the scores must be those of formula (1) after {length} of {len(tokens)} tokens"
            predictor.consume(token)
