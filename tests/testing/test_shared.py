"""The promise: all tests of a contract share one search of its spaces, unless an instance may differ from others."""

from __future__ import annotations

import pytest
from sgdec_decoders.beam import BeamDecoder

from sgdec.decoder import Decoder
from sgdec.protocol import Result
from sgdec.search.space import SearchSpace
from sgdec.testing import DecoderContract, promises
from sgdec.testing.shared import Shared


class Sized(DecoderContract):
    size = 1
    spaces = [tiny for tiny in DecoderContract.spaces if tiny.name in ("dense", "lattice alone")]  # noqa: RUF012 - as the kit has it

    def make(self) -> Decoder:
        return BeamDecoder(self.size, stop="full")

    @property
    def lengths(self) -> list[int]:
        """The lengths of the lists of hypotheses, which depend on the size of the beam."""
        return [len(result.hypotheses) for _, _, result in self._results]


def test_instances_of_a_class_share_one_value_and_a_subclass_has_its_own() -> None:
    class Wider(Sized):
        size = 3

    first, second = Sized(), Sized()
    assert first._results is second._results
    assert first.lengths == [1, 1, 1, 1]
    assert Wider().lengths == [1, 3, 1, 3]
    assert Sized()._results is first._results


def test_instances_share_a_value_if_their_own_attributes_are_equal() -> None:
    """Such as those that a parametrised fixture sets before each test."""
    shared = Sized()._results
    one, same, other = Sized(), Sized(), Sized()
    one.size, same.size, other.size = 3, 3, 2
    assert one.lengths == [1, 3, 1, 3]
    assert one._results is same._results is not shared
    assert other.lengths == [1, 2, 1, 2]
    assert Sized()._results is shared


def test_an_instance_with_an_attribute_that_is_no_text_or_number_has_its_own_value() -> None:
    one, other = Sized(), Sized()
    one.spaces, other.spaces = Sized.spaces[:1], Sized.spaces[:1]
    assert one.lengths == [1, 1]
    assert one._results is one._results is not other._results


def test_a_failure_is_not_shared() -> None:
    attempts = []

    class Fails:
        @Shared
        def value(self) -> int:
            attempts.append(1)
            if len(attempts) < 3:
                raise OSError("no such file")
            return 7

    for _ in range(2):
        with pytest.raises(OSError, match="no such file"):
            _ = Fails().value
    assert Fails().value == Fails().value == 7
    assert len(attempts) == 3


def test_promises_search_each_space_a_few_times_in_all() -> None:
    """One search is shared; only tests of repeated, interleaved and batched searches search again."""
    searches: list[SearchSpace] = []

    class Counts(Sized):
        def make(self) -> Decoder:
            decoder = super().make()
            decode = decoder.decode

            def counted(space: SearchSpace) -> Result:
                searches.append(space)
                return decode(space)

            decoder.decode = counted  # type: ignore[method-assign]
            return decoder

    for promise in promises(Counts()):
        promise.check()
    cases = len(Counts.spaces) * len(Counts.nbests)
    assert cases < len(searches) <= 8 * cases
