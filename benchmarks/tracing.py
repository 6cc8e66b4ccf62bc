"""How much does a trace cost? Beam search with a model of random weights, with and without it, alternating.

CPU times of one thread, so that other work on the machine changes them little; the medians of the ratios:

    python benchmarks/tracing.py [--layers 2] [--width 512] [--vocabulary 10000] [--sentences 64] [--runs 5]
"""

from __future__ import annotations

import argparse
import io
import statistics
import time

import torch
from common import frozen, nmt, random_gnmt, sentences
from sgdec_decoders.beam import BeamDecoder

from sgdec.context import Vocabularies
from sgdec.search.constellation import Constellation
from sgdec.search.scheduler import Scheduler
from sgdec.trace import TraceWriter
from sgdec.trace.records import Header, Tracing

HEADER = Header(("nmt",), (1.0,), "beam", {"size": 5}, {}, 1, "", 20, 10_000, "benchmark")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--vocabulary", type=int, default=10_000)
    parser.add_argument("--sentences", type=int, default=64)
    parser.add_argument("--children", type=int, default=Tracing.children)
    parser.add_argument("--runs", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    model = frozen(random_gnmt(given.layers, given.width, given.vocabulary))
    constellation = Constellation.of({"nmt": nmt(model)}, vocab_size=given.vocabulary)
    sources = sentences([15 + number % 15 for number in range(given.sentences)], given.vocabulary)
    ratios, size = [], 0

    def decode(tracing: Tracing | None) -> tuple[float, int]:
        """CPU seconds, and the bytes of the trace."""
        file = io.BytesIO()
        began = time.process_time()
        writer = TraceWriter(file, HEADER, Vocabularies())
        for outcome in Scheduler(constellation, BeamDecoder(5), tracing=tracing).run(sources):
            if outcome.trace is not None:
                writer.write(outcome.trace)
        return time.process_time() - began, len(file.getvalue())

    for _ in range(given.runs):
        without, _ = decode(None)
        traced, size = decode(Tracing(children=given.children))
        ratios.append(traced / without)
    about = f"GNMT {given.layers} x {given.width}, V = {given.vocabulary:,}"
    print(f"{about}, beam 5, {given.sentences} sentences, one thread")
    print(f"with a trace / without: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
    print(f"bytes per sentence: {size // given.sentences:,}")


if __name__ == "__main__":
    main()
