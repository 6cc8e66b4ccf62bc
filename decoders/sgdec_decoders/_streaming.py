"""Decoders over whole batches that begin sentences while others are in flight."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence

from sgdec import Result, SearchSpace
from sgdec.decoder import BatchDecoder, Feed

MANY = 48
"""With fewer hypotheses in flight, it costs less to walk automata one prefix at a time than with arrays."""
REFILL = 8
"""New sentences begin when at least one place in this many is free: the fixed cost is shared by several of them."""


def enough_for_arrays(hypotheses: int) -> bool:
    """Whether arrays are worth their fixed cost, for automata and this number of hypotheses in flight."""
    return hypotheses >= MANY


class StreamingDecoder(BatchDecoder):
    """A decoder with ``decode_stream``; a batch is a short stream."""

    @abstractmethod
    def decode_stream(self, more: Feed, in_flight: int) -> Iterator[tuple[SearchSpace, Result]]: ...

    def decode_batch(self, spaces: Sequence[SearchSpace]) -> list[Result]:
        """Raises what ``decode_stream`` raises, for all sentences."""
        waiting = list(spaces)

        def more(number: int) -> list[SearchSpace]:
            taken, waiting[:] = waiting[:number], waiting[number:]
            return taken

        found = {id(space): result for space, result in self.decode_stream(more, max(1, len(spaces)))}
        return [found[id(space)] for space in spaces]


def number_to_begin(flying: int, in_flight: int) -> int:
    """The number of sentences to begin now, so that at most ``in_flight`` are in flight."""
    free = in_flight - flying
    return free if not flying or free * REFILL >= in_flight else 0
