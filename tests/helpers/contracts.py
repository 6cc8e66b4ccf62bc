"""Contracts of registered plugins, for the test files that have one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from sgdec.decoder import Decoder
from sgdec.plugins.host import Host
from sgdec.protocol import BatchPredictor, Predictor
from sgdec.testing import ExactDecoderContract, PredictorContract, PredictorSearchContract
from tests.helpers.breadth import examples

V = 9
"""Target tokens of the tiny models of contracts."""
HOST = Host(autoload=False)


class PluginContract(PredictorContract):
    """The contract of a registered predictor."""

    plugin: ClassVar[str]
    vocab_size = V
    options: dict[str, Any]
    own_sentences: ClassVar[bool] = False
    """Whether a variant of another contract begins and releases sentences in its own way."""

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _prepare(cls, tmp_path_factory: pytest.TempPathFactory) -> None:
        """Once for all tests, so that they share what is computed from it."""
        cls.options = cls().prepare(tmp_path_factory.mktemp(cls.__name__))

    def prepare(self, folder: Path) -> dict[str, Any]:
        """Writes what the predictor reads; its options."""
        return {}

    def make(self) -> Predictor | BatchPredictor:
        predictor: Predictor | BatchPredictor = HOST.load("predictor", self.plugin)(**self.options)
        return predictor


class SearchContract(PredictorSearchContract):
    """With a folder for what the predictor reads."""

    spaces = examples(60)
    folder: Path

    @pytest.fixture(autouse=True)
    def _prepare(self, tmp_path: Path) -> None:
        self.folder = tmp_path


def require_exact(make: Callable[[], Decoder]) -> None:
    """That the decoder finds the true n-best of random spaces, and a proof."""

    class Contract(ExactDecoderContract):
        random_spaces = examples(20)

        def make(self) -> Decoder:
            return make()

    Contract().test_the_true_nbest_is_found_in_random_spaces()
    Contract().test_a_search_that_comes_to_its_end_is_proven()


def contracts(base: type[Any]) -> Iterator[type[Any]]:
    for found in base.__subclasses__():
        yield found
        yield from contracts(found)
