"""The promise: every registered utility keeps the contract of utilities, and the contract finds those that do not."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import sgdec
from sgdec.arrays import Floats
from sgdec.testing import UtilityContract, promises
from sgdec.utility import Utility
from tests.helpers.contracts import HOST, contracts

PROGRAM = """
import json, sys
print(json.dumps({"aggregates": True, "needs_references": False}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    lengths = [len(text) for text in asked["references"]]
    if "weights" in asked:
        lengths = [sum(w * n for w, n in zip(row, lengths, strict=True)) for row in asked["weights"]]
    rows = [[-abs(len(text) - n) for n in lengths or [0]] for text in asked["hypotheses"]]
    print(json.dumps({"utilities": rows}), flush=True)
"""


class Registered(UtilityContract):
    plugin: ClassVar[str]
    options: ClassVar[dict[str, Any]] = {}

    def make(self) -> Utility:
        return sgdec.load_utility(self.plugin, **self.options)


class TestChrf(Registered):
    plugin = "chrf"


class TestChrfWithWords(Registered):
    plugin = "chrf"
    options: ClassVar[dict[str, Any]] = {"word_order": 2, "eps_smoothing": True}


class TestBleu(Registered):
    plugin = "bleu"


class TestTer(Registered):
    plugin = "ter"


class TestExact(Registered):
    plugin = "exact"


class TestCommand(Registered):
    plugin = "command"

    @pytest.fixture(autouse=True)
    def _program(self, tmp_path: Path) -> None:
        (tmp_path / "program.py").write_text(PROGRAM)
        self.program = tmp_path / "program.py"

    def make(self) -> Utility:
        return sgdec.load_utility("command", command=f"'{sys.executable}' '{self.program}'")


def test_every_registered_utility_has_a_contract() -> None:
    tested = {found.plugin for found in contracts(Registered) if hasattr(found, "plugin")}
    assert tested == {entry.name for entry in HOST.names("utility")}


class Ranks(Utility):
    """The rank among the hypotheses."""

    def pairwise(self, hypotheses: Sequence[str], references: Sequence[str], source: str | None) -> Floats:
        lengths = np.array([len(text) for text in hypotheses])
        return np.argsort(lengths)[:, None] + np.zeros(len(references))


class OneSided(Utility):
    symmetric = True

    def pairwise(self, hypotheses: Sequence[str], references: Sequence[str], source: str | None) -> Floats:
        return np.array([[float(len(text))] * len(references) for text in hypotheses])


class OfNoText(Utility):
    def pairwise(self, hypotheses: Sequence[str], references: Sequence[str], source: str | None) -> Floats:
        lengths = np.array([len(text) or np.nan for text in references])
        return np.array([[len(text)] for text in hypotheses]) / lengths


class Uniform(OneSided):
    symmetric = False

    def aggregated(
        self, hypotheses: Sequence[str], references: Sequence[str], weights: Floats, source: str | None
    ) -> Floats:
        return np.array([[len(text) + float(row.max()) for row in weights] for text in hypotheses]) - 1


class Misspelt(OneSided):
    symmetric = False

    def aggregate(self) -> None: ...


@pytest.mark.parametrize(
    ("utility", "broken"),
    [
        (Ranks, "a pair does not depend on the others"),
        (OneSided, "it is symmetric if it says so"),
        (OfNoText, "each pair has a finite number"),
        (Uniform, "a mean counts a reference as often as it comes"),
        (Misspelt, "its class keeps to the protocol"),
    ],
)
def test_the_contract_finds_a_utility_that_breaks_it(utility: type[Utility], broken: str) -> None:
    class Contract(UtilityContract):
        def make(self) -> Utility:
            return utility()

    (promise,) = (each for each in promises(Contract()) if each.text == broken)
    with pytest.raises((AssertionError, sgdec.SgdecError)):
        promise.check()
