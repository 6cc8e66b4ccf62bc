"""How long does an exact search of real lattices take, compared with pynini's shortest path?

`fst` alone over the 60 HiFST lattices of the data folder (``SGDEC_DATA``), `beam` with recombination, a proof, and a
beam as wide as the lattice has states. Both sides read the file and find the best path, alternating by sentence, and
must agree on its cost. Prints the total times of ``--runs`` passes.

    SGDEC_DATA=DATA python benchmarks/real_lattices.py [--runs 3]
"""

from __future__ import annotations

import argparse
import gzip
import os
import statistics
import time
from pathlib import Path

import pynini
from sgdec_decoders.beam import BeamDecoder
from sgdec_predictors.fst import FstPredictor

from sgdec.io.lattice import read_lattice
from sgdec.protocol import Source
from sgdec.search.constellation import Constellation
from sgdec.search.space import SearchSpace

LATTICES = 60


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    runs = parser.parse_args().runs
    folder = Path(os.environ["SGDEC_DATA"], "data", "lattices", "hifst_ruen", "fst")
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


if __name__ == "__main__":
    main()
