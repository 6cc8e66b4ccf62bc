"""External length scores: the allowed lengths of a hypothesis, with scores (SGNMT; Stahlberg et al. 2017).

Line N of a file lists the lengths that sentence N may have, as ``LENGTH:SCORE`` or ``LENGTH`` (score 0), for instance
from an external model. Score of ``</s>`` after n tokens: the score of n if it is listed, otherwise forbidden.
Score of every other token: 0 as long as a longer length is listed, otherwise forbidden.

State: n, in a range of numbers of its sentence. Cost: constant per row. Relaxations: by n, exact up to 510 tokens;
then a constant.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple

from pydantic import Field

import sgdec
from sgdec import EOS, BatchPredictor, SgdecError, Source
from sgdec.errors import counted
from sgdec.files import read_length_scores
from sgdec.protocol import FORBIDDEN, SparseRow
from sgdec.relaxations import Constant, Relaxation
from sgdec_predictors.automata.counted import COUNTED, Counted
from sgdec_predictors.automata.numbered import Counting, Number, Sentences


class ExternalLength(Counting):
    """Allows the listed lengths, each with its score.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "lengths")
    ...     with open(path, "w") as file:
    ...         _ = file.write("0:-1.5 2\\n")
    ...     predictor = ExternalLength(path)
    >>> states = predictor.initialize_batch([Source(id=1, tokens=())])
    >>> predictor.predict_batch(states).rows
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
        self._sentences = Sentences[_Sentence]()

    def initialize_batch(self, sources: Sequence[Source]) -> list[int]:
        """Raises SgdecError if there is no line for a sentence."""
        for source in sources:
            if source.id > len(self._lines):
                raise SgdecError(
                    f"extlength: {self._path} has {counted(len(self._lines), 'line')}, so none for sentence "
                    f"{source.id}. Expected one line of lengths per source sentence."
                )
        return [self._sentences.begin(self._sentence(source)) for source in sources]

    def release(self, roots: Sequence[int]) -> None:
        self._sentences.release(roots)

    def _row(self, state: int) -> SparseRow:
        sentence, n = self._sentences.find(state)
        return sentence.lengths.row(n)

    def _after(self, states: Number, tokens: Number) -> Number:
        return states + 1

    def best_remaining(self, states: Sequence[int]) -> list[float]:
        """The score of the best listed length that can still be reached; -inf = there is none."""
        return [max(self._reachable(state), default=FORBIDDEN) for state in states]

    def worst_remaining(self, states: Sequence[int]) -> list[float]:
        return [min(self._reachable(state), default=-FORBIDDEN) for state in states]

    def _reachable(self, state: int) -> list[float]:
        sentence, n = self._sentences.find(state)
        return [score for length, score in sentence.lengths.scores.items() if n <= length <= sentence.limit]

    def relaxations(self, state: int) -> Sequence[Relaxation]:
        return self._sentences.find(state)[0].relaxations

    def _sentence(self, source: Source) -> _Sentence:
        lengths = _Lengths(self._lines[source.id - 1])
        scores = 0.0, *lengths.scores.values()
        extremes = min(scores), max(scores)
        exact = lengths.longest < COUNTED
        by_length = Counted(
            lengths.longest + 1 if exact else COUNTED,
            lengths.row,
            self._sentences.count,
            beyond=None if exact else extremes,
        )
        limit = math.inf if source.max_length is None else source.max_length
        return _Sentence(lengths, limit, (by_length, Constant(*extremes)))


class _Sentence(NamedTuple):
    lengths: _Lengths
    limit: float
    relaxations: Sequence[Relaxation]


class _Lengths:
    """The lengths of one sentence."""

    def __init__(self, scores: Mapping[int, float]) -> None:
        self.scores = scores
        self.longest = max(scores)

    def row(self, n: int) -> SparseRow:
        """The scores after n tokens."""
        end = self.scores.get(n, FORBIDDEN)
        if n < self.longest:
            return SparseRow([EOS], [end], default=0.0)
        return SparseRow([EOS], [end]) if end != FORBIDDEN else SparseRow((), ())


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[BatchPredictor]]:
    return {"extlength": ExternalLength}
