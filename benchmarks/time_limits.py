"""Is ``max_seconds`` kept? By how much do exact searches exceed their time limit, one sentence at a time?

Two spaces that no search can finish in time: a random lattice of 400 states with a trigram model, for a list of 100,
and the trigram model alone over 32,000 tokens, where a single expansion is dense. Wall time from the start of the
search to its result, as `sgdec decode` reports it; the worst and the median of ``--runs``. Other work on the machine
shows up here as it would for a user.

    python benchmarks/time_limits.py [--seconds 1.0] [--runs 5]
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

from sgdec_decoders.astar import AStarDecoder
from sgdec_decoders.bucket import BucketDecoder
from sgdec_decoders.dfs import DfsDecoder
from sgdec_decoders.lendfs import LenDfsDecoder
from sgdec_decoders.restarting import RestartingDecoder
from sgdec_predictors.fst import FstPredictor
from sgdec_predictors.ngram import NGram
from symbolic import write_inputs

from sgdec.cli.running import collector_spared
from sgdec.context import Context
from sgdec.protocol import Source
from sgdec.search.constellation import Constellation
from sgdec.search.scheduler import Scheduler

DECODERS = (DfsDecoder, LenDfsDecoder, RestartingDecoder, AStarDecoder, BucketDecoder)
VOCABULARY = 32_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--runs", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_inputs(Path(folder), 1, 400, 1)
        path = str(Path(folder, "lm.arpa"))
        lattice = FstPredictor(str(Path(folder, "{id}.fst")))
        spaces = {
            "fst,ngram": Constellation.of({"fst": lattice, "ngram": NGram(path)}),
            "ngram": Constellation.of({"ngram": NGram(path, context=Context(vocab_size=VOCABULARY))}),
        }
        print(f"{'':<12}{'':<12}{'asked for':>10}{'median':>9}{'worst':>9}{'worst overshoot':>17}{'expansions':>12}")
        for space, constellation in spaces.items():
            for kind in DECODERS:
                with collector_spared():  # as the command does
                    report(space, constellation, kind, given)


def report(space: str, constellation: Constellation, kind: type, given: argparse.Namespace) -> None:
    decoder = kind(max_seconds=given.seconds)
    taken, expansions = [], []
    for _ in range(given.runs):
        scheduler = Scheduler(constellation, decoder, batch_size=1, nbest=100)
        (outcome,) = scheduler.run([Source(1, (3,) * 100, max_length=200)])
        assert outcome.result.proven is False, "the search came to its end by itself"
        taken.append(outcome.seconds)
        expansions.append(outcome.result.expansions)
    name = kind.__name__.removesuffix("Decoder").lower()
    print(
        f"{space:<12}{name:<12}{given.seconds:>9.2f}s{statistics.median(taken):>8.3f}s{max(taken):>8.3f}s"
        f"{max(taken) / given.seconds - 1:>17.1%}{statistics.median(expansions):>12,.0f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
