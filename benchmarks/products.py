"""What do product bounds cost where they are large, and what do coarser ones save?

Lattices of 20 columns with ``--width`` random words each, which all connect, and a trigram model of 200 random paths
through each. `astar` with recombination searches them with the model as its own relaxation, with its relaxation to
the last word, and with plain sums. Prints for each the CPU time of a sentence, with reading and bounds, the
expansions, and the last line of the run.

    python benchmarks/products.py [--width 20] [--sentences 10]
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import tempfile
import time
from math import inf
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

from sgdec_decoders.astar import AStarDecoder
from sgdec_predictors.fst import FstPredictor
from sgdec_predictors.ngram import NGram

from sgdec.estimation.kneser_ney import estimate, join
from sgdec.io.arpa import write_arpa
from sgdec.io.openfst_writing import OpenFstState, write_openfst
from sgdec.protocol import Source
from sgdec.search.constellation import Constellation
from sgdec.search.scheduler import Scheduler
from sgdec.settings import BoundsKind

COLUMNS, WORDS, PATHS = 20, 400, 200
MOST_EXPANSIONS = 30_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--width", type=int, default=20)
    parser.add_argument("--sentences", type=int, default=10)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_inputs(Path(folder), given.sentences, given.width)
        model = NGram(str(Path(folder, "lm.arpa")))
        finest = model.relaxations
        search(folder, model, given.sentences, "auto", 1)  # fills the caches of the model
        print("the model itself:", search(folder, model, given.sentences, "auto"))
        model.relaxations = lambda state: finest(state)[1:]
        search(folder, model, given.sentences, "auto", 1)
        print("its relaxation to the last word:", search(folder, model, given.sentences, "auto"))
        print("plain sums:", search(folder, model, given.sentences, "sum"))


def search(folder: str, model: NGram, sentences: int, bounds: BoundsKind, most: int = MOST_EXPANSIONS) -> str:
    predictors = {"fst": FstPredictor(str(Path(folder, "{id}.fst"))), "ngram": model}
    constellation = Constellation.of(predictors, bounds=bounds)
    scheduler = Scheduler(constellation, AStarDecoder(recombine=True, max_expansions=most), batch_size=16)
    sources = [Source(number, (3,) * COLUMNS, max_length=3 * COLUMNS) for number in range(1, sentences + 1)]
    gc.collect()
    started = time.process_time()
    results = [outcome.result for outcome in scheduler.run(sources)]
    seconds = time.process_time() - started
    expansions = sum(each.expansions for each in results)
    return (
        f"{1000 * seconds / sentences:.1f} ms and {expansions / sentences:.1f} expansions per sentence, "
        f"{sum(bool(each.proven) for each in results)} proven; {constellation.summary()}"
    )


def write_inputs(folder: Path, sentences: int, width: int) -> None:
    """Write lattices ``1.fst``, ``2.fst``, ... and ``lm.arpa``."""
    rng = random.Random(1)
    text = []
    for number in range(1, sentences + 1):
        columns = [rng.sample(range(3, 3 + WORDS), width) for _ in range(COLUMNS)]
        lattice: list[OpenFstState] = [
            (inf, [(word, word, rng.uniform(0, 0.05), place + 1) for word in words])
            for place, words in enumerate(columns)
        ]
        write_openfst(folder / f"{number}.fst", [*lattice, (0.0, [])])
        text += [list(map(rng.choice, columns)) for _ in range(PATHS)]
    names = ["<unk>", "<s>", "</s>", *map(str, range(3, 3 + WORDS))]
    write_arpa(folder / "lm.arpa", estimate(join(text), names, order=3, fallback=True).model)


if __name__ == "__main__":
    main()
