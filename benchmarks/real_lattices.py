"""How long do exact searches of real lattices take, compared with pynini's shortest path and with beam search?

The 60 HiFST lattices of the data folder (``SGDEC_DATA``). First `fst` alone: `beam` with recombination, a proof, and
a beam as wide as the lattice has states. Both sides read the file and find the best path, alternating by sentence,
and must agree on its cost. Then `fst,ngram` with a trigram model of the lattices' own paths (100 of each, seeded):
`astar` with recombination to a proof, and `beam` of size 5, one sentence at a time and in batches, in alternating
passes; their CPU times include reading the lattices and the bounds. Prints medians of ``--runs`` passes.

    SGDEC_DATA=DATA python benchmarks/real_lattices.py [--runs 3]
"""

from __future__ import annotations

import argparse
import gc
import gzip
import os
import statistics
import tempfile
import time
from pathlib import Path

import pynini
from sgdec_decoders.astar import AStarDecoder
from sgdec_decoders.beam import BeamDecoder
from sgdec_predictors.fst import FstPredictor
from sgdec_predictors.ngram import NGram

from sgdec.context import EOS
from sgdec.decoder import Decoder
from sgdec.estimation.kneser_ney import estimate, join
from sgdec.io.arpa import write_arpa
from sgdec.io.lattice import read_lattice
from sgdec.protocol import Source
from sgdec.search.constellation import Constellation
from sgdec.search.scheduler import Scheduler
from sgdec.search.space import SearchSpace

LATTICES = 60


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    runs = parser.parse_args().runs
    folder = Path(os.environ["SGDEC_DATA"], "data", "lattices", "hifst_ruen", "fst")
    alone(folder, runs)
    with_language_model(folder, runs)


def alone(folder: Path, runs: int) -> None:
    widths = [len(read_lattice(folder / f"{i}.fst.gz").arcs) for i in range(1, LATTICES + 1)]

    passes = []
    for _ in range(runs):
        constellation = Constellation.of({"fst": FstPredictor(str(folder / "{id}.fst.gz"))})
        loading = searching = theirs = 0.0
        expansions = 0
        for i, width in enumerate(widths, start=1):
            started = time.perf_counter()
            (root,) = constellation.roots([Source(i, ())])
            loaded = time.perf_counter()
            space = SearchSpace(constellation, root)
            best, *_ = BeamDecoder(size=width, recombine=True, stop="proven").decode(space).hypotheses
            searched = time.perf_counter()
            fst = pynini.Fst.read_from_string(gzip.decompress((folder / f"{i}.fst.gz").read_bytes()))
            path = pynini.shortestpath(fst)
            cost = float(pynini.shortestdistance(path, reverse=True)[path.start()])
            theirs += time.perf_counter() - searched
            assert abs(-best.score - cost) < 1e-3, f"lattice {i}: {-best.score} instead of {cost}"
            loading, searching = loading + loaded - started, searching + searched - loaded
            expansions += space.expansions
        passes.append((loading, searching, theirs))
    loading, searching, theirs = (statistics.median(column) for column in zip(*passes, strict=True))
    print(f"{LATTICES} lattices, {sum(widths) / LATTICES:.0f} states each on average; medians of {runs} passes")
    print(f"sgdec    {loading:.2f} s to load, {searching:.2f} s to search ({expansions} expansions)")
    print(f"pynini   {theirs:.2f} s for both")


def with_language_model(folder: Path, runs: int) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        write_language_model(folder, Path(scratch, "lm.arpa"))
        model = NGram(str(Path(scratch, "lm.arpa")))
    cases: dict[str, tuple[Decoder, int]] = {
        "astar, recombine": (AStarDecoder(recombine=True), 1),
        "astar, recombine, in batches of 64": (AStarDecoder(recombine=True), 64),
        "beam 5": (BeamDecoder(size=5), 1),
        "beam 5, in batches of 64": (BeamDecoder(size=5), 64),
    }
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    lines = {}
    for _ in range(runs + 1):  # the first pass fills the model's caches
        for name, (decoder, batch_size) in cases.items():
            predictors = {"fst": FstPredictor(str(folder / "{id}.fst.gz")), "ngram": model}
            scheduler = Scheduler(Constellation.of(predictors), decoder, batch_size=batch_size)
            gc.collect()
            started = time.process_time()
            results = [outcome.result for outcome in scheduler.run([Source(i, ()) for i in range(1, LATTICES + 1)])]
            seconds[name].append(time.process_time() - started)
            lines[name] = (
                f"{sum(result.expansions for result in results):,} expansions, "
                f"{sum(len(result.hypotheses[0].tokens) + 1 for result in results):,} tokens, "
                f"{sum(bool(result.proven) for result in results)} proven, "
                f"total score {sum(result.hypotheses[0].score for result in results):.2f}"
            )
    print("with a trigram model")
    for name in cases:
        print(f"{name:<36}{statistics.median(seconds[name][1:]):.3f} s ({lines[name]})")


def write_language_model(folder: Path, path: Path) -> None:
    sentences, labels = [], set()
    for i in range(1, LATTICES + 1):
        fst = pynini.Fst.read_from_string(gzip.decompress((folder / f"{i}.fst.gz").read_bytes()))
        drawn = pynini.randgen(fst, npath=100, seed=i, select="log_prob", max_length=1000).paths()
        while not drawn.done():
            sentences.append([label for label in drawn.ilabels() if label > EOS])
            labels.update(sentences[-1])
            drawn.next()
    words = ["<unk>", "<s>", "</s>", *map(str, sorted(labels))]
    numbers = {int(word): number for number, word in enumerate(words[3:], start=3)}
    text = join([numbers[label] for label in sentence] for sentence in sentences)
    write_arpa(path, estimate(text, words, order=3, fallback=True).model)


if __name__ == "__main__":
    main()
