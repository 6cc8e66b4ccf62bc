"""A predictor against repeated n-grams, and a decoder that looks one token ahead.

`Repeat` scores token w after the prefix y with

    -1 if w completes an n-gram that y already contains, else 0

so that its weight is the price of a repetition (the soft form of the trigram blocking of Paulus et al. 2018,
"A deep reinforced model for abstractive summarization", section 2.5). State: the prefix. Cost: one pass over the
prefix per token.

`Lookahead` is greedy search over pairs: it takes the token whose own best continuation has the highest total.
Guarantee: none, but it avoids dead ends that are one token away. Cost: 1 + width expansions per token.
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

    max_score = 0.0  # the best score, if no n-gram is repeated

    def __init__(
        self,
        order: Annotated[int, Field(ge=1, description="n, the length of the n-grams that should differ")] = 3,
    ) -> None:
        self._order = order
        self._prefix: tuple[int, ...] = ()

    def initialize(self, source: Source) -> None:
        self._prefix = ()

    def predict_next(self, candidates: Sequence[int] | None = None) -> Scores:
        n, prefix = self._order, self._prefix
        history = self._history(prefix)
        repeats = {prefix[i + n - 1] for i in range(len(prefix) - n + 1) if prefix[i : i + n - 1] == history}
        return Scores.sparse(sorted(repeats), [-1.0] * len(repeats), default=0.0)

    def consume(self, token: int) -> None:
        self._prefix = (*self._prefix, token)

    def get_state(self) -> tuple[int, ...]:
        return self._prefix

    def set_state(self, state: tuple[int, ...]) -> None:
        self._prefix = state

    def state_key(self, states: Sequence[tuple[int, ...]]) -> list[Hashable]:
        n = self._order
        return [
            (self._history(prefix), frozenset(prefix[i : i + n] for i in range(len(prefix) - n + 1)))
            for prefix in states
        ]

    def _history(self, prefix: tuple[int, ...]) -> tuple[int, ...]:
        """The last n - 1 tokens, with which the next one makes an n-gram."""
        return prefix[max(0, len(prefix) - self._order + 1) :]


class Lookahead(Decoder):
    """Takes the child whose own best child has the highest total; ``</s>`` counts with its own total."""

    def __init__(
        self, width: Annotated[int, Field(ge=1, description="continuations to look beyond at each step")] = 4
    ) -> None:
        self._width = width

    def decode(self, space: SearchSpace) -> Result:
        node = space.root
        while not node.finished:
            (children,) = space.expand([node], limit=self._width)
            ahead = self._look_ahead(space, children)
            if not ahead:
                return Result([])
            _, node = max(ahead, key=lambda pair: pair[0])  # the first of equals
        return Result([space.finish(node)])

    def _look_ahead(self, space: SearchSpace, children: Sequence[Node]) -> list[tuple[float, Node]]:
        """Pairs of the best total that a child leads to, and the child; without dead ends."""
        ahead = [(child.total, child) for child in children if child.finished]
        going_on = [child for child in children if not child.finished]
        for child, best in zip(going_on, space.expand(going_on, limit=1), strict=True):  # one batch
            ahead += [(grandchild.total, child) for grandchild in best]
        return ahead


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[Predictor]]:
    return {"repeat": Repeat}


@sgdec.hookimpl
def sgdec_decoders() -> dict[str, type[Decoder]]:
    return {"lookahead": Lookahead}
