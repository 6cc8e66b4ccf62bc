"""Forced decoding: allows only one given target sentence (Stahlberg et al. 2017, Table 2).

Score of token w: 0 if w is the next token of the reference (``</s>`` after its last token); all other tokens are
forbidden. Together with other predictors it makes any decoder score the reference.

State: the number of consumed tokens of the reference, in a range of numbers of its sentence. Cost: constant per row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from pydantic import Field

import sgdec
from sgdec import EOS, BatchPredictor, Context, SgdecError, Source
from sgdec.arcs import DEAD, Automata, Automaton
from sgdec.arrays import Ints
from sgdec.errors import counted
from sgdec.files import read_lines
from sgdec.protocol import FORBIDDEN, Arcs, Listed, SparseRow
from sgdec_predictors.automata.numbered import Numbered
from sgdec_predictors.tokens.lines import TokenLines

NOTHING = SparseRow((), ())
"""No token can follow."""


class ForcedPredictor(Numbered):
    """Allows exactly the reference: line N of the file belongs to sentence N.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "references.ids")
    ...     with open(path, "w") as file:
    ...         _ = file.write("17 4\\n")
    ...     predictor = ForcedPredictor(path)
    >>> states = predictor.initialize_batch([Source(id=1, tokens=())])
    >>> predictor.predict_batch(states).rows
    [SparseRow({17: 0.0}, default=-inf)]
    """

    max_score = 0.0
    arcs_of_tensors = True

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
        self._references = Automata[_Reference]()

    def initialize_batch(self, sources: Sequence[Source]) -> list[int]:
        """Raises SgdecError if there is no line for a sentence, or if it is not a list of tokens."""
        references = [self._reference(source.id) for source in sources]
        return list(map(self._references.add, references))

    def release(self, roots: Sequence[int]) -> None:
        for root in roots:
            self._references.release(root)

    def arcs(self, states: Ints, candidates: Listed | None) -> Arcs:
        return self._references.arcs(states, candidates)

    def whole(self, state: int) -> tuple[Automaton, int]:
        return self._references.find(state)

    def _row(self, state: int) -> SparseRow:
        token = self._allowed(state)
        return NOTHING if token is None else SparseRow([token], [0.0])

    def _next(self, state: int, token: int) -> int:
        return state + 1 if token == self._allowed(state) else DEAD

    def _allowed(self, state: int) -> int | None:
        """The only token that can follow, if there is one."""
        if state == DEAD:
            return None
        reference, start = self._references.find(state)
        return reference.allowed[state - start] if state - start < len(reference.allowed) else None

    def best_remaining(self, states: Sequence[int]) -> list[float]:
        return [FORBIDDEN if state == DEAD else 0.0 for state in states]

    def worst_remaining(self, states: Sequence[int]) -> list[float]:
        return [-FORBIDDEN if state == DEAD else 0.0 for state in states]

    def _reference(self, sentence: int) -> _Reference:
        if sentence > len(self._lines):
            raise SgdecError(
                f"forced: {self._path} has {counted(len(self._lines), 'line')}, so none for sentence {sentence}. "
                "Expected one reference per source sentence."
            )
        return _Reference(self._reader.read(self._lines[sentence - 1], f"forced: {self._path}: line {sentence}"))


class _Reference(Automaton):
    """A chain of one arc per token of a reference."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self.allowed = (*tokens, EOS)
        length = len(self.allowed)
        offsets = np.append(np.arange(length + 1), length)  # the last state, after ``</s>``, has no arc
        super().__init__(offsets, np.array(self.allowed), np.zeros(length), np.arange(1, length + 1))


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[BatchPredictor]]:
    return {"forced": ForcedPredictor}
