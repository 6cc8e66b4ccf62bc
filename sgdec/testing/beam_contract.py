"""What a beam search promises: it expands no more than its width, and misses nothing where nothing is cut."""

from __future__ import annotations

from abc import abstractmethod

from sgdec.protocol import Decoder
from sgdec.search.space import SearchSpace
from sgdec.testing.random_searches import RandomSpacesContract


class BeamContract(RandomSpacesContract):
    """`DecoderContract` for a decoder that keeps the ``size`` best prefixes of each length.

    What a wide beam finds depends on when it ends. One that ends when all of its hypotheses are finished finds the
    n-best. One that ends with the first may do so only where no score is positive and no weight negative, and is
    asked for one hypothesis: ``highest = 0.0``, ``weights = (1.0, 0.5, 0.0)``, ``nbests = (1,)``.

    >>> from sgdec_decoders.beam import BeamDecoder
    >>> class TestBeam(BeamContract):
    ...     def make_beam(self, size):
    ...         return BeamDecoder(size, stop="full")
    >>> TestBeam().test_a_beam_of_one_takes_the_best_token_each_time()
    """

    size: int = 4
    """The beam in which the promises of `DecoderContract` are tested."""
    finished_keep_their_slots: bool = True
    """Whether a finished hypothesis stays in the beam. Only then is a beam of one greedy search."""
    wide: int = 1000
    """A beam from which nothing falls in such small spaces."""

    @abstractmethod
    def make_beam(self, size: int) -> Decoder:
        """A new decoder, each time, with a beam of this size."""

    def make(self) -> Decoder:
        return self.make_beam(self.size)

    def most_of_one_length(self, size: int) -> int:
        """How many prefixes of one length a beam of this size expands at most."""
        return size

    def test_a_beam_wide_enough_finds_the_true_nbest(self) -> None:
        for at, tiny, nbest in self._drawn():
            decoder = self.make_beam(self.wide)
            result, _ = self._search(decoder, tiny, nbest)
            self._require_the_nbest(at, tiny, decoder, nbest, result)

    def test_a_beam_of_one_takes_the_best_token_each_time(self) -> None:
        """Of equal ones the lower; where that comes to a dead end, nothing is found."""
        if not self.finished_keep_their_slots:
            return
        for at, tiny, _ in self._drawn():
            result, _ = self._search(self.make_beam(1), tiny, 1)
            expected, found = _greedy(tiny.open()), [hypothesis.tokens for hypothesis in result.hypotheses]
            assert found == expected, f"a beam of one must be greedy: {expected}, not {found} {at}"

    def test_a_beam_expands_no_more_prefixes_of_one_length_than_it_is_wide(self) -> None:
        for at, tiny, nbest in self._drawn():
            for size in (1, 2, 5):
                _, space = self._search(self.make_beam(size), tiny, nbest)
                most, limit = self.most_of_one_length(size), tiny.source.max_length
                together = space.expansions if limit is not None else 0  # also what it asks predictors by itself
                assert max(space.expanded.values(), default=0) <= most and together <= most * ((limit or 0) + 1), (
                    f"a beam of {size} must expand at most {most} prefixes of each length, not "
                    f"{dict(space.expanded)}, {space.expansions} in all {at}"
                )


def _greedy(space: SearchSpace) -> list[tuple[int, ...]]:
    node = space.root
    while not node.finished:
        (children,) = space.expand([node], limit=1)
        if not children:
            return []
        (node,) = children
    return [node.tokens[:-1]]
