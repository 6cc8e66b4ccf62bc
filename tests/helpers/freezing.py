"""A plugin file: the predictor ``freezing`` copies the source; on one token native code keeps the interpreter."""

from __future__ import annotations

import ctypes

import sgdec
from sgdec import Predictor, Source
from tests.helpers.trap import SLOW, Trap

FREEZE = SLOW + 1


class Freezing(Trap):
    """No other thread of its process can work after that."""

    def initialize(self, source: Source) -> None:
        super().initialize(source)
        if FREEZE in source.tokens:
            ctypes.PyDLL(None).sleep(10_000)


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[Predictor]]:
    return {"freezing": Freezing}
