"""How fast is a search in which nothing is neural: lattices with a trigram language model?

200 random acyclic lattices of 60 states and about 110 arcs, and a trigram model of random paths through them, both
seeded. `beam` with 5 hypotheses and `greedy` over `fst,ngram`, and `beam` over `fst` alone, 64 sentences in flight
in one process, one thread. An expansion is one prefix whose continuations are asked for. SGNMT 1.1 makes 35,500 of
them a second in beam search over lattices and models of this kind, and 41,400 in greedy search.

First all hypotheses and totals are compared with those of one sentence at a time. Then the cases are timed in turn,
in seconds of CPU time, so that other work on the machine does not count; reading the lattices is part of every run,
and timed once more by itself.

    python benchmarks/symbolic.py [--runs 7] [--profile]
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import os
import platform
import pstats
import random
import statistics
import tempfile
import time
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pynini
import pywrapfst
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.greedy import GreedyDecoder
from sgdec_predictors.fst import FstPredictor
from sgdec_predictors.ngram import NGram

from sgdec.constellation import Constellation
from sgdec.context import BOS, EOS
from sgdec.io.arpa import write_arpa
from sgdec.outcome import Outcome
from sgdec.protocol import Decoder, Source
from sgdec.scheduler import Scheduler
from sgdec.training.kneser_ney import estimate, join

WORDS = 200
LENGTH = 20
"""Source tokens; the default limit is twice as many target tokens."""

Arcs = list[list[tuple[int, float, int]]]
"""For each state its (label, cost, target)."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sentences", type=int, default=200)
    parser.add_argument("--states", type=int, default=60)
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--profile", action="store_true", help="where the time of fst,ngram goes")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        arcs = write_inputs(Path(folder), given.sentences, given.states, given.seed)
        options = " ".join(f"{name}:{value}" for name, value in vars(given).items())
        versions = f"sgdec:{version('sgdec')} numpy:{np.__version__} python:{platform.python_version()}"
        print(f"{options} arcs:{arcs / given.sentences:.0f} {versions}")
        compare(Path(folder), given)


def compare(folder: Path, given: argparse.Namespace) -> None:
    fst = FstPredictor(str(folder / "{id}.fst"))
    ngram = NGram(str(folder / "lm.arpa"))
    both, alone = Constellation.of({"fst": fst, "ngram": ngram}), Constellation.of({"fst": fst})
    sources = [Source(i, (3,) * LENGTH, max_length=2 * LENGTH) for i in range(1, given.sentences + 1)]
    beam = BeamDecoder(size=given.beam)
    cases: dict[str, tuple[Constellation, Decoder]] = {
        f"fst,ngram beam {given.beam}": (both, beam),
        "fst,ngram greedy": (both, GreedyDecoder()),
        f"fst beam {given.beam}": (alone, beam),
    }

    def run(constellation: Constellation, decoder: Decoder, batch_size: int) -> list[Outcome]:
        return list(Scheduler(constellation, decoder, batch_size=batch_size).run(sources))

    expansions = {}
    for name, case in cases.items():
        together = run(*case, given.batch_size)
        assert found(together) == found(run(*case, 1)), f"{name}: batched and one by one differ"
        expansions[name] = sum(outcome.result.expansions for outcome in together)
    gc.collect()
    gc.freeze()  # as `sgdec decode` does
    gc.set_threshold(100_000, 20, 100)
    if given.profile:
        with cProfile.Profile() as profile:
            for _ in range(given.runs):
                run(both, beam, given.batch_size)
        pstats.Stats(profile).sort_stats("tottime").print_stats(32)
    loading = []
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(given.runs):
        started = time.process_time()
        alone.roots(sources)
        loading.append(time.process_time() - started)
        for name, case in cases.items():
            started = time.process_time()
            run(*case, given.batch_size)
            seconds[name].append(time.process_time() - started)
    load = statistics.median(loading)
    print(f"loading: {load / given.sentences * 1e6:.0f} microseconds a lattice")
    print(f"{'':<20}{'expansions/s: median (min - max)':>36}{'without loading':>18}{'sentences/s':>14}")
    for name, taken in seconds.items():
        rates = sorted(expansions[name] / each for each in taken)
        median = statistics.median(taken)
        spread = f"{expansions[name] / median:,.0f} ({rates[0]:,.0f} - {rates[-1]:,.0f})"
        print(f"{name:<20}{spread:>36}{expansions[name] / (median - load):>18,.0f}{len(sources) / median:>14,.0f}")


def found(outcomes: Iterable[Outcome]) -> list[list[tuple[tuple[int, ...], float]]]:
    return [[(each.tokens, each.score) for each in outcome.result.hypotheses] for outcome in outcomes]


def write_inputs(folder: Path, sentences: int, states: int, seed: int) -> int:
    """Lattices ``1.fst``, ``2.fst``, ... and ``lm.arpa``; how many arcs there are in all."""
    rng = random.Random(seed)
    lattices = [random_lattice(rng, states) for _ in range(sentences)]
    for number, lattice in enumerate(lattices, start=1):
        fst = pynini.Fst()
        fst.add_states(states)
        fst.set_start(0)
        fst.set_final(states - 1)
        for state, arcs in enumerate(lattice):
            for label, cost, target in arcs:
                fst.add_arc(state, pywrapfst.Arc(label, label, cost, target))
        fst.write(str(folder / f"{number}.fst"))
    text = join(random_path(rng, lattice) for lattice in lattices for _ in range(5))
    words = ["<unk>", "<s>", "</s>", *map(str, range(3, 3 + WORDS))]
    write_arpa(folder / "lm.arpa", estimate(text, words, order=3, fallback=True).model)
    return sum(len(arcs) for lattice in lattices for arcs in lattice)


def random_lattice(rng: random.Random, states: int) -> Arcs:
    """From state 0 with ``<s>``, then with one to four arcs a state into the next eight, to the last with ``</s>``.

    The costs of the arcs of a state are those of a distribution.
    """
    lattice: Arcs = [[(BOS, 0.0, 1)]]
    for state in range(1, states - 1):
        count = rng.choices((1, 2, 3, 4), weights=(45, 35, 12, 8))[0]
        targets = [rng.randint(state + 1, min(state + 8, states - 1)) for _ in range(count)]
        ends = states - 1 in targets
        labels = rng.sample(range(3, 3 + WORDS), count)
        ways = dict(zip(labels, targets, strict=True))
        ways = {label: target for label, target in ways.items() if target < states - 1}
        if ends:
            ways[EOS] = states - 1
        chances = [rng.expovariate(1.0) for _ in ways]
        costs = (-np.log(np.array(chances) / sum(chances))).tolist()
        lattice.append([(label, cost, target) for (label, target), cost in zip(ways.items(), costs, strict=True)])
    return [*lattice, []]


def random_path(rng: random.Random, lattice: Arcs) -> list[int]:
    """The labels between ``<s>`` and ``</s>`` of a path drawn by the arcs' costs."""
    state = 1
    path: list[int] = []
    while True:
        label, _, state = rng.choices(lattice[state], weights=[np.exp(-cost) for _, cost, _ in lattice[state]])[0]
        if label == EOS:
            return path
        path.append(label)


if __name__ == "__main__":
    main()
