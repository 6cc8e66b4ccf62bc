"""A predictor against repeated n-grams, and a decoder that looks one token ahead.

`Repeat` scores token w after the prefix y with

    -1 if w completes an n-gram that y already contains, else 0

so that its weight is the price of a repetition (the soft form of the trigram blocking of Paulus et al. 2018, "A
deep reinforced model for abstractive summarization", section 2.5). State: the prefix. Cost: one pass over the
prefix a token.

`Lookahead` is greedy search over pairs: it takes the token whose own best continuation has the highest total.
Guarantee: none, but it does not walk into a dead end that is one token away. Cost: 1 + width expansions a token.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Annotated

from pydantic import Field

import sgdec
from sgdec import Decoder, Node, Predictor, Result, Scores, SearchSpace, Source


class Repeat(Predictor):
    """Minus one for each token that completes an n-gram for the second time.

    >>> predictor = Repeat(order=2)
    >>> for token in [7, 8, 7]:
    ...     predictor.consume(token)
    >>> row = predictor.predict_next().rows[0]     # 7 8 has been, 7 9 has not
    >>> row.get(8), row.get(9)
    (-1.0, 0.0)
    """

    def __init__(
        self,
        order: Annotated[int, Field(ge=1, description="n, the length of the n-grams that should differ")] = 3,
    ) -> None:
        self._order = order
        self._prefix: tuple[int, ...] = ()

    def initialize(self, source: Source) -> None:
        self._prefix = ()

    def predict_next(self, candidates: Sequence[int] | None = None) -> Scores:
        *_, history = self._histories(self._prefix)
        tokens = sorted({token for *before, token in self._ngrams(self._prefix) if tuple(before) == history})
        return Scores.sparse(tokens, [-1.0] * len(tokens), default=0.0)

    def consume(self, token: int) -> None:
        self._prefix = (*self._prefix, token)

    def get_state(self) -> tuple[int, ...]:
        return self._prefix

    def set_state(self, state: tuple[int, ...]) -> None:
        self._prefix = state
