"""How many tokens per second can the core combine if the predictor costs nothing?

This measures the cost of the framework itself. One predictor returns the same 32,000 scores for every prefix (no
model, no arithmetic); beam search with 4 hypotheses runs over it on one core, one sentence at a time. SGNMT's
dictionaries reach 180 to 235 tokens/s on this constellation, so the target here is 2,350. The floor is printed beside
it: finding the best 4 of 32,000 scores in 4 rows per token, by a plain partial sort and by our top-k of block maxima.

First the beam's result is compared with that of plain sorting.

    python benchmarks/free_predictor.py
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Sequence
from functools import cache

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from sgdec_decoders.beam import BeamDecoder

from sgdec.protocol import BatchPredictor, Candidates, Scores, Source, State
from sgdec.search.constellation import Constellation
from sgdec.search.outcome import Outcome
from sgdec.search.scheduler import Scheduler
from sgdec.topk import top_tokens


class Free(BatchPredictor):
    """Returns the same scores after every prefix: one view for each number of rows, so that no data is copied."""

    def __init__(self, scores: np.ndarray) -> None:
        self.scores = scores
        self.view = cache(lambda rows: Scores.dense(np.broadcast_to(scores, (rows, len(scores)))))

    def initialize_batch(self, sources: Sequence[Source]) -> list[State]:
        return [None] * len(sources)

    def predict_batch(
        self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None
    ) -> Scores:
        return self.view(len(states))

    def consume_batch(self, states: Sequence[State], tokens: Sequence[int]) -> list[State]:
        return [None] * len(states)


def free_scores(vocab_size: int) -> np.ndarray:
    """Random scores ``[V]`` with a fixed seed; sentences end only at the length limit."""
    generator = np.random.default_rng(1)
    scores: np.ndarray = np.log(generator.dirichlet(np.full(vocab_size, 0.5)) + 1e-12).astype(np.float32)
    scores[2] = -30.0
    return scores


def search(constellation: Constellation, size: int, length: int, sentences: int, batch: int) -> list[Outcome]:
    """The results of a beam of this size for sentences whose outputs are all ``length`` tokens long."""
    sources = [Source(i, (3,) * 5, max_length=length) for i in range(1, sentences + 1)]
    return list(Scheduler(constellation, BeamDecoder(size=size), batch_size=batch).run(sources))


def tokens_per_second(work: Callable[[], int], runs: int) -> list[float]:
    work()
    rates = []
    for _ in range(runs):
        started = time.perf_counter()
        tokens = work()
        rates.append(tokens / (time.perf_counter() - started))
    return rates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--vocab-size", type=int, default=32_000)
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--length", type=int, default=50)
    parser.add_argument("--sentences", type=int, default=10)
    parser.add_argument("--runs", type=int, default=7)
    given = parser.parse_args()

    scores = free_scores(given.vocab_size)
    rows = np.ascontiguousarray(np.broadcast_to(scores, (given.beam, given.vocab_size)))

    one = Constellation.of({"free": Free(scores)})
    two = Constellation.of({"free": Free(scores), "free2": Free(scores)}, weights=[0.7, 0.3])
    best = int(np.argmax(scores))
    (outcome,) = search(one, given.beam, given.length, 1, 1)
    assert outcome.result.hypotheses[0].tokens == (best,) * given.length
    assert (top_tokens(rows, given.beam) == np.argsort(-rows, kind="stable", axis=1)[:, : given.beam]).all()

    tokens = given.sentences * given.length

    def beam(constellation: Constellation, batch: int) -> Callable[[], int]:
        def work() -> int:
            search(constellation, given.beam, given.length, given.sentences, batch)
            return tokens

        return work

    def floor(pick: Callable[[], object]) -> Callable[[], int]:
        def work() -> int:
            for _ in range(tokens):
                pick()
            return tokens

        return work

    cases = {
        "beam, one predictor": beam(one, 1),
        "beam, two predictors": beam(two, 1),
        "beam, one predictor, all sentences in flight": beam(one, 64),
        "floor: plain partial sort": floor(lambda: np.argpartition(rows, -given.beam, axis=1)),
        "floor: top-k of block maxima": floor(lambda: top_tokens(rows, given.beam)),
    }
    print(
        f"{given.vocab_size} words, beam {given.beam}, one core; tokens/s: median (min - max) of {given.runs}"
    )
    for name, work in cases.items():
        rates = tokens_per_second(work, given.runs)
        print(f"{name:<46}{statistics.median(rates):>9.0f}   ({min(rates):.0f} - {max(rates):.0f})")


if __name__ == "__main__":
    main()
