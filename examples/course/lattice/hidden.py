"""Hidden checks of assignment ``lattice``."""

from __future__ import annotations

import math
from types import ModuleType

import numpy as np
from grader.assignment import Assignment, Make


def add(checks: ModuleType) -> None:
    assignment: Assignment = checks.ASSIGNMENT

    @assignment.check("costs can be large", points=2, hidden=True)
    def _(make: Make, rng: np.random.Generator) -> None:
        for arcs in [checks.random_arcs(rng, ends=True) for _ in range(10)]:
            large = {
                state: {token: (5_000 * score, target) for token, (score, target) in out.items()}
                for state, out in arcs.items()
            }
            visits = checks.visit(large)
            for name, expected in (("best_remaining", "best"), ("worst_remaining", "worst")):
                found = checks.bounds(make, large, visits, name)
                for each, bound in zip(visits, found, strict=True):
                    right = getattr(each, expected)
                    assert math.isclose(bound, right, rel_tol=1e-9, abs_tol=1e-6), (
                        f"{name} must be {right:.4f}, not {bound:.4f}, {checks.at(each, large)}"
                    )
