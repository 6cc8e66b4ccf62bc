"""Does memory stay small in a long search, and constant over a long input?

    python benchmarks/memory.py search [--expansions 10000] [--layers 2 --width 512 --vocab-size 8000 --length 40]
        A depth-first search with `nmt` (random weights) that expands 10,000 nodes of one sentence, with lazy
        children. It prints the growth of resident memory over a greedy search of the same sentence, the largest
        number of slots in use, the size of the pool, and the memory of all states if none were freed.

    python benchmarks/memory.py expansions [--expansions 200 600] [--vocab-size 32000] [--batch-size 1 64]
        The bytes per expansion that each exact decoder keeps, over rows of 32,000 scores that a predictor makes for
        every prefix. The figure is the growth of the peak memory of Python and NumPy (tracemalloc) from searches of
        200 expansions to searches of 600, so that constants cancel; with a batch of 64 sentences from 25 to 75.
        The number of expansions per second is also printed, measured without tracing.

    python benchmarks/memory.py input [--lines 1000000]
        Generated lines of token ids are read, decoded by `greedy` with a predictor that allows only the source
        itself, and written. It prints the resident memory after a tenth of the lines and at the end.

Resident memory is the system's figure (Linux: /proc/self/statm); each command is a separate process, so that no
memory was allocated and freed before.
"""

from __future__ import annotations

import argparse
import gc
import os
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sgdec_decoders.astar import AStarDecoder
from sgdec_decoders.bucket import BucketDecoder
from sgdec_decoders.dfs import DfsDecoder
from sgdec_decoders.greedy import GreedyDecoder
from sgdec_decoders.restarting import RestartingDecoder

from sgdec.context import EOS
from sgdec.decoder import Decoder
from sgdec.io.results import make_writer, open_rows
from sgdec.io.sources import SourceReader
from sgdec.lengths import LengthRule
from sgdec.protocol import BatchPredictor, Candidates, Result, Scores, Source
from sgdec.search.constellation import Constellation
from sgdec.search.node import Node
from sgdec.search.scheduler import Scheduler
from sgdec.search.space import SearchSpace

MIB = 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(required=True)
    search = commands.add_parser("search")
    search.add_argument("--expansions", type=int, default=10_000)
    search.add_argument("--layers", type=int, default=2)
    search.add_argument("--width", type=int, default=512)
    search.add_argument("--vocab-size", type=int, default=8_000)
    search.add_argument("--length", type=int, default=40)
    search.add_argument("--threads", type=int, default=2)
    search.set_defaults(work=long_search)
    kept = commands.add_parser("expansions")
    kept.add_argument("--expansions", type=int, nargs=2, default=(200, 600), help="of one sentence")
    kept.add_argument("--vocab-size", type=int, default=32_000)
    kept.add_argument("--batch-size", type=int, nargs="+", default=(1, 64))
    kept.set_defaults(work=kept_by_expansions)
    lines = commands.add_parser("input")
    lines.add_argument("--lines", type=int, default=1_000_000)
    lines.add_argument("--batch-size", type=int, default=64)
    lines.set_defaults(work=long_input)
    given = parser.parse_args()
    given.work(given)
    settings = {**vars(given), "work": given.work.__name__}
    print("signature: " + "|".join(f"{name}:{value}" for name, value in settings.items()))


def resident() -> float:
    """The resident memory of this process in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MIB


class Watched:
    """The largest memory and number of slots observed."""

    def __init__(self, predictor: Any) -> None:
        self._pool = predictor._pool
        self.memory = 0.0
        self.slots = 0

    def look(self) -> None:
        self.memory = max(self.memory, resident())
        self.slots = max(self.slots, self._pool.used)


class DepthFirst(Decoder):
    """Expands the best children first, up to a number of expansions; returns the hypotheses found so far."""

    def __init__(self, expansions: int, watched: Watched) -> None:
        self._expansions = expansions
        self._watched = watched

    def decode(self, space: SearchSpace) -> Result:
        best: Node | None = None
        levels = list(space.expand([space.root]))
        while levels and space.expansions < self._expansions:
            child = next(levels[-1], None)
            if child is None:
                levels.pop()
            elif not child.finished:
                levels += space.expand([child])
                self._watched.look()
            elif best is None or child.total > best.total:
                best = child
        return Result([space.finish(best)] if best is not None else [], proven=not levels)


def long_search(given: argparse.Namespace) -> None:
    import torch
    from common import decode, frozen, nmt, random_gnmt, sentences

    torch.set_num_threads(given.threads)
    predictor = nmt(frozen(random_gnmt(given.layers, given.width, given.vocab_size)))
    constellation = Constellation.of({"nmt": predictor}, vocab_size=given.vocab_size)
    sources = sentences([given.length], given.vocab_size)
    for _ in range(2):  # the first one warms up
        decode(constellation, GreedyDecoder(), sources, 1)
    watched = Watched(predictor)
    watched.look()
    before = watched.memory
    started = time.perf_counter()
    (outcome,) = Scheduler(constellation, DepthFirst(given.expansions, watched)).run(sources)
    spent = time.perf_counter() - started
    assert outcome.result.expansions == given.expansions and outcome.result.hypotheses
    pool = predictor._pool
    slot = sum(tensor[0].nbytes for tensor in pool._pool._tensors)
    growth = watched.memory - before
    print(f"after greedy: {before:.1f} MiB resident")
    print(f"depth first: at most {watched.memory:.1f} MiB, + {growth:.1f} MiB")
    print(f"{given.expansions:,} expansions: {spent:.0f} s")
    print(f"slots: at most {watched.slots} of {pool.capacity} in use, {slot / 1024:.1f} KiB each")
    print(f"were none freed: {given.expansions * slot / MIB:.1f} MiB")


class Zipf(BatchPredictor):
    """The token of rank r has the probability r^-1.5 / sum; the ranks of tokens depend on the prefix.

    State: the token with the first rank.
    """

    max_score = 0.0

    def __init__(self, vocab_size: int) -> None:
        scores = -1.5 * np.log(np.arange(1, vocab_size + 1))
        self._scores = (scores - np.logaddexp.reduce(scores)).astype(np.float32)
        self.never_positive = True  # older commits, with which the ratchet compares, read this in place of max_score

    def initialize_batch(self, sources: Sequence[Source]) -> list[int]:
        return [source.id for source in sources]

    def predict_batch(self, states: Sequence[int], candidates: Sequence[Candidates | None] | None = None) -> Scores:
        return Scores.dense(np.stack([np.roll(self._scores, state) for state in states]))

    def consume_batch(self, states: Sequence[int], tokens: Sequence[int]) -> list[int]:
        size = len(self._scores)
        return [(31 * state + 7919 * token + 17) % size for state, token in zip(states, tokens, strict=True)]


EXACT: dict[str, Callable[..., Decoder]] = {
    "astar": AStarDecoder,
    "dfs": DfsDecoder,
    "bucket": BucketDecoder,
    "restarting": RestartingDecoder,
}


def search_exactly(decoder: str, vocab_size: int, batch_size: int, expansions: int) -> int:
    """Search sentences of `Zipf`, each up to a number of expansions. Returns the total number of expansions."""
    sources = [Source(i + 1, (3,) * 20, max_length=40) for i in range(batch_size)]
    constellation = Constellation.of({"zipf": Zipf(vocab_size)})
    searches = Scheduler(constellation, EXACT[decoder](max_expansions=expansions), batch_size=batch_size, nbest=100)
    made = sum(outcome.result.expansions for outcome in searches.run(sources))
    assert made == batch_size * expansions, f"{decoder} ended by itself"
    return made


def bytes_an_expansion(decoder: str, vocab_size: int, batch_size: int, few: int, many: int) -> float:
    """The bytes per expansion by which the peak of ``many`` expansions per sentence exceeds that of ``few``."""
    search_exactly(decoder, vocab_size, batch_size, few)
    peaks = []
    for expansions in (few, many):
        gc.collect()
        tracemalloc.start()
        search_exactly(decoder, vocab_size, batch_size, expansions)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    return (peaks[1] - peaks[0]) / (batch_size * (many - few))


def kept_by_expansions(given: argparse.Namespace) -> None:
    print(f"{'decoder':<12}{'batch':>6}{'bytes / expansion':>20}{'expansions/s':>14}")
    for batch_size in given.batch_size:
        few, many = given.expansions if batch_size == 1 else [count // 8 for count in given.expansions]
        for decoder in EXACT:
            kept = bytes_an_expansion(decoder, given.vocab_size, batch_size, few, many)
            started = time.perf_counter()
            rate = search_exactly(decoder, given.vocab_size, batch_size, many) / (time.perf_counter() - started)
            print(f"{decoder:<12}{batch_size:>6}{kept:>20,.0f}{rate:>14,.0f}", flush=True)


class Echo(BatchPredictor):
    """Allows only the source. State: the remaining tokens."""

    def initialize_batch(self, sources: Sequence[Source]) -> list[tuple[int, ...]]:
        return [(*source.tokens, EOS) for source in sources]

    def predict_batch(
        self, states: Sequence[tuple[int, ...]], candidates: Sequence[Candidates | None] | None = None
    ) -> Scores:
        return Scores.stack([Scores.sparse(state[:1], (0.0,)) for state in states])

    def consume_batch(self, states: Sequence[tuple[int, ...]], tokens: Sequence[int]) -> list[tuple[int, ...]]:
        return [state[1:] for state in states]


def long_input(given: argparse.Namespace) -> None:
    def lines() -> Iterator[bytes]:
        for n in range(given.lines):
            yield b"%d\n" % (3 + n % 30_000)

    constellation = Constellation.of({"echo": Echo()})
    sources = SourceReader(None, "ids", LengthRule(1.0)).read(lines(), "generated")
    due, tenth = 0, 0.0
    started = time.perf_counter()

    def so_far() -> str:
        return f"after {due:,} lines, {time.perf_counter() - started:.0f} s: {resident():.1f} MiB resident"

    with open_rows(os.devnull, dict) as rows:
        writer = make_writer("ids", None, rows, None, constellation.names)
        for outcome in Scheduler(constellation, GreedyDecoder(), batch_size=given.batch_size).run(sources):
            assert outcome.source.id == due + 1 and outcome.result.hypotheses[0].tokens == (3 + due % 30_000,)
            writer.write(outcome)
            due += 1
            if due == given.lines // 10:
                tenth = resident()
                print(so_far(), flush=True)
    assert due == given.lines
    print(f"{so_far()}, + {resident() - tenth:.1f} MiB")


if __name__ == "__main__":
    main()
