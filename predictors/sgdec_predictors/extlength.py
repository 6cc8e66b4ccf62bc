"""External length scores: the allowed lengths of a hypothesis, with scores (SGNMT; Stahlberg et al. 2017).

Line N of a file lists the lengths that sentence N may have, as ``LENGTH:SCORE`` or ``LENGTH`` (score 0), for instance
from an external model. Score of ``</s>`` after n tokens: the score of n if it is listed, otherwise forbidden.
Score of every other token: 0 as long as a longer length is listed, otherwise forbidden.

State: n. Cost: constant per row.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Annotated

from pydantic import Field

import sgdec
from sgdec import EOS, Predictor, Scores, SgdecError, Source
from sgdec.io.lengths import read_length_scores
from sgdec.protocol import FORBIDDEN, Candidates


class ExternalLength(Predictor):
    """Allows the listed lengths, each with its score.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "lengths")
    ...     with open(path, "w") as file:
    ...         _ = file.write("0:-1.5 2\\n")
    ...     predictor = ExternalLength(path)
    >>> predictor.initialize(Source(id=1, tokens=()))
    >>> predictor.predict_next().rows
    [SparseRow({2: -1.5}, default=0.0)]
    """

    def __init__(
        self,
        path: Annotated[
            str, Field(description="file of lengths with scores, one line per sentence: 7:-0.5 8:-1.2 9")
        ],
    ) -> None:
        """Raises SgdecError if the file cannot be read."""
        self._path = path
        try:
            self._lines = tuple(read_length_scores(path))
        except SgdecError as error:
            raise SgdecError(f"extlength: {error}") from None
        self.max_score = max([0.0, *(score for line in self._lines for score in line.values())])
        self._scores: dict[int, float] = {}
        self._longest = -1
        self._limit = math.inf
        self._state = 0

    def initialize(self, source: Source) -> None:
        """Raises SgdecError if there is no line for this sentence."""
        if source.id > len(self._lines):
            raise SgdecError(
                f"extlength: {self._path} has {len(self._lines)} lines, so none for sentence {source.id}. "
                "Expected one line of lengths per source sentence."
            )
        self._scores = self._lines[source.id - 1]
        self._longest = max(self._scores)
        self._limit = math.inf if source.max_length is None else source.max_length
        self._state = 0

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        end = self._scores.get(self._state, FORBIDDEN)
        if self._state < self._longest:
            return Scores.sparse([EOS], [end], default=0.0)
        return Scores.sparse([EOS], [end]) if end != FORBIDDEN else Scores.sparse((), ())

    def consume(self, token: int) -> None:
        self._state += 1

    def get_state(self) -> int:
        return self._state

    def set_state(self, state: int) -> None:
        self._state = state

    def best_remaining(self, states: Sequence[int]) -> list[float]:
        """The score of the best listed length that can still be reached; -inf = there is none."""
        return [max(self._reachable(n), default=FORBIDDEN) for n in states]

    def worst_remaining(self, states: Sequence[int]) -> list[float]:
        return [min(self._reachable(n), default=-FORBIDDEN) for n in states]

    def state_key(self, states: Sequence[int]) -> list[Hashable]:
        return list(states)

    def _reachable(self, n: int) -> list[float]:
        return [score for length, score in self._scores.items() if n <= length <= self._limit]


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[Predictor]]:
    return {"extlength": ExternalLength}
