"""The protocol of decoders: search strategies over a `SearchSpace`, which know no predictor.

A decoder returns a `sgdec.protocol.Result`. Predictors are in `sgdec.protocol`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, TypeAlias

from sgdec.protocol import Result
from sgdec.ranking import Ranking
from sgdec.search.space import SearchSpace

__all__ = ["BatchDecoder", "Decoder", "Feed"]


class Decoder(ABC):
    """A search strategy: plain synchronous code over a `SearchSpace`, one sentence at a time."""

    exact: ClassVar[bool] = False
    """Whether default options guarantee the true n-best list of the space (checked by the conformance kit)."""
    ranking: Ranking = Ranking()
    """The ranking of finished hypotheses; the default ranks by the total."""
    ranks_by: str = "ranking"
    """The name of the criterion in `Hypothesis.rank_score`: the score under `ranking`, or a criterion of its own.

    A minimum Bayes risk decoder would set ``expected utility`` here, and each score with
    ``replace(space.finish(node), rank_score=...)``: a finite number, higher is better. Total and ledger stay
    unchanged. If the criterion has no number for each hypothesis, as with diversity, rank scores stay unchanged too,
    and lists have the decoder's order. Such a decoder must not declare itself `exact` or return a proof or a gap,
    which refer to `ranking`.
    """

    def caveat(self, nbest: int, never_rises: bool) -> str | None:
        """A warning that names what this search can miss with its options, as a sentence; None = no warning.

        ``sgdec decode`` prints it once. ``never_rises``: whether predictors declare that totals never rise.
        """
        return None

    def way_out(self, limited: bool, bounded: bool) -> str | None:
        """The end of the sentence of `caveat`: options with which nothing is missed in this run; None = none known.

        ``limited``: whether every sentence has a length limit. ``bounded``: whether every predictor declares the
        bound that a proof needs.
        """
        return None

    def in_batches(self, batch_size: int, automata: bool) -> BatchDecoder | None:
        """The same search over many sentences at once, if that is faster.

        None = `decode` is called for each sentence, and the framework batches what the searches ask for. Results must
        not differ. ``batch_size``: the number of sentences in flight, above 1. ``automata``: whether all predictors
        are automata with `ArcsAhead`, so that `sgdec.rows` needs no call for each hypothesis.
        """
        return None

    @abstractmethod
    def decode(self, space: SearchSpace) -> Result:
        """Search one space. The list of hypotheses is empty if none satisfies all predictors."""


Feed: TypeAlias = "Callable[[int], Sequence[SearchSpace]]"
"""Returns at most this many new spaces."""


class BatchDecoder(Decoder):
    """A search strategy over whole tensors, for many spaces of one constellation at once.

    It calls the predictors itself, with `sgdec.rows` or directly (``space.predictors``, ``space.weights``).
    """

    @abstractmethod
    def decode_batch(self, spaces: Sequence[SearchSpace]) -> list[Result]:
        """One result per space. If it raises, the framework calls it again for each space alone.

        It must report its own calls of predictors to `SearchSpace.count_expansions`.
        """

    def decode_stream(self, more: Feed, in_flight: int) -> Iterator[tuple[SearchSpace, Result]]:
        """Decode the spaces that ``more`` gives, at most ``in_flight`` of them at a time; yield each with its result.

        ``more(n)`` returns at most n new spaces; none while all places are free = there are no more. By default the
        spaces are decoded batch after batch. A decoder that begins new sentences while others are in flight overrides
        this, and yields each result as soon as it is there.
        """
        while spaces := more(in_flight):
            yield from list(zip(spaces, self.decode_batch(spaces), strict=True))

    def decode(self, space: SearchSpace) -> Result:
        return self.decode_batch([space])[0]
