"""Forced decoding: allows only one given target sentence (Stahlberg et al. 2017, Table 2).

Score of token w: 0 if w is the next token of the reference (``</s>`` after its last token); all other tokens are
forbidden. Together with other predictors it makes any decoder score the reference.

State: the number of consumed tokens of the reference. Cost: constant per row.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Annotated

from pydantic import Field

import sgdec
from sgdec import EOS, Context, Predictor, Scores, SgdecError, Source
from sgdec.protocol import FORBIDDEN, Candidates
from sgdec.text.lines import read_lines
from sgdec_predictors._token_lines import TokenLines

OFF = -1
"""The state off the reference."""
NOTHING = Scores.sparse((), ())
"""No token can follow."""


class ForcedPredictor(Predictor):
    """Allows exactly the reference: line N of the file belongs to sentence N.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "references.ids")
    ...     with open(path, "w") as file:
    ...         _ = file.write("17 4\\n")
    ...     predictor = ForcedPredictor(path)
    >>> predictor.initialize(Source(id=1, tokens=()))
    >>> predictor.predict_next().rows
    [SparseRow({17: 0.0}, default=-inf)]
    """

    max_score = 0.0

    def __init__(
        self,
        path: Annotated[
            str, Field(description="file of references, one per line: text, or token ids without a vocabulary")
        ],
        context: Context | None = None,
    ) -> None:
        """Raises SgdecError if the file cannot be read."""
        self._path = path
        self._reader = TokenLines(context)
        try:
            self._lines = tuple(read_lines(path))
        except SgdecError as error:
            raise SgdecError(f"forced: {error}") from None
        self._allowed: tuple[int, ...] = ()
        self._state = 0

    def initialize(self, source: Source) -> None:
        """Raises SgdecError if there is no line for this sentence, or if it is not a list of tokens."""
        self._allowed = (*self._reference(source.id), EOS)
        self._state = 0

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        if not 0 <= self._state < len(self._allowed):
            return NOTHING
        return Scores.sparse((self._allowed[self._state],), (0.0,))

    def consume(self, token: int) -> None:
        on_path = 0 <= self._state < len(self._allowed) and self._allowed[self._state] == token
        self._state = self._state + 1 if on_path else OFF

    def get_state(self) -> int:
        return self._state

    def set_state(self, state: int) -> None:
        self._state = state

    def best_remaining(self, states: Sequence[int]) -> list[float]:
        return [FORBIDDEN if state == OFF else 0.0 for state in states]

    def worst_remaining(self, states: Sequence[int]) -> list[float]:
        return [-FORBIDDEN if state == OFF else 0.0 for state in states]

    def state_key(self, states: Sequence[int]) -> list[Hashable]:
        return list(states)

    def _reference(self, sentence: int) -> tuple[int, ...]:
        if sentence > len(self._lines):
            raise SgdecError(
                f"forced: {self._path} has {len(self._lines)} lines, so none for sentence {sentence}. "
                "Expected one reference per source sentence."
            )
        return self._reader.read(self._lines[sentence - 1], f"forced: {self._path}: line {sentence}")


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[Predictor]]:
    return {"forced": ForcedPredictor}
