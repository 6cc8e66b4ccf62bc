"""How fast is a search in which nothing is neural: lattices with a trigram language model?

200 random acyclic lattices of 60 states and about 110 arcs, and a trigram model of random paths through them, both
seeded, in one process, one thread. Each decoder searches the sentences one at a time and in batches, and must find
the same hypotheses and totals. An expansion is one prefix whose continuations are asked for. "Of least" compares the
expansions with the prefixes of what was found, which every search has to expand. Beside the rate of each decoder is
that of SGNMT 1.1 for lattices and models of this kind on an idle machine.

With ``--set flat`` the arcs of a state are nearly equally probable. With ``--set flatter`` all arcs cost nearly none
and lead into the next three states, so that paths are long and the language model decides: exact searches that add up
the bounds of both (``--bounds sum``) then need thousands of expansions for a sentence; try fewer ``--sentences`` and
``--cases``.

The cases are timed alternately, in seconds of CPU time, so that other work on the machine does not count. Reading the
lattices is part of every run. It is also timed separately, one lattice at a time, and the rates are without it. Each
run begins with a language model without cached states.

    python benchmarks/symbolic.py [--set flat] [--bounds sum] [--runs 7] [--profile "dfs"]
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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pynini
import pywrapfst
from sgdec_decoders.astar import AStarDecoder
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.bucket import BucketDecoder
from sgdec_decoders.dfs import DfsDecoder
from sgdec_decoders.greedy import GreedyDecoder
from sgdec_decoders.restarting import RestartingDecoder
from sgdec_predictors.fst import FstPredictor
from sgdec_predictors.ngram import NGram

from sgdec.context import BOS, EOS
from sgdec.decoder import Decoder
from sgdec.estimation.kneser_ney import estimate, join
from sgdec.io.arpa import write_arpa
from sgdec.protocol import Source
from sgdec.search.constellation import Constellation
from sgdec.search.outcome import Outcome
from sgdec.search.scheduler import Scheduler

WORDS = 200
LENGTH = 20
"""Source tokens; the default limit is twice as many target tokens."""

SETS = ("plain", "flat", "flatter")
Arcs = list[list[tuple[int, float, int]]]
"""For each state its (label, cost, target)."""


@dataclass(frozen=True)
class Case:
    """One way to search all sentences."""

    name: str
    decoder: Decoder
    sgnmt: int
    """Expansions/s of SGNMT's decoder of this name."""
    nbest: int = 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sentences", type=int, default=200)
    parser.add_argument("--states", type=int, default=60)
    parser.add_argument("--set", choices=SETS, default="plain", help="how much the costs of arcs differ")
    parser.add_argument("--bounds", choices=("auto", "product", "sum"), default="auto")
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=lambda given: given.split(","), help="only these, separated by commas")
    parser.add_argument("--profile", metavar="CASE", help="profile one case, in batches")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        arcs = write_inputs(Path(folder), given.sentences, given.states, given.seed, given.set)
        options = " ".join(f"{name}:{value}" for name, value in vars(given).items())
        versions = f"sgdec:{version('sgdec')} numpy:{np.__version__} python:{platform.python_version()}"
        print(f"{options} arcs:{arcs / given.sentences:.0f} {versions}")
        compare(Path(folder), given)


def compare(folder: Path, given: argparse.Namespace) -> None:
    sources = sentences(given.sentences)
    cases = [
        Case(f"beam {given.beam}", BeamDecoder(size=given.beam), 35_500),
        Case("greedy", GreedyDecoder(), 41_400),
        Case("dfs", DfsDecoder(), 47_200),
        Case("astar", AStarDecoder(), 19_600),
        Case("restarting", RestartingDecoder(), 43_600),
        Case("bucket", BucketDecoder(), 28_500),
        Case("dfs 100-best", DfsDecoder(), 47_200, nbest=100),
        Case("astar 100-best", AStarDecoder(), 19_600, nbest=100),
        Case("astar 1000-best", AStarDecoder(), 19_600, nbest=1000),
    ]

    def run(case: Case, batch_size: int) -> tuple[float, list[Outcome]]:
        return search(folder, sources, case.decoder, batch_size, case.nbest, bounds=given.bounds)

    def load(at_once: int) -> float:
        constellation = Constellation.of({"fst": FstPredictor(str(folder / "{id}.fst"))})
        started = time.process_time()
        for first in range(0, len(sources), at_once):
            constellation.release(constellation.roots(sources[first : first + at_once]))
        return time.process_time() - started

    cases = [case for case in cases if not given.cases or case.name in given.cases]
    expansions, least = {}, {}
    for case in cases:
        _, alone = run(case, 1)
        assert found(alone) == found(run(case, given.batch_size)[1]), f"{case.name}: batched and one by one differ"
        expansions[case.name] = sum(outcome.result.expansions for outcome in alone)
        least[case.name] = sum(map(distinct_prefixes, found(alone)))
    gc.collect()
    gc.freeze()  # as `sgdec decode` does
    gc.set_threshold(100_000, 20, 100)
    if given.profile:
        (case,) = (case for case in cases if case.name == given.profile)
        with cProfile.Profile() as profile:
            run(case, given.batch_size)
        pstats.Stats(profile).sort_stats("tottime").print_stats(32)
        return
    sizes = 1, given.batch_size
    loading: dict[int, list[float]] = {size: [] for size in sizes}
    seconds: dict[tuple[str, int], list[float]] = {(case.name, size): [] for case in cases for size in sizes}
    for _ in range(given.runs):
        for size in sizes:
            loading[size].append(load(size))
            for case in cases:
                seconds[case.name, size].append(run(case, size)[0])
    loads = {size: statistics.median(loading[size]) for size in sizes}
    each = " and ".join(f"{loads[size] / given.sentences * 1e6:.0f} ({size} at a time)" for size in sizes)
    print(f"loading: {each} microseconds a lattice")
    print(
        f"{'':<16}{'expansions':>11}{'of least':>9}{'a second, one at a time':>27}{'in batches':>27}"
        f"{'ratio':>7}{'SGNMT':>8}{'sentences/s':>13}"
    )
    for case in cases:
        made = expansions[case.name]
        rates = {
            size: sorted(made / (taken - loads[size]) for taken in seconds[case.name, size]) for size in sizes
        }
        alone, batched = (f"{statistics.median(of):,.0f} ({of[0]:,.0f}-{of[-1]:,.0f})" for of in rates.values())
        ratios = [
            one / many for one, many in zip(*(seconds[case.name, size] for size in sizes), strict=True)
        ]
        whole = len(sources) / statistics.median(seconds[case.name, given.batch_size])
        print(
            f"{case.name:<16}{made:>11,}{made / least[case.name]:>9.2f}{alone:>27}{batched:>27}"
            f"{statistics.median(ratios):>7.2f}{case.sgnmt:>8,}{whole:>13,.0f}"
        )


def sentences(count: int) -> list[Source]:
    """Sources of `LENGTH` tokens each; the predictors ignore the tokens."""
    return [Source(i, (3,) * LENGTH, max_length=2 * LENGTH) for i in range(1, count + 1)]


def search(
    folder: Path, sources: Sequence[Source], decoder: Decoder, batch_size: int = 1, nbest: int = 1,
    *, bounds: str = "auto",
) -> tuple[float, list[Outcome]]:
    """The seconds of CPU time, including reading the lattices but not the language model, and the outcomes."""
    ngram = NGram(str(folder / "lm.arpa"))
    predictors = {"fst": FstPredictor(str(folder / "{id}.fst")), "ngram": ngram}
    options: dict[str, Any] = {} if bounds == "auto" else {"bounds": bounds}  # earlier commits have no such option
    constellation = Constellation.of(predictors, **options)
    scheduler = Scheduler(constellation, decoder, batch_size=batch_size, nbest=nbest)
    gc.collect()  # what earlier cases have left behind
    started = time.process_time()
    outcomes = list(scheduler.run(sources))
    return time.process_time() - started, outcomes


def distinct_prefixes(hypotheses: Iterable[tuple[tuple[int, ...], float]]) -> int:
    """The prefixes that any search has to expand to find these hypotheses."""
    return len({tokens[:end] for tokens, _ in hypotheses for end in range(len(tokens) + 1)})


def found(outcomes: Iterable[Outcome]) -> list[list[tuple[tuple[int, ...], float]]]:
    return [[(each.tokens, each.score) for each in outcome.result.hypotheses] for outcome in outcomes]


def write_inputs(folder: Path, sentences: int, states: int, seed: int, kind: str = "plain") -> int:
    """Write lattices ``1.fst``, ``2.fst``, ... and ``lm.arpa``; return the total number of arcs."""
    rng = random.Random(seed)
    lattices = [random_lattice(rng, states, kind) for _ in range(sentences)]
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


def random_lattice(rng: random.Random, states: int, kind: str = "plain") -> Arcs:
    """From state 0 with ``<s>``, then with one to four arcs a state into the next eight, to the last with ``</s>``.

    The probabilities of the arcs of a state sum to 1; in flat lattices they differ by at most a factor of 1.1. In
    ``flatter`` lattices each arc costs 0 to 0.05, so that longer paths cost little more, and leads into the next
    three.
    """
    span = 3 if kind == "flatter" else 8
    lattice: Arcs = [[(BOS, 0.0, 1)]]
    for state in range(1, states - 1):
        count = rng.choices((1, 2, 3, 4), weights=(45, 35, 12, 8))[0]
        targets = [rng.randint(state + 1, min(state + span, states - 1)) for _ in range(count)]
        ends = states - 1 in targets
        labels = rng.sample(range(3, 3 + WORDS), count)
        ways = dict(zip(labels, targets, strict=True))
        ways = {label: target for label, target in ways.items() if target < states - 1}
        if ends:
            ways[EOS] = states - 1
        chances = [rng.expovariate(1.0) if kind == "plain" else rng.uniform(1.0, 1.1) for _ in ways]
        costs = (-np.log(np.array(chances) / sum(chances))).tolist()
        if kind == "flatter":
            costs = [rng.uniform(0.0, 0.05) for _ in ways]
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
