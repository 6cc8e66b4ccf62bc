"""How does the cost of an expansion grow with the beam?

Three constellations, one sentence at a time. One has a predictor that costs nothing (10,000 words), which leaves the
price of the search itself. One has `nmt` (GNMT with random weights, 8,000 words), shown beside its floor, the packed
matrix products of the same number of rows. The third has the same `nmt` with a `trie` of 1,000,000 entries: all
identifiers of six tokens with ten choices for each. Each size runs in a process of its own, which reports CPU time of
one thread and its peak memory.

    python benchmarks/wide.py [--sizes 5 20 100 400 2000 5000] [--layers 2 --width 512] [--runs 3] [--plot FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from common import frozen, nmt, random_gnmt, settle
from deep import floor, kernels_for, step_products
from free_predictor import Free, free_scores, search
from sgdec_predictors.trie import TriePredictor

from sgdec.context import EOS
from sgdec.io.entries import Entries
from sgdec.io.trie import build_trie
from sgdec.protocol import BatchPredictor
from sgdec.search.constellation import Constellation

FREE_WORDS, NMT_WORDS = 10_000, 8_000
STEPS = 6
"""The first beams are narrower than the others: the root has one row, and few of its children are kept."""
PREDICTORS = ("free", "nmt", "nmt,trie")


class Point(NamedTuple):
    """The figures of one size."""

    microseconds: float
    """Per expansion, the median."""
    floor: float | None
    """The same of the matrix products alone; None for the free predictor."""
    mebibytes: float
    """Peak memory of the process."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[5, 20, 100, 400, 2000, 5000])
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--plot", help="file to draw; .png or .svg")
    parser.add_argument("--one", choices=PREDICTORS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        (size,) = given.sizes
        print(json.dumps(measure(given.one, size, given.layers, given.width, given.runs)))
        return
    points: dict[str, list[Point]] = {name: [] for name in PREDICTORS}
    print("microseconds per expansion")
    print(f"{'beam':>6} {'free':>10} {'floor':>10} {'nmt':>10} {'/floor':>7} {'nmt,trie':>10} {'/floor':>7}")
    for size in given.sizes:
        for name in PREDICTORS:
            points[name].append(alone(name, size, given))
        free, *models = (points[name][-1] for name in PREDICTORS)
        floor = models[0].floor
        each = [f"{point.microseconds:>10.0f} {point.microseconds / (point.floor or 1):>7.2f}" for point in models]
        print(f"{size:>6,} {free.microseconds:>10.1f} {floor:>10.0f} {' '.join(each)}", flush=True)
    for name, found in points.items():
        more = (found[-1].mebibytes - found[0].mebibytes) / (given.sizes[-1] - given.sizes[0]) * 1000
        shown = ", ".join(f"{size:,}: {point.mebibytes:,.0f}" for size, point in zip(given.sizes, found, strict=True))
        print(f"{name}: peak MiB {shown}; {more:.1f} MiB per 1,000 hypotheses")
    if given.plot:
        draw(given.sizes, points, given.plot)


def alone(name: str, size: int, given: argparse.Namespace) -> Point:
    """The figures of one size, from a process of its own."""
    options = [f"--layers={given.layers}", f"--width={given.width}", f"--runs={given.runs}"]
    command = [sys.executable, __file__, "--one", name, "--sizes", str(size), *options]
    return Point(*json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout))


def measure(name: str, size: int, layers: int, width: int, runs: int) -> Point:
    torch.set_num_threads(1)
    clock = time.process_time
    products: Callable[[], float] | None = None
    if name == "free":
        constellation = Constellation.of({"free": Free(free_scores(FREE_WORDS))})
    else:
        model = random_gnmt(layers, width, NMT_WORDS)
        work = step_products(model, kernels_for("cpu", "fp32"))
        inputs = [torch.rand(size, columns) * 2 - 1 for _, columns in work]
        predictors: dict[str, BatchPredictor] = {"nmt": nmt(frozen(model))}
        if name == "nmt,trie":
            predictors["trie"] = identifiers()
        constellation = Constellation.of(predictors, vocab_size=NMT_WORDS)

        def products() -> float:
            return floor(work, inputs, clock)

    settle()
    times, floors = [], []
    for _ in range(runs + 1):
        started = clock()
        (outcome,) = search(constellation, size, STEPS, 1, 1)
        times.append((clock() - started) / outcome.result.expansions)
        if products is not None:
            floors.append(products() / size)
    return Point(
        statistics.median(times[1:]) * 1e6,
        statistics.median(floors[1:]) * 1e6 if floors else None,
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    )


def identifiers(choices: int = 10) -> TriePredictor:
    """A trie of all sequences of six tokens, each one of several."""
    tokens = 3 + np.arange(6 * choices, dtype=np.int32).reshape(6, choices)
    every = np.stack([column.ravel() for column in np.meshgrid(*tokens, indexing="ij")], axis=1)
    tokens = np.concatenate([every, np.full((len(every), 1), EOS, np.int32)], axis=1)
    entries = Entries(tokens.ravel(), np.arange(0, tokens.size + 1, tokens.shape[1]), None)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "identifiers.trie")
        build_trie(entries, str(path)).write(path)
        return TriePredictor(str(path))


def draw(sizes: Sequence[int], points: dict[str, list[Point]], file: str) -> None:
    """Time per expansion and peak memory by the size of the beam."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.6, 3.0), layout="constrained")
    FigureCanvasAgg(figure)
    times, memory = figure.subplots(1, 2)
    for (name, found), marker in zip(points.items(), "o^s", strict=True):
        times.plot(sizes, [point.microseconds for point in found], marker=marker, markersize=4, label=name)
        memory.plot(sizes, [point.mebibytes for point in found], marker=marker, markersize=4, label=name)
    floors = [point.floor for point in points["nmt"]]
    times.plot(sizes, floors, color="0.6", linestyle=":", label="nmt, matrix products alone")
    times.set(xlabel="beam size", ylabel="microseconds per expansion", xscale="log", yscale="log")
    memory.set(xlabel="beam size", ylabel="peak memory (MiB)")
    figure.legend(*times.get_legend_handles_labels(), loc="outside upper center", ncols=4, fontsize="small")
    for axes in (times, memory):
        axes.grid(alpha=0.25)
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=150)


if __name__ == "__main__":
    main()
