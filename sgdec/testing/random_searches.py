"""Tests of decoders in random spaces: the common part of `ExactDecoderContract` and `BeamContract`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from sgdec.protocol import Decoder, Result, Source
from sgdec.search.scheduler import Scheduler
from sgdec.testing.decoder_contract import DecoderContract
from sgdec.testing.enumeration import Path, enumerate_space
from sgdec.testing.expectations import require_the_best, require_these
from sgdec.testing.limited import LimitedSpace
from sgdec.testing.random_spaces import KINDS, WEIGHTS, random_space
from sgdec.testing.tiny_spaces import TinySpace


class RandomSpacesContract(DecoderContract):
    """`DecoderContract` with further promises, tested in random spaces. Half of the spaces have many ties.

    The random seed is fixed. If a decoder's guarantee has conditions, such as scores that are never positive,
    restrict ``kinds``, ``weights`` and ``highest`` accordingly.
    """

    random_spaces: int = 40
    """The number of random spaces."""
    kinds: Sequence[str] = KINDS
    """The kinds of predictors in the spaces (`sgdec.testing.random_spaces`)."""
    weights: Sequence[float] = WEIGHTS
    """The weights to draw from."""
    highest: float = 2.0
    """The highest possible score of a token."""

    def test_sentences_in_flight_together_are_found_as_alone(self) -> None:
        """Three sentences with different lengths and length limits, decoded by the scheduler."""
        for at, tiny, nbest in self._drawn():
            limit = tiny.source.max_length
            sources = [
                Source(1, (3, 4, 3), max_length=limit),
                Source(2, (3, 4), max_length=None if limit is None else limit + 1),
                Source(3, (3, 4, 3, 4), max_length=None if limit is None else 0),
            ]
            alone, together = (
                list(Scheduler(tiny.constellation(), self.make(), nbest=nbest, batch_size=size).run(sources))
                for size in (1, 3)
            )
            for one, other in zip(alone, together, strict=True):
                if isinstance(other.error, AssertionError):
                    raise other.error
                first, second = ([h.tokens for h in outcome.result.hypotheses] for outcome in (one, other))
                assert first == second, (
                    f"a search must not depend on which sentences are in flight: sentence {one.source.id} has "
                    f"{first} alone, but {second} with the others {at}"
                )

    def _drawn(self) -> Iterator[tuple[str, TinySpace, int]]:
        """For each random space: a description for messages, the space, and the list length."""
        rng = np.random.default_rng(20170804)
        kinds = ("batch",) if self.make().ranking.uses_coverage else self.kinds  # these have attention
        for number in range(self.random_spaces):
            tiny = random_space(rng, kinds=kinds, weights=self.weights, highest=self.highest)
            nbest = self.nbests[number % len(self.nbests)]
            at = f"(space {number}, {tiny.name}, at most {tiny.source.max_length} tokens, nbest {nbest})"
            yield at, tiny, nbest

    def _search(self, decoder: Decoder, tiny: TinySpace, nbest: int) -> tuple[Result, LimitedSpace]:
        space = tiny.open(ranking=decoder.ranking, nbest=nbest, most=self.most_expansions)
        return decoder.decode(space), space

    def _paths(self, tiny: TinySpace, decoder: Decoder) -> list[Path]:
        return enumerate_space(tiny.constellation(), tiny.source, ranking=decoder.ranking)

    def _require_the_nbest(self, at: str, tiny: TinySpace, decoder: Decoder, nbest: int, result: Result) -> None:
        paths = self._paths(tiny, decoder)
        require_the_best(result, paths[:nbest], decoder.ranking, self.tolerance, at)
        require_these(result, paths, self.tolerance, at)
