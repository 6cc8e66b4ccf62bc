"""Hidden checks of assignment ``curse``."""

from __future__ import annotations

from types import ModuleType

import numpy as np
from grader.assignment import Assignment, Make


def add(checks: ModuleType) -> None:
    assignment: Assignment = checks.ASSIGNMENT

    @assignment.check("all options work together, also in wide beams", points=2, hidden=True)
    def _(make: Make, rng: np.random.Generator) -> None:
        for length in (3, 4, 5, 6, 7) * 3:
            every = [
                checks.Rules(size, stop, alpha=rng.choice([0.6, 1.0]), reward=rng.choice([0.25, 0.5]), shortest=0.5)
                for size in (2, 7, 30)
                for stop in ("first", "full", "optimal")
            ]
            checks.compare(make, checks.falling(rng, length), every)
