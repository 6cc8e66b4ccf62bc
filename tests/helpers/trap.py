"""A plugin file: the predictor ``trap`` copies the source, and some tokens kill, hang or bloat the process.

With ``once`` a token does so only if no file of this name exists, which is then made: only the first worker dies.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import sgdec
from sgdec import Predictor, Scores, Source
from sgdec.context import EOS
from sgdec.protocol import Candidates

KILL, ABORT, HANG, BLOAT, FAULT, SLOW = range(101, 107)


class Trap(Predictor):
    """The state is the number of tokens so far."""

    def __init__(self, once: str | None = None) -> None:
        self.once = once

    def initialize(self, source: Source) -> None:
        self.tokens: Sequence[int] = source.tokens
        self.at = 0
        deadly = next((token for token in source.tokens if KILL <= token <= SLOW), None)
        if deadly is None or (self.once and self._seen(deadly)):
            return
        if deadly == KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        if deadly == ABORT:
            os.abort()
        if deadly == HANG:
            time.sleep(1000)
        if deadly == BLOAT:
            held = [b"x" * (64 << 20) for _ in range(8)]
            time.sleep(1000)
            del held
        if deadly == FAULT:
            raise ZeroDivisionError("a defect")
        time.sleep(0.1)

    def _seen(self, deadly: int) -> bool:
        try:
            Path(f"{self.once}.{deadly}").touch(exist_ok=False)
        except FileExistsError:
            return True
        return False

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        return Scores.sparse([(*self.tokens, EOS)[self.at]], [-0.5])

    def consume(self, token: int) -> None:
        self.at += 1

    def get_state(self) -> tuple[Sequence[int], int]:
        return self.tokens, self.at

    def set_state(self, state: tuple[Sequence[int], int]) -> None:
        self.tokens, self.at = state


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[Predictor]]:
    return {"trap": Trap}
