"""No repeated n-grams: a hypothesis has each n-gram of one order at most once (Paulus et al. 2018, section 2.5).

Score of token w: forbidden if the last n - 1 tokens and w are an n-gram that the prefix already has, otherwise 0.
``</s>`` is never forbidden, and the initial ``<s>`` is part of no n-gram. With ``prompt`` the source tokens count as
the beginning of the prefix. This is ``no_repeat_ngram_size`` of ``generate()`` in transformers. There the prompt of a
causal model always counts, and so do the start token of a decoder and a forced first token, which matters only if the
model can generate them.

State: the n-grams so far, and the last n - 1 tokens. Cost: O(T) per row and per token, after T tokens. Relaxation:
the constant 0; what is forbidden depends on the whole prefix, so it has no automaton that is small.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, NamedTuple

from pydantic import Field

import sgdec
from sgdec import BatchPredictor, Context, Source
from sgdec.protocol import FORBIDDEN, SparseRow
from sgdec_predictors.tokens.forbidding import Forbidding


class _Prefix(NamedTuple):
    last: tuple[int, ...]
    """The last n - 1 tokens; fewer at the beginning."""
    seen: frozenset[tuple[int, ...]]
    """All n-grams."""


class NoRepeat(Forbidding[_Prefix]):
    """Forbids tokens that would repeat an n-gram.

    >>> predictor = NoRepeat(order=2)
    >>> states = predictor.initialize_batch([Source(id=1, tokens=())])
    >>> for token in (7, 4, 7):
    ...     states = predictor.consume_batch(states, [token])
    >>> predictor.predict_batch(states).rows
    [SparseRow({4: -inf}, default=0.0)]
    """

    def __init__(
        self,
        order: Annotated[int, Field(ge=1, description="n: no n-gram of this order occurs twice; 1 = no token does")],
        prompt: Annotated[
            bool,
            Field(description="true: the source tokens count as the beginning of the hypothesis (one vocabulary)"),
        ] = False,
        context: Context | None = None,
    ) -> None:
        self._vocab_size = math.inf if context is None or context.vocab_size is None else context.vocab_size
        self._order = order
        self._prompt = prompt

    def initialize_batch(self, sources: Sequence[Source]) -> list[_Prefix]:
        return [self._read(source.tokens if self._prompt else ()) for source in sources]

    def _read(self, tokens: Sequence[int]) -> _Prefix:
        n, end = self._order, len(tokens)
        ngrams = (tuple(tokens[i : i + n]) for i in range(end - n + 1))
        possible = frozenset(ngram for ngram in ngrams if ngram[-1] < self._vocab_size)
        return _Prefix(tuple(tokens[max(0, end - n + 1) :]), possible)

    def row(self, state: _Prefix) -> SparseRow:
        banned = sorted(ngram[-1] for ngram in state.seen if ngram[:-1] == state.last)
        return SparseRow(banned, [FORBIDDEN] * len(banned), default=0.0)

    def after(self, state: _Prefix, token: int) -> _Prefix:
        latest = (*state.last, token)
        if len(latest) < self._order:
            return _Prefix(latest, state.seen)
        return _Prefix(latest[1:], state.seen | {latest})


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[BatchPredictor]]:
    return {"norepeat": NoRepeat}
