"""Do a few decodes of ``sgdec tune`` reach what 400 decodes of a grid reach?

The development set is decoded at 20 x 20 points of two weights, then tuned from the start of the run in at most 5
decodes. Both winners decode the held-out set. Points are kept in a file, for a benchmark that was stopped.

    python benchmarks/tuned_points.py --predictors nmt,ngram,wc --config run.toml --axis ngram=0:0.95 --axis wc=-1:1 \
        --bounds-of wc=-5,5 --points points.jsonl --development dev.en dev.de --held-out test.en test.de
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import tomllib
from collections.abc import Mapping
from itertools import product
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

import sgdec
from sgdec.tuning.metrics import METRICS

SIDE = 20
"""Points on each axis."""
BLEU = METRICS["bleu"]
Task = tuple[list[str], list[str]]
"""Sources and references."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--predictors", required=True)
    parser.add_argument("--config", required=True, help="options of the run in TOML, as sgdec.load takes them")
    parser.add_argument("--axis", action="append", required=True, metavar="NAME=LOW:HIGH")
    parser.add_argument("--bounds-of", action="append", default=[], metavar="NAME=LOW,HIGH")
    parser.add_argument("--points", required=True, metavar="FILE.jsonl")
    for name in ("--development", "--held-out"):
        parser.add_argument(name, nargs=2, required=True, metavar=("SOURCES", "REFERENCES"))
    given = parser.parse_args()
    run = sgdec.load(given.predictors, "beam", **tomllib.loads(Path(given.config).read_text(encoding="utf-8")))
    development, held_out = task(given.development), task(given.held_out)
    axes, bounds = pairs(given.axis, ":"), pairs(given.bounds_of, ",")
    points = decoded(run, axes, development, Path(given.points))
    best = max(points, key=lambda each: each[1])
    began = time.process_time()
    found = sgdec.tune(run, *development, held_out=held_out, bounds=bounds, rounds=5)
    seconds = time.process_time() - began
    print(f"{len(points)} decodes: best {best[1]:.2f} with {best[0]}; held out {bleu(run, best[0], held_out):.2f}")
    for number, each in enumerate(found.rounds, 1):
        weights = {name: round(value, 4) for name, value in each.weights.items()}
        mark = "  (best)" if each is found.best else ""
        print(f"round {number}: {each.development:.2f}, held out {each.held_out:.2f}, {weights}{mark}")
    print(f"tuning took {seconds:.0f} s of CPU")


def task(paths: list[str]) -> Task:
    sources, references = (Path(path).read_text(encoding="utf-8").splitlines() for path in paths)
    return sources, references


def pairs(given: list[str], between: str) -> dict[str, tuple[float, float]]:
    """Each NAME with its LOW and HIGH."""
    found = {}
    for each in given:
        name, _, ends = each.partition("=")
        low, high = map(float, ends.split(between))
        found[name] = low, high
    return found


def bleu(run: sgdec.LoadedRun, weights: Mapping[str, float], sentences: Task) -> float:
    sources, references = sentences
    outputs = [str(each.best) for each in run.with_weights(weights).decode(sources, errors="raise")]
    return float(BLEU.scores(BLEU.statistics(outputs, references).sum(axis=0)))


def decoded(
    run: sgdec.LoadedRun, axes: Mapping[str, tuple[float, float]], sentences: Task, file: Path
) -> list[tuple[dict[str, float], float]]:
    """All points of the grid with their BLEU."""
    known = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []
    grid = list(product(*(np.linspace(low, high, SIDE).round(6).tolist() for low, high in axes.values())))
    with file.open("a", encoding="utf-8") as added:
        for point in grid[len(known) :]:
            weights = dict(zip(axes, point, strict=True))
            known.append([weights, bleu(run, weights, sentences)])
            added.write(json.dumps(known[-1]) + "\n")
            added.flush()
    return [(weights, score) for weights, score in known]


if __name__ == "__main__":
    main()
