"""Tests of decoders in random spaces: the common part of `ExactDecoderContract` and `BeamContract`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from sgdec.decoder import Decoder
from sgdec.protocol import Result, Source
from sgdec.search.scheduler import Scheduler
from sgdec.testing.decoder_contract import DecoderContract
from sgdec.testing.enumeration import Path
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
        kinds = ("batch",) if self.make().ranking.uses_coverage else self.kinds  # these have attention
        drawn = _spaces(self.random_spaces, tuple(kinds), tuple(self.weights), self.highest)
        for number, tiny in enumerate(drawn):
            nbest = self.nbests[number % len(self.nbests)]
            at = f"(space {number}, {tiny.name}, at most {tiny.source.max_length} tokens, nbest {nbest})"
            yield at, tiny, nbest

    def _search(self, decoder: Decoder, tiny: TinySpace, nbest: int) -> tuple[Result, LimitedSpace]:
        space = tiny.open(ranking=decoder.ranking, nbest=nbest, most=self.most_expansions)
        return decoder.decode(space), space

    def _paths(self, tiny: TinySpace, decoder: Decoder) -> list[Path]:
        return tiny.paths(decoder.ranking)

    def _require_the_nbest(self, at: str, tiny: TinySpace, decoder: Decoder, nbest: int, result: Result) -> None:
        paths = self._paths(tiny, decoder)
        require_the_best(result, paths[:nbest], decoder.ranking, self.tolerance, at)
        require_these(result, paths, self.tolerance, at)


@lru_cache(maxsize=16)
def _spaces(
    number: int, kinds: tuple[str, ...], weights: tuple[float, ...], highest: float
) -> tuple[TinySpace, ...]:
    """Shared by the contracts of all decoders, with what the spaces keep."""
    rng = np.random.default_rng(20170804)
    return tuple(random_space(rng, kinds=kinds, weights=weights, highest=highest) for _ in range(number))
