"""The part of a search space that makes the n-best list: its length, its order, and whether its texts are distinct.

Different tokens can decode to one text. A run with distinct texts lists only the best hypothesis of each text. The
lists that `Listing.nbest_of` makes have other hypotheses in the place of repetitions. From lists of other decoders
the scheduler removes repetitions, so these can be shorter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import TypeAlias, TypeVar

from sgdec.protocol import Hypothesis, Result
from sgdec.ranking import Ranking
from sgdec.search.node import Node

Item = TypeVar("Item")
TextOf: TypeAlias = Callable[[Sequence[int]], str]
"""The text of the tokens of an output, without ``</s>``."""


class Listing:
    """See `sgdec.search.space.SearchSpace`."""

    def __init__(self, ranking: Ranking, nbest: int, text_of: TextOf | None) -> None:
        self.ranking = ranking
        self.nbest = nbest
        self.text_of = text_of
        """The text that makes hypotheses equal, from their tokens; None = the list can have a text several times."""

    @contextmanager
    def asking_for(self, nbest: int) -> Iterator[None]:
        """Within this context the space wants ``nbest`` hypotheses: for a decoder that reranks those of another one.

        >>> from sgdec.testing import tiny_spaces
        >>> space = tiny_spaces()[0].open(nbest=1)
        >>> with space.asking_for(5):
        ...     print(space.nbest)
        5
        >>> space.nbest
        1
        """
        before, self.nbest = self.nbest, nbest
        try:
            yield
        finally:
            self.nbest = before

    def rank_score(self, node: Node) -> float:
        """The `rank_score` that `finish` will give to this finished node."""
        return self.ranking.score(node.total, node.family.length, node.coverage)

    def nbest_of(self, finished: Iterable[Node]) -> list[Node]:
        """The n-best list of these finished nodes, with n from the run; equal rank scores keep their order.

        Each text is there once if the run asks for that.
        """
        ranked = sorted(finished, key=self.rank_score, reverse=True)
        if self.text_of is None:
            return ranked[: self.nbest]
        return list(islice(self.distinct(ranked, lambda node: node.tokens[:-1]), self.nbest))

    def distinct(self, ranked: Iterable[Item], tokens_of: Callable[[Item], Sequence[int]]) -> Iterator[Item]:
        """These hypotheses, best first; if the run wants distinct texts, without those whose text an earlier one has.

        ``tokens_of``: the tokens of one of them, without ``</s>``.
        """
        seen: set[str] = set()
        for item in ranked:
            if self.text_of is not None:
                text = self.text_of(tokens_of(item))
                if text in seen:
                    continue
                seen.add(text)
            yield item

    def without_repetitions(self, result: Result) -> Result:
        """A decoder's result, with each text once if the run asks for that.

        A full list that becomes shorter is proven no longer, because other texts could follow.
        """
        if self.text_of is None:
            return result
        kept = list(self.distinct(result.hypotheses, _tokens_of))
        if len(kept) == len(result.hypotheses):
            return result
        proven = result.proven if len(result.hypotheses) < self.nbest else None
        return replace(result, hypotheses=kept, proven=proven)


def _tokens_of(hypothesis: Hypothesis) -> tuple[int, ...]:
    return hypothesis.tokens
