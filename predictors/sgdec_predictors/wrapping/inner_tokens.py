"""Wrappers whose inner predictor has other tokens: prefixes of inner tokens, computed on demand.

These wrappers look ahead along several inner prefixes per row and follow few of them. A `InnerPrefix` is one inner
prefix. Its last token is consumed, and its next tokens are scored, only once and on first use; all simultaneous
requests of several rows are one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from sgdec import BatchPredictor, Context, Scores, Source, UsageError
from sgdec.arrays import Floats, Ints
from sgdec.context import Vocabularies
from sgdec.protocol import SparseRow, State
from sgdec.wrapping import Wrapper


class Translator(Wrapper):
    """A wrapper between two kinds of target tokens. The inner predictor does not determine the run's vocabularies."""

    forwards: ClassVar[tuple[str, ...]] = ()
    length_limit: Any = None
    """The inner limit counts other tokens."""

    def __init__(self, inner: BatchPredictor) -> None:
        super().__init__(inner)
        self.on_demand = True  # it scores only the candidates that others leave

    @classmethod
    def read_vocabularies(cls, inner: Vocabularies, **options: Any) -> Vocabularies:
        """No vocabularies: the inner source may be tokenised differently from the run's, and the inner target is."""
        return Vocabularies()

    @classmethod
    def inner_context(cls, context: Context, **options: Any) -> Context:
        """The inner predictor's context: the run's source, and a target that is not the run's."""
        return replace(context, vocabularies=Vocabularies(context.vocabularies.source, None), vocab_size=None)


WAITING: Any = object()
"""The value of an inner state before the last token has been consumed."""


REACH = 600.0
"""Exponentials of numbers up to this and sums of them are ordinary floating-point numbers."""


class InnerPrefix:
    """One prefix of inner tokens; its state and scores are filled in on demand."""

    __slots__ = (
        "__weakref__", "_children", "_exponentials", "before", "known", "row", "sparse", "state", "token", "values"
    )  # fmt: skip

    def __init__(self, before: State, token: int, state: State = WAITING) -> None:
        self.before = before
        """The inner state before the last token, until that is consumed."""
        self.token = token
        self.state = state
        """The inner state, or `WAITING`."""
        self.known: dict[int, float] = {}
        """Scores by token, for the tokens that were asked about; `row` computes others."""
        self.row: Callable[[int], float] | None = None
        """Scores any token; None if the inner predictor was asked about candidates only."""
        self.values: npt.NDArray[Any] | None = None
        """The array ``[V]`` that `row` reads, if the inner predictor returns one."""
        self.sparse: SparseRow | None = None
        """The row that `row` reads, if the inner predictor returns one."""
        self._exponentials: tuple[float, Floats] | None = None
        self._children: WeakValueDictionary[int, InnerPrefix] | None = None

    def score(self, token: int) -> float:
        """The score of the next token; `Inner.know` must have computed it."""
        return self.row(token) if self.row is not None else self.known[token]

    def scores(self, tokens: Ints) -> Floats:
        """The scores of many next tokens; 0 for negative ones."""
        if self.values is not None:
            return np.where(tokens >= 0, self.values[tokens], 0.0)
        if self.sparse is not None:
            return np.where(tokens >= 0, self.sparse.at(tokens.tolist()), 0.0)
        return np.array([self.score(token) if token >= 0 else 0.0 for token in tokens.tolist()])

    def exponentials(self) -> tuple[float, Floats] | None:
        """A score s, and ``[V + 1]`` exp(score - s) by token; the last entry, at -1, is that of score 0.

        Logs of sums cost much less from these, computed once. None without an array of scores.
        """
        if self._exponentials is None and self.values is not None:
            highest = max(float(self.values.max()), -REACH)  # so that exp(-highest) is finite
            self._exponentials = highest, np.exp(np.append(self.values, 0.0) - highest)
        return self._exponentials

    def forget(self) -> None:
        """Drop the scores of next tokens, which are computed again if they are asked for."""
        self.known, self.row, self.values, self.sparse, self._exponentials = {}, None, None, None, None

    def then(self, token: int) -> InnerPrefix:
        """The prefix with one more token: the same object as long as it is referenced."""
        if self._children is None:
            self._children = WeakValueDictionary()
        child = self._children.get(token)
        if child is None:
            child = self._children[token] = InnerPrefix(self.state, token)
        return child


class Inner:
    """A predictor that scores spellings in batches."""

    def __init__(self, predictor: BatchPredictor, who: str, highest: int) -> None:
        """``who``: the wrapper, for messages; ``highest``: the highest token that it uses."""
        self._predictor = predictor
        self.on_demand = predictor.on_demand
        self._who = who
        self._highest = highest

    def begin(self, sources: Sequence[Source]) -> list[InnerPrefix]:
        """The empty prefixes of these sentences. The length limit counts the decoder's tokens, not these."""
        unlimited = [replace(source, max_length=None) for source in sources]
        return [InnerPrefix(None, -1, state) for state in self._predictor.initialize_batch(unlimited)]

    def states(self, spellings: Iterable[InnerPrefix]) -> list[State]:
        """The inner states of spellings; consumes all pending tokens in one batch."""
        spellings = list(spellings)
        waiting = list(dict.fromkeys(spelling for spelling in spellings if spelling.state is WAITING))
        if waiting:
            after = self._predictor.consume_batch([s.before for s in waiting], [s.token for s in waiting])
            for spelling, state in zip(waiting, after, strict=True):
                spelling.state, spelling.before = state, None
        return [spelling.state for spelling in spellings]

    def know(self, questions: Iterable[tuple[InnerPrefix, int]]) -> None:
        """Compute the scores of these next tokens in one batch. Negative tokens are ignored.

        An on-demand predictor scores only these tokens; any other predictor scores all.
        """
        asked: dict[InnerPrefix, set[int]] = {}
        for spelling, token in questions:
            if token >= 0 and spelling.row is None and token not in spelling.known:
                asked.setdefault(spelling, set()).add(token)
        if not asked:
            return
        wanted = [sorted(tokens) for tokens in asked.values()]
        scores = self._predictor.predict_batch(self.states(asked), wanted if self.on_demand else None)
        matrix = self._matrix(scores)
        for i, (spelling, tokens) in enumerate(zip(asked, wanted, strict=True)):
            values = None if matrix is None else matrix[i]
            row = scores.rows[i].get if values is None else values.item
            if self.on_demand:
                spelling.known.update((token, row(token)) for token in tokens)
            elif values is None:
                spelling.row, spelling.sparse = row, scores.rows[i]
            else:
                spelling.values = values.copy()  # keeps no other row alive
                spelling.row = spelling.values.item

    def _matrix(self, scores: Scores) -> npt.NDArray[Any] | None:
        """``[rows, V]``; None for sparse rows."""
        if scores.values is None:
            return None
        values: Any = scores.values
        if self._highest >= values.shape[-1]:
            raise UsageError(
                f"{self._who} writes token {self._highest}, but the inner predictor has {values.shape[-1]} tokens. "
                "Its output side must be the inner vocabulary."
            )
        matrix: npt.NDArray[Any] = values if isinstance(values, np.ndarray) else values.detach().cpu().numpy()
        return matrix
