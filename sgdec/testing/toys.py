"""Tiny predictors with known scores, one for each kind of answer: dense, restricting, open, on demand, in batches.

Almost all declare bounds and keys, so that every decoder can run with them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cache, partial
from graphlib import CycleError, TopologicalSorter
from typing import Any, NamedTuple, final

import numpy as np
import numpy.typing as npt

from sgdec.arrays import Floats
from sgdec.context import BOS, EOS
from sgdec.protocol import (
    ABILITIES,
    FORBIDDEN,
    BatchPredictor,
    Candidates,
    Predictor,
    Scores,
    Source,
    State,
    ability,
)


class Prefix(NamedTuple):
    """The state of a `Table`."""

    last: int
    left: float
    """The number of tokens that the length limit still allows before ``</s>``."""


class Table(Predictor):
    """A bigram model with dense scores. ``table``: ``[V, V]``, the scores of the next token, by the last token."""

    def __init__(self, table: npt.ArrayLike) -> None:
        self.table = np.asarray(table, dtype=np.float64)
        self._state = Prefix(BOS, math.inf)
        self._extremes = {sign: _extremes(self.table, sign) for sign in (1, -1)}

    def initialize(self, source: Source) -> None:
        self._state = Prefix(BOS, _left(source))

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        return Scores.dense(self.table[self._state.last])

    def consume(self, token: int) -> None:
        self._state = Prefix(token, self._state.left - 1)

    def get_state(self) -> Prefix:
        return self._state

    def set_state(self, state: Prefix) -> None:
        self._state = state

    def best_remaining(self, states: Sequence[Prefix]) -> list[float]:
        return [self._extremes[1](state.last, state.left) for state in states]

    def worst_remaining(self, states: Sequence[Prefix]) -> list[float]:
        return [-self._extremes[-1](state.last, state.left) for state in states]

    def state_key(self, states: Sequence[Prefix]) -> list[Hashable]:
        return [state.last for state in states]


class OnDemandTable(Table):
    """A `Table` on demand: called last, and only for candidates."""

    on_demand = True

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        if candidates is None:
            return super().predict_next()
        scores = self.table[self._state.last, list(candidates)]
        return Scores.sparse(tuple(candidates), scores.tolist(), default=0.0)


class BatchTable(BatchPredictor):
    """A `Table` in the batch form, with attention that depends on the last token."""

    def __init__(self, table: npt.ArrayLike) -> None:
        self._simple = Table(table)

    def initialize_batch(self, sources: Sequence[Source]) -> list[State]:
        return [(Prefix(BOS, _left(source)), len(source.tokens)) for source in sources]

    def predict_batch(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        return Scores.dense(self._simple.table[[prefix.last for prefix, _ in states]])

    def consume_batch(self, states: Sequence[State], tokens: Sequence[int]) -> list[State]:
        return [
            (Prefix(token, prefix.left - 1), length) for (prefix, length), token in zip(states, tokens, strict=True)
        ]

    def attention(self, states: Sequence[State]) -> list[Floats]:
        rows = [np.exp(np.sin((prefix.last + 1.0) * np.arange(1, length + 1))) for prefix, length in states]
        return [row / row.sum() for row in rows]

    def best_remaining(self, states: Sequence[State]) -> list[float]:
        return self._simple.best_remaining([prefix for prefix, _ in states])

    def worst_remaining(self, states: Sequence[State]) -> list[float]:
        return self._simple.worst_remaining([prefix for prefix, _ in states])

    def state_key(self, states: Sequence[State]) -> list[Hashable]:
        return self._simple.state_key([prefix for prefix, _ in states])

    def state_label(self, states: Sequence[State]) -> list[str | None]:
        return [f"after {prefix.last}" for prefix, _ in states]


class Lattice(Predictor):
    """A deterministic acyclic automaton, with sparse restricting rows.

    ``arcs``: for each state its tokens, each with its score and the next state. The next state after ``</s>`` is not
    used.
    """

    def __init__(self, arcs: Mapping[int, Mapping[int, tuple[float, int]]], start: int = 0) -> None:
        """Raises ValueError for arcs with a cycle."""
        successors = {state: [to for token, (_, to) in out.items() if token != EOS] for state, out in arcs.items()}
        try:
            TopologicalSorter(successors).prepare()
        except CycleError as error:
            raise ValueError(f"the arcs of a Lattice must have no cycle; these have {error.args[1][::-1]}") from None
        self._arcs = arcs
        self._start = start
        self._state = start
        self._best = cache(partial(self._remaining, 1))
        self._worst = cache(partial(self._remaining, -1))

    def initialize(self, source: Source) -> None:
        self._state = self._start

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        out = self._arcs.get(self._state, {})
        return Scores.sparse(tuple(out), [score for score, _ in out.values()])

    def consume(self, token: int) -> None:
        self._state = self._arcs[self._state][token][1]

    def get_state(self) -> int:
        return self._state

    def set_state(self, state: int) -> None:
        self._state = state

    def best_remaining(self, states: Sequence[int]) -> list[float]:
        return [self._best(state) for state in states]

    def worst_remaining(self, states: Sequence[int]) -> list[float]:
        return [-self._worst(state) for state in states]

    def state_key(self, states: Sequence[int]) -> list[Hashable]:
        return list(states)

    def state_label(self, states: Sequence[int]) -> list[str | None]:
        return list(map(str, states))

    def _remaining(self, sign: int, state: int) -> float:
        """The highest sum of sign x score over all paths from ``state`` to the end; -inf if there is none."""
        again = self._best if sign == 1 else self._worst
        return max(
            (
                sign * score + (0.0 if token == EOS else again(target))
                for token, (score, target) in self._arcs.get(state, {}).items()
            ),
            default=FORBIDDEN,
        )


class Bonus(Predictor):
    """The same scores after every prefix, in a sparse row: open, or restricting if the default is -inf."""

    def __init__(self, scores: Mapping[int, float], default: float = 0.0) -> None:
        self._scores = Scores.sparse(tuple(scores), tuple(scores.values()), default)
        every = [*scores.values(), default]
        self._highest = max(0.0, *every)
        self._lowest = min([0.0, *(score for score in every if score != FORBIDDEN)])
        self._left = math.inf

    def initialize(self, source: Source) -> None:
        self._left = _left(source)

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        return self._scores

    def consume(self, token: int) -> None:
        self._left -= 1

    def get_state(self) -> float:
        return self._left

    def set_state(self, state: float) -> None:
        self._left = state

    def best_remaining(self, states: Sequence[float]) -> list[float]:
        return [self._highest * (left + 1) if self._highest else 0.0 for left in states]

    def worst_remaining(self, states: Sequence[float]) -> list[float]:
        return [self._lowest * (left + 1) if self._lowest else 0.0 for left in states]

    def state_key(self, states: Sequence[float]) -> list[Hashable]:
        return [None] * len(states)


class Forced(Predictor):
    """Allows only one given hypothesis, with score 0, so that the other predictors score this hypothesis."""

    def __init__(self, tokens: Sequence[int]) -> None:
        """``tokens``: the hypothesis without ``</s>``."""
        self._tokens = (*tokens, EOS)
        self._position = 0

    def initialize(self, source: Source) -> None:
        self._position = 0

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        return Scores.sparse((self._tokens[self._position],), (0.0,))

    def consume(self, token: int) -> None:
        self._position += 1

    def get_state(self) -> int:
        return self._position

    def set_state(self, state: int) -> None:
        self._position = state


class Sealed:
    """A state that can only be stored and passed back; any other use raises AssertionError."""

    __slots__ = ("inner",)

    def __init__(self, inner: State) -> None:
        self.inner = inner

    def _refuse(self, *_: object) -> Any:
        raise AssertionError("code must not inspect a state: not compare, hash, order, iterate or test it for truth")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __len__ = __iter__ = __contains__ = _refuse
    __hash__ = _refuse


@final
class PassThrough(BatchPredictor):
    """The simplest wrapper: it returns what its inner predictor returns, and its states are `Sealed`.

    `PassThrough(lift(Mine()))` shows whether code that uses a `Mine` leaves the states of predictors alone.
    """

    def __init__(self, inner: BatchPredictor) -> None:
        self.inner = inner
        # The traits are those of the inner predictor.
        self.on_demand = inner.on_demand
        self.independent_rows = inner.independent_rows
        self.max_score = inner.max_score

    def __getattr__(self, name: str) -> Any:
        method = ability(self.__dict__.get("inner"), name) if name in (*ABILITIES, "release") else None
        if method is None:
            raise AttributeError(name)
        return lambda states: method([state.inner for state in states])

    def initialize_batch(self, sources: Sequence[Source]) -> list[State]:
        return [Sealed(state) for state in self.inner.initialize_batch(sources)]

    def predict_batch(self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        return self.inner.predict_batch([state.inner for state in states], candidates)

    def consume_batch(self, states: Sequence[State], tokens: Sequence[int]) -> list[State]:
        return [Sealed(state) for state in self.inner.consume_batch([state.inner for state in states], tokens)]


def _left(source: Source) -> float:
    return math.inf if source.max_length is None else source.max_length


def _extremes(table: Floats, sign: int) -> Callable[[int, float], float]:
    """A function (last token, tokens left) -> the highest sum of sign x score of a completion; -inf without one."""
    values = np.where(table == FORBIDDEN, FORBIDDEN, sign * table)
    inner = np.delete(values, EOS, axis=1)
    followers = np.delete(np.arange(len(values)), EOS)

    @cache
    def best(left: int) -> Floats:  # [V]: one value per last token
        if left == 0:
            return np.asarray(values[:, EOS])
        longer: Floats = (inner + best(left - 1)[followers]).max(axis=1)
        return np.maximum(values[:, EOS], longer)

    unlimited = 0.0 if values.max() <= 0.0 else math.inf
    return lambda last, left: unlimited if math.isinf(left) else float(best(max(int(left), 0))[last])
