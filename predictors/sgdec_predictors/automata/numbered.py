"""Automata whose states are numbers, defined by two functions: the scores after a state, and the next state.

`Numbered` derives the verbs and `steps` from the two. `Counting` adds `arcs` for rows that score one token by itself
and all others alike, such as ``</s>`` in a model of length. `Sentences` keeps what belongs to one sentence.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Sequence
from typing import Generic, TypeVar

from sgdec import EOS, BatchPredictor, Scores, Source
from sgdec.arcs import Numbers
from sgdec.arrays import Ints, namespace
from sgdec.protocol import Arcs, Candidates, Listed, SparseRow, Steps

LONGEST = 1 << 32
"""The number of states of a sentence that counts tokens, above all lengths. Numbers cost nothing."""
NO_LIMIT = LONGEST - 1
"""The number of tokens left if the length has no limit."""

Data = TypeVar("Data")
Number = TypeVar("Number", int, Ints)
"""A number or an array of numbers."""


def tokens_left(source: Source) -> int:
    """The number of tokens that the length limit allows."""
    return NO_LIMIT if source.max_length is None else min(source.max_length, NO_LIMIT)


def one_less(left: Number) -> Number:
    """The tokens left after one more; 0 and `NO_LIMIT` stay as they are."""
    return left - 1 * ((left > 0) & (left < NO_LIMIT))  # torch subtracts no bool


class Numbered(BatchPredictor):
    """The verbs and `steps`, by `_row` and `_next`."""

    independent_rows = True

    @abstractmethod
    def _row(self, state: int) -> SparseRow:
        """The scores of the next token."""

    @abstractmethod
    def _next(self, state: int, token: int) -> int:
        """The state after one more token."""

    def predict_batch(self, states: Sequence[int], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        return Scores(rows=list(map(self._row, states)))

    def consume_batch(self, states: Sequence[int], tokens: Sequence[int]) -> list[int]:
        return list(map(self._next, states, tokens))

    def steps(self, state: int, candidates: Candidates | None) -> Steps:
        """Raises ValueError without candidates if rows are open, because these list no tokens."""
        row = self._row(state)
        if candidates is None:
            if not self.restricts:
                raise ValueError(f"{type(self).__name__} takes steps among candidates only")
            candidates = row.candidates
        return candidates, row.at(candidates), [self._next(state, token) for token in candidates]

    def state_key(self, states: Sequence[int]) -> list[Hashable]:
        return list(states)


class Counting(Numbered):
    """An automaton with open rows, which score one token by itself and all others alike."""

    restricts = False
    arcs_of_tensors = True
    token = EOS
    """The token with a score of its own."""

    @abstractmethod
    def _after(self, states: Number, tokens: Number) -> Number:
        """The state after one more token, for one state or an array of states."""

    def _next(self, state: int, token: int) -> int:
        return self._after(state, token)

    def arcs(self, states: Ints, candidates: Listed | None) -> Arcs:
        """Raises ValueError without candidates. Hypotheses of equal length share states, so few rows are computed."""
        if candidates is None:
            raise ValueError(f"{type(self).__name__} has arcs among candidates only")
        xp, device, (offsets, tokens) = namespace(states), states.device, candidates
        counts = offsets[1:] - offsets[:-1]
        distinct, place = xp.unique_inverse(states)
        rows = list(map(self._row, distinct.tolist()))
        own = xp.asarray([row.get(self.token) for row in rows], dtype=xp.float64, device=device)[place]
        others = xp.asarray([row.default for row in rows], dtype=xp.float64, device=device)[place]
        scores = xp.where(tokens == self.token, xp.repeat(own, counts), xp.repeat(others, counts))
        return offsets, tokens, scores, self._after(xp.repeat(states, counts), tokens)


class Sentences(Generic[Data]):
    """The data of the sentences in flight. States are numbers of tokens, each sentence in a range of its own."""

    def __init__(self) -> None:
        self._numbers = Numbers()
        self._data: list[Data] = []

    def begin(self, data: Data) -> int:
        """The state of the empty prefix of a new sentence."""
        self._data.append(data)
        return self._numbers.take(LONGEST)

    def find(self, state: int) -> tuple[Data, int]:
        """The data of a state's sentence, and the number of tokens."""
        place = self._numbers.place(state)
        return self._data[place], state - self._numbers.starts[place]

    def count(self, state: int) -> int:
        """The number of tokens."""
        return self.find(state)[1]

    def release(self, states: Sequence[int]) -> None:
        """Forget the sentences of these states."""
        for state in states:
            del self._data[self._numbers.release(state)]
