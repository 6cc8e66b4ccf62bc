"""Hidden checks of assignment ``decode_this``."""

from __future__ import annotations

from types import ModuleType

import numpy as np
from grader.assignment import Assignment, Make, Share


def add(checks: ModuleType) -> None:
    assignment: Assignment = checks.ASSIGNMENT

    @assignment.check("half of the budget on bigrams: half of the way", points=2, hidden=True)
    def _(make: Make, rng: np.random.Generator) -> None:
        sentences = [each._replace(budget=each.budget // 2) for each in checks.graded_sentences("bigrams", rng)]
        share: Share = checks.measure(make, sentences)[1]
        assert share.share >= 0.5, share.why
