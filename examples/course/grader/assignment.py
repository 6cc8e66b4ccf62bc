"""An assignment: the name of the plugin that students write, and the promises that it is tested for.

An assignment is a folder beside this package with a ``checks.py`` that defines ``ASSIGNMENT``. A ``hidden.py`` adds
checks that students do not have.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np

from sgdec.errors import UsageError
from sgdec.suggest import suggest
from sgdec.testing import DecoderContract, PredictorContract, promises

COURSE = Path(__file__).resolve().parent.parent
Make: TypeAlias = Callable[..., Any]
"""The submitted class: called with options, it gives a new predictor or decoder."""


@dataclass(frozen=True)
class Share:
    """The outcome of a test that can give some of its points."""

    share: float
    """The share of the points, 0 to 1."""
    why: str
    """One line about what was reached."""
    values: Mapping[str, float] = field(default_factory=dict)
    """For a leaderboard: numbers by name, the higher the better."""

    def __post_init__(self) -> None:
        """Raises ValueError for a share outside 0 to 1."""
        if not 0.0 <= self.share <= 1.0:
            raise ValueError(f"a share of {self.share:g}; expected 0 to 1")


Test: TypeAlias = Callable[[Make, np.random.Generator], Share | None]
"""Raises AssertionError if the promise is broken; None = all points. All its random numbers come from the
generator."""


@dataclass(frozen=True)
class Check:
    """One promise with its points and its test."""

    promise: str
    points: int
    test: Test
    hidden: bool = False
    """Whether only the lecturer has this check: it is in ``hidden.py``, and the handout does not list it."""


@dataclass
class Assignment:
    """The required plugin, and the checks that grade it."""

    kind: str
    """``predictor`` or ``decoder``."""
    plugin: str
    """The name under which the submitted file offers its class."""
    checks: list[Check] = field(default_factory=list)

    @property
    def points(self) -> int:
        return sum(check.points for check in self.checks)

    def check(self, promise: str, points: int, *, hidden: bool = False) -> Callable[[Test], Test]:
        """Marks the test of one promise."""

        def add(test: Test) -> Test:
            self.checks.append(Check(promise, points, test, hidden))
            return test

        return add

    def contract(
        self,
        contract: Callable[[Make, np.random.Generator], PredictorContract | DecoderContract],
        points: Mapping[str, int],
    ) -> None:
        """Adds promises of sgdec's own contract, by their texts (`sgdec.testing.Promise`)."""
        held: list[Any] = []

        def held_contract(make: Make, rng: np.random.Generator) -> PredictorContract | DecoderContract:
            """One contract for all its promises while make and seed are the same, because they share searches."""
            given = [make, rng.bit_generator.state]
            if held[:2] != given:
                held[:] = [*given, contract(make, rng)]
            found: PredictorContract | DecoderContract = held[2]
            return found

        for text, worth in points.items():
            self.checks.append(Check(text, worth, _of_contract(held_contract, text)))


def _of_contract(
    contract: Callable[[Make, np.random.Generator], PredictorContract | DecoderContract], text: str
) -> Test:
    def test(make: Make, rng: np.random.Generator) -> None:
        kept = {promise.text: promise.check for promise in promises(contract(make, rng))}
        kept[text]()

    return test


def assignments() -> list[str]:
    """The names of all assignments."""
    return sorted(path.parent.name for path in COURSE.glob("*/checks.py"))


def load_assignment(name: str) -> Assignment:
    """The assignment of a folder, with its hidden checks if they are there; UsageError if there is no such folder.

    Hidden checks are in ``hidden.py``, which defines ``add(checks)``: it gets the module ``checks.py``, and adds to
    its ``ASSIGNMENT``.
    """
    if name not in assignments():
        raise UsageError(f"no assignment named {name!r}. {suggest(name, assignments())}")
    checks = _run_file(name, "checks")
    if (COURSE / name / "hidden.py").is_file():
        _run_file(name, "hidden").add(checks)
    found: Assignment = checks.ASSIGNMENT
    return found


def _run_file(name: str, part: str) -> ModuleType:
    """A new module from a file of an assignment's folder."""
    spec = importlib.util.spec_from_file_location(f"sgdec_course_{name}_{part}", COURSE / name / f"{part}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
