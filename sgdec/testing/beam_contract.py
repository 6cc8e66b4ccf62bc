"""The promises of beam search: it expands at most its width, and finds the true n-best if it prunes nothing."""

from __future__ import annotations

from abc import abstractmethod

from sgdec.decoder import Decoder
from sgdec.search.space import SearchSpace
from sgdec.testing.random_searches import RandomSpacesContract


class BeamContract(RandomSpacesContract):
    """`DecoderContract` for a decoder that keeps the ``size`` best prefixes of each length.

    The result of a wide beam depends on its stopping rule. A beam that stops when all of its hypotheses are finished
    finds the n-best. A beam that stops at the first finished hypothesis finds only the best one, and only if no
    score is positive and no weight negative. Test it with ``highest = 0.0``, ``weights = (1.0, 0.5, 0.0)`` and
    ``nbests = (1,)``.

    >>> from sgdec_decoders.beam import BeamDecoder
    >>> class TestBeam(BeamContract):
    ...     def make_beam(self, size):
    ...         return BeamDecoder(size, stop="full")
    >>> TestBeam().test_a_beam_of_one_takes_the_best_token_each_time()
    """

    size: int = 4
    """The beam size for testing the promises of `DecoderContract`."""
    finished_keep_their_slots: bool = True
    """Whether a finished hypothesis stays in the beam. Only then does a beam of size 1 equal greedy search."""
    wide: int = 1000
    """A beam size that prunes nothing in these small spaces."""

    @abstractmethod
    def make_beam(self, size: int) -> Decoder:
        """Return a new decoder at each call, with a beam of this size."""

    def make(self) -> Decoder:
        return self.make_beam(self.size)

    def most_of_one_length(self, size: int) -> int:
        """The most prefixes of one length that a beam of this size may expand."""
        return size

    def test_a_beam_wide_enough_finds_the_true_nbest(self) -> None:
        for at, tiny, nbest in self._drawn():
            decoder = self.make_beam(self.wide)
            result, _ = self._search(decoder, tiny, nbest)
            self._require_the_nbest(at, tiny, decoder, nbest, result)

    def test_a_beam_of_one_takes_the_best_token_each_time(self) -> None:
        """Ties go to the lower token. If this path is a dead end, nothing is found."""
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
                together = space.expansions if limit is not None else 0  # also counts its own calls of predictors
                assert max(space.expanded.values(), default=0) <= most and together <= most * ((limit or 0) + 1), (
                    f"a beam of {size} must expand at most {most} prefixes of each length, not "
                    f"{dict(space.expanded)}, {space.expansions} in total {at}"
                )


def _greedy(space: SearchSpace) -> list[tuple[int, ...]]:
    node = space.root
    while not node.finished:
        (children,) = space.expand([node], limit=1)
        if not children:
            return []
        (node,) = children
    return [node.tokens[:-1]]
