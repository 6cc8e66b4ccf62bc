"""Wrapper: the inner predictor has additional tokens, such as the tags of a syntax model.

The wrapper skips the given ``tokens`` and all above ``max_id``. Score of token w: that of the best way to it,

    max over s = s_1 ... s_m, all skipped, m <= max_skips:   score(s_1) + ... + score(s_m) + score(w after s)

and `consume` moves the inner predictor along that way (among equal ways the shortest, then the first). So a total is
the inner total of one inner hypothesis, from which the skipped tokens are removed. With ``size`` 0 the maximum is
over all such s; otherwise over those that a beam search over s of this size finds, which keeps the ``size`` best of
each length. Each prefix follows only the best way to it.

State: the inner state, and the ways from it, computed on first use. Cost: 1 + m x ``size`` inner rows per prefix,
where m is ``max_skips``, or fewer if no remaining way can beat those found. Relaxation: none, because inner scores
decide which tokens are skipped.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
from pydantic import Field

import sgdec
from sgdec import BatchPredictor, Context, Scores, Source, UsageError
from sgdec.arrays import namespace
from sgdec.context import Vocabularies
from sgdec.protocol import FORBIDDEN, Candidates, State
from sgdec.topk import top_tokens
from sgdec.wrapping import Wrapper
from sgdec_predictors.tokens.sets import TokenSet


class _Prefix:
    """An inner state with the ways from it, which are computed once."""

    __slots__ = ("inner", "ways")

    def __init__(self, inner: State) -> None:
        self.inner = inner
        self.ways: _Ways | None = None


class SkipVocab(Wrapper):
    """The score of the best way to each token through skipped ones.

    >>> from sgdec.lifting import lift
    >>> from sgdec.testing import Lattice
    >>> inner = Lattice({0: {9: (-1.0, 1), 7: (-3.0, 2)}, 1: {7: (-0.5, 2)}, 2: {2: (0.0, 3)}})
    >>> skipping = SkipVocab(lift(inner), max_id=8)
    >>> skipping.predict_batch(skipping.initialize_batch([Source(1, (3,))])).rows
    [SparseRow({7: -1.5}, default=-inf)]
    """

    # No attention: one outer token is several inner tokens.
    forwards: ClassVar[tuple[str, ...]] = ("best_remaining", "worst_remaining", "state_key", "state_label")

    def __init__(
        self,
        inner: BatchPredictor,
        tokens: Annotated[str, Field(description="tokens to skip: ids, and ranges >n and <n, such as '4,17'")] = "",
        max_id: Annotated[
            int | None, Field(ge=2, description="the last token of the run's vocabulary; all above are skipped")
        ] = None,
        max_skips: Annotated[int, Field(ge=1, description="limit on consecutive skipped tokens")] = 4,
        size: Annotated[int, Field(ge=0, description="number of ways followed at each number of skips; 0 = all")] = 4,
        context: Context | None = None,
    ) -> None:
        """Raises UsageError if nothing is skipped, or ``tokens`` is malformed."""
        super().__init__(inner)
        self.on_demand = False  # it needs all tokens anyway
        self.max_score = max(inner.max_score, (max_skips + 1) * inner.max_score)  # a token is scored with its skips
        given = TokenSet.parse(tokens, "skipvocab")
        if max_id is None:
            given.require_within(context.vocab_size if context else None, "skipvocab")
        high = min((bound for bound in (given.high, max_id) if bound is not None), default=None)
        self._skipped = TokenSet(set(given.listed), given.low, high)
        if not self._skipped:
            raise UsageError("skipvocab: nothing is skipped. Give --skipvocab.tokens, --skipvocab.max_id, or both.")
        self._width = None if max_id is None else max_id + 1
        self._max_skips = max_skips
        self._size = size

    @classmethod
    def read_vocabularies(cls, inner: Vocabularies, max_id: int | None = None, **options: Any) -> Vocabularies:
        """The inner vocabularies, without a target vocabulary that continues above ``max_id``."""
        return inner if max_id is None else Vocabularies(inner.source, None)

    @classmethod
    def inner_context(cls, context: Context, max_id: int | None = None, **options: Any) -> Context:
        """The inner context: its vocabulary may continue above ``max_id``."""
        if max_id is None:
            return context
        return replace(context, vocabularies=Vocabularies(context.vocabularies.source, None), vocab_size=None)

    def inner_states(self, states: Sequence[_Prefix]) -> Sequence[State]:
        return [state.inner for state in states]

    def initialize_batch(self, sources: Sequence[Source]) -> list[_Prefix]:
        """The inner predictor has no length limit, because the limit counts outer tokens."""
        unlimited = [replace(source, max_length=None) for source in sources]
        return [_Prefix(state) for state in self.inner.initialize_batch(unlimited)]

    def predict_batch(
        self, states: Sequence[_Prefix], candidates: Sequence[Candidates | None] | None = None
    ) -> Scores:
        ways = self._ways(states)
        rows = [each.best for each in ways if isinstance(each, _DenseWays)]
        if len(rows) == len(ways):
            return Scores(values=namespace(rows[0]).stack(rows))
        return Scores.stack(each.scores() for each in ways)

    def consume_batch(self, states: Sequence[_Prefix], tokens: Sequence[int]) -> list[_Prefix]:
        before = [ways.state_before(token) for ways, token in zip(self._ways(states), tokens, strict=True)]
        return [_Prefix(state) for state in self.inner.consume_batch(before, tokens)]

    def _ways(self, states: Sequence[_Prefix]) -> list[_Ways]:
        new = [state for state in dict.fromkeys(states) if state.ways is None]
        if new:
            for state, ways in zip(new, self._search([state.inner for state in new]), strict=True):
                state.ways = ways
        return [state.ways for state in states if state.ways is not None]

    def _search(self, inner: Sequence[State]) -> list[_Ways]:
        """The ways from all prefixes in one batch, in ascending order of skips."""
        ends = [_End(place, 0.0, state) for place, state in enumerate(inner)]
        scores = self.inner.predict_batch(inner)
        kind = _DenseWays if scores.row(0) is None else _SparseWays
        found: list[_Ways] = [kind(self._skipped, self._width, self._size) for _ in inner]
        for skips in range(self._max_skips + 1):
            steps: list[list[_Step]] = [[] for _ in inner]
            for i, end in enumerate(ends):
                following = found[end.place].offer(end, scores, i)
                steps[end.place] += [_Step(end.score + score, i, token) for token, score in following]
            chosen = [step for ways, each in zip(found, steps, strict=True) for step in self._worthwhile(each, ways)]
            if skips == self._max_skips or not chosen:
                break
            before = [ends[step.end] for step in chosen]
            after = self.inner.consume_batch([end.state for end in before], [step.token for step in chosen])
            ends = [
                _End(end.place, step.score, state) for end, step, state in zip(before, chosen, after, strict=True)
            ]
            scores = self.inner.predict_batch(after)
        return found

    def _worthwhile(self, steps: list[_Step], ways: _Ways) -> list[_Step]:
        """The steps from one prefix that are taken, best first."""
        if steps and self.inner.max_score <= 0.0:
            worst = ways.worst()
            steps = [step for step in steps if step.score > worst]
        steps.sort(key=lambda step: (-step.score, step.end, step.token))
        return steps[: self._size or None]


class _End(NamedTuple):
    """The end of one way through skipped tokens."""

    place: int
    """The row of the prefix it began at."""
    score: float
    state: State


class _Step(NamedTuple):
    """One more skipped token after the end of a way."""

    score: float
    end: int
    token: int


class _Ways(ABC):
    """The best offered ways from one prefix to each outer token."""

    def __init__(self, skipped: TokenSet, width: int | None, size: int) -> None:
        self._skipped = skipped
        self._width = width
        self._size = size
        self._states: list[State] = []
        """The ends of the ways, in the order they were offered."""

    def offer(self, end: _End, scores: Scores, i: int) -> Sequence[tuple[int, float]]:
        """Offers the continuations of ``end`` in row i; returns that row's best skipped tokens with their scores."""
        self._states.append(end.state)
        return self._take(len(self._states) - 1, end.score, scores, i)

    @abstractmethod
    def _take(self, way: int, before: float, scores: Scores, i: int) -> Sequence[tuple[int, float]]:
        """The same for way number ``way``, which scores ``before``."""

    @abstractmethod
    def scores(self) -> Scores:
        """One row."""

    @abstractmethod
    def worst(self) -> float:
        """The lowest score of an outer token: a way must score more to be useful."""

    @abstractmethod
    def way_to(self, token: int) -> int:
        """The number of the best way to an outer token."""

    def state_before(self, token: int) -> State:
        return self._states[self.way_to(token)]


class _SparseWays(_Ways):
    """For sparse rows. Skipped tokens above the last outer one are followed only if a row lists them."""

    def __init__(self, skipped: TokenSet, width: int | None, size: int) -> None:
        super().__init__(skipped, width, size)
        self._best: dict[int, tuple[float, int]] = {}
        """The score of each token, and the number of its way."""
        self._default = FORBIDDEN, 0
        """The same for all other tokens."""

    def _take(self, way: int, before: float, scores: Scores, i: int) -> Sequence[tuple[int, float]]:
        row = scores.as_list(i)
        kept = {token: score for token, score in row.lookup.items() if token not in self._skipped}
        for token in {**self._best, **kept}:
            new = before + kept.get(token, row.default), way
            self._best[token] = _better(self._best.get(token, self._default), new)
        self._default = _better(self._default, (before + row.default, way))
        skipped = {token for token in row.lookup if token in self._skipped}.union(self._skipped.members)
        following = [(token, score) for token in skipped if (score := row.get(token)) != FORBIDDEN]
        following.sort(key=lambda each: (-each[1], each[0]))
        return following[: self._size or None]

    def scores(self) -> Scores:
        """Forbids skipped tokens explicitly if the row is open."""
        best, (default, _) = {token: score for token, (score, _) in self._best.items()}, self._default
        if default != FORBIDDEN and self._skipped.finite:
            best |= dict.fromkeys(self._skipped.members, FORBIDDEN)
        elif default != FORBIDDEN:
            best, default = {token: best.get(token, default) for token in self._skipped.others}, FORBIDDEN
        return Scores.sparse(list(best), list(best.values()), default)

    def worst(self) -> float:
        return min([self._default[0], *(score for score, _ in self._best.values())])

    def way_to(self, token: int) -> int:
        return self._best.get(token, self._default)[1]


class _DenseWays(_Ways):
    """For dense rows; arrays stay on their device."""

    best: Any = None
    """``[V]``: the score of each token, -inf of skipped ones."""
    _way: Any = None
    """``[V]``: the number of its way."""

    def _take(self, way: int, before: float, scores: Scores, i: int) -> Sequence[tuple[int, float]]:
        row: Any = scores.as_array(i, 0 if self.best is None else len(self.best))
        xp, columns = namespace(row), self._skipped.places(len(row))
        skipped = row[columns]
        kept = row[: self._width] + before
        kept[columns[columns < len(kept)]] = FORBIDDEN
        if self.best is None:
            self.best, self._way = kept, xp.zeros_like(kept, dtype=xp.int32)
        else:
            stays = (kept <= self.best) | xp.isnan(self.best)
            self.best = xp.where(stays, self.best, kept)
            self._way = xp.where(stays, self._way, way)
        places = top_tokens(skipped[None], self._size or len(columns))[0] if len(columns) else []
        following = zip(columns[places].tolist(), skipped[places].tolist(), strict=True)
        return [(token, score) for token, score in following if score != FORBIDDEN]

    def scores(self) -> Scores:
        return Scores.dense(self.best)

    def worst(self) -> float:
        skipped = self._skipped.places(len(self.best))
        if not len(skipped):
            return float(self.best.min())
        allowed = np.delete(np.arange(len(self.best)), skipped)
        return float(self.best[allowed].min())

    def way_to(self, token: int) -> int:
        return int(self._way[token])


def _better(old: tuple[float, int], new: tuple[float, int]) -> tuple[float, int]:
    """The way that scores more, the old one if equal; a NaN wins, so that it is detected."""
    return old if new[0] <= old[0] or math.isnan(old[0]) else new


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[BatchPredictor]]:
    return {"skipvocab": SkipVocab}
