"""The contract of a registered predictor, for test files that have one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from sgdec.plugins.host import Host
from sgdec.protocol import BatchPredictor, Predictor
from sgdec.testing import PredictorContract

V = 9
"""Target tokens of the tiny models of contracts."""
HOST = Host(autoload=False)


class PluginContract(PredictorContract):
    """The contract of a registered predictor."""

    plugin: ClassVar[str]
    vocab_size = V
    options: dict[str, Any]

    @pytest.fixture(autouse=True)
    def _prepare(self, tmp_path: Path) -> None:
        self.options = self.prepare(tmp_path)

    def prepare(self, folder: Path) -> dict[str, Any]:
        """Writes what the predictor reads; its options."""
        return {}

    def make(self) -> Predictor | BatchPredictor:
        predictor: Predictor | BatchPredictor = HOST.load("predictor", self.plugin)(**self.options)
        return predictor


def contracts(base: type[Any]) -> Iterator[type[Any]]:
    for found in base.__subclasses__():
        yield found
        yield from contracts(found)
