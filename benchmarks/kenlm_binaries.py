"""What does a language model cost as a KenLM binary, next to the same model as an ARPA file?

Two comparisons, in one process and one thread. The first decodes random lattices with the trigram model of
`benchmarks/symbolic.py`, whose outputs must not depend on the file. The second loads a large model (``--arpa``,
otherwise a random one) and looks up the words of random prefixes: one by one, in arrays, and as full rows.
Binaries are written by KenLM's own `build_binary`, in all of its layouts. The cases are timed alternately, in
seconds of CPU time; a figure is the median of the ratios to the ARPA file, and the lowest and highest ratio.

    python benchmarks/kenlm_binaries.py --build-binary PATH [--arpa FILE] [--runs 5]
"""

from __future__ import annotations

import argparse
import gc
import random
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.vanilla import VanillaDecoder
from sgdec_predictors.fst import FstPredictor
from sgdec_predictors.ngram import NGram
from sgdec_predictors.ngrams.backoff import BackoffTable
from sgdec_predictors.ngrams.kenlm import KenlmModel
from symbolic import WORDS as VOCABULARY
from symbolic import found, sentences, write_inputs

from sgdec.context import Context
from sgdec.decoder import Decoder
from sgdec.estimation.kneser_ney import estimate, join
from sgdec.files import read_arpa
from sgdec.io.arpa import write_arpa
from sgdec.search.constellation import Constellation
from sgdec.search.scheduler import Scheduler

LAYOUTS = {
    "probing": ["probing"], "trie": ["trie"], "quantised": ["-q", "8", "-b", "8", "trie"],
    "array": ["-a", "22", "trie"], "quantised array": ["-q", "8", "-b", "8", "-a", "22", "trie"],
}  # fmt: skip
"""Arguments of `build_binary`. The sixth layout, probing with rest costs, is read like the first."""
SENTENCES, STATES = 200, 60
PREFIXES, WORDS, ROWS = 2_000, 20, 64
"""Random prefixes, the words of each, and full rows."""
SIZE = Context(vocab_size=3 + VOCABULARY)
Times = dict[str, dict[str, list[float]]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build-binary", type=Path, required=True)
    parser.add_argument("--arpa", type=Path, help="not gzipped")
    parser.add_argument("--runs", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_inputs(folder, SENTENCES, STATES, 1)
        binaries = build(given.build_binary, folder / "lm.arpa", folder)
        show(f"{SENTENCES} lattices", decoding(folder, binaries, given.runs))
        arpa = given.arpa or random_model(folder / "large.arpa")
        binaries = build(given.build_binary, arpa, folder)
        sizes = ", ".join(f"{layout} {path.stat().st_size >> 20}" for layout, path in binaries.items())
        print(f"\n{arpa.name}: {arpa.stat().st_size >> 20} MB; {sizes} MB")
        show("large model", looking_up(arpa, binaries, given.runs))


def build(program: Path, arpa: Path, folder: Path) -> dict[str, Path]:
    made = {}
    for layout, words in LAYOUTS.items():
        made[layout] = folder / f"{arpa.stem}.{layout}.kenlm"
        subprocess.run([program, *words, arpa, made[layout]], check=True, stderr=subprocess.DEVNULL)
    return made


def random_model(path: Path) -> Path:
    """A model of order 4 of random text in which frequent words follow each other, with some 10^6 n-grams."""
    rng = np.random.default_rng(1)
    drawn = np.minimum(rng.zipf(1.3, size=(60_000, 20)), 20_000)
    text = join([[int(word) + 2 for word in line] for line in drawn])
    words = ["<unk>", "<s>", "</s>", *map(str, range(3, 20_003))]
    write_arpa(path, estimate(text, words, order=4, fallback=True).model)
    return path


def decoding(folder: Path, binaries: dict[str, Path], runs: int) -> Times:
    files: dict[str, tuple[Path, Literal["mapped", "kenlm"]]] = {"ARPA": (folder / "lm.arpa", "mapped")}
    files |= {layout: (path, "mapped") for layout, path in binaries.items()}
    if find_spec("kenlm"):
        files["probing, module"] = binaries["probing"], "kenlm"
    cases: dict[str, tuple[Decoder, int]] = {
        "beam 5": (BeamDecoder(size=5), 1), "beam 5 x 64": (BeamDecoder(size=5), 64),
        "beam 64 x 64": (BeamDecoder(size=64), 64), "vanilla 64 x 64": (VanillaDecoder(size=64), 64),
    }  # fmt: skip

    def search(case: str, file: str) -> Any:
        path, engine = files[file]
        ngram = NGram(str(path), engine=engine, context=SIZE)
        predictors = {"fst": FstPredictor(str(folder / "{id}.fst")), "ngram": ngram}
        decoder, batch_size = cases[case]
        scheduler = Scheduler(Constellation.of(predictors), decoder, batch_size=batch_size, nbest=1)
        started = time.process_time()
        outcomes = list(scheduler.run(sentences(SENTENCES)))
        return time.process_time() - started, found(outcomes)

    for file in files:
        _, expected = search("beam 5", "ARPA")
        _, same = search("beam 5", file)
        if not file.startswith("quantised"):
            assert [[tokens for tokens, _ in each] for each in same] == [
                [tokens for tokens, _ in each] for each in expected
            ], f"{file}: other outputs"
    return timed({case: {file: lambda c=case, f=file: search(c, f)[0] for file in files} for case in cases}, runs)


def looking_up(arpa: Path, binaries: dict[str, Path], runs: int) -> Times:
    loaded = read_arpa(arpa)
    columns = loaded.words
    rng = random.Random(1)
    drawn = [rng.choices(columns, k=WORDS) for _ in range(PREFIXES)]
    models: dict[str, BackoffTable | KenlmModel] = {"ARPA": BackoffTable(loaded, columns)}
    models |= {layout: KenlmModel(str(path), columns) for layout, path in binaries.items()}

    def load(file: str) -> float:
        started = time.process_time()
        if file == "ARPA":
            BackoffTable(read_arpa(arpa), columns)
        else:
            KenlmModel(str(binaries[file]), [])
        return time.process_time() - started

    def singly(file: str) -> float:
        model = models[file]
        symbols = [[model.symbol(word) for word in words] for words in drawn[: PREFIXES // 4]]
        started = time.process_time()
        for sentence in symbols:
            history = model.start
            for symbol in sentence:
                _, history = model.step(history, symbol)
        return time.process_time() - started

    def together(file: str) -> float:
        model = models[file]
        symbols = np.array([[model.symbol(word) for word in words] for words in drawn])
        started = time.process_time()
        histories = np.full(PREFIXES, model.start)
        for column in symbols.T:
            _, histories = model.step_all(histories, column)
        return time.process_time() - started

    def rows(file: str) -> float:
        model = models[file]
        histories = [model.step(model.start, model.symbol(words[0]))[1] for words in drawn[:ROWS]]
        started = time.process_time()
        model.rows(histories)
        if isinstance(model, KenlmModel):
            model._row.cache_clear()
        return time.process_time() - started

    asked: dict[str, Callable[[str], float]] = {
        "load": load, "one by one": singly, "in arrays": together, f"{ROWS} full rows": rows
    }  # fmt: skip
    return timed({case: {file: lambda a=ask, f=file: a(f) for file in models} for case, ask in asked.items()}, runs)


def timed(cases: dict[str, dict[str, Callable[[], float]]], runs: int) -> Times:
    gc.collect()
    gc.freeze()
    seconds: Times = {case: {file: [] for file in files} for case, files in cases.items()}
    for _ in range(runs):
        for case, files in cases.items():
            for file, run in files.items():
                seconds[case][file].append(run())
    return seconds


def show(title: str, seconds: Times) -> None:
    files = list(next(iter(seconds.values())))
    print(f"{title:<20}{'ARPA, ms':>10}" + "".join(f"{file:>26}" for file in files[1:]))
    for case, of in seconds.items():
        ratios = {file: sorted(a / b for a, b in zip(of[file], of["ARPA"], strict=True)) for file in files[1:]}
        cells = (f"{statistics.median(r):.2f} ({r[0]:.2f}-{r[-1]:.2f})" for r in ratios.values())
        print(f"{case:<20}{statistics.median(of['ARPA']) * 1e3:>10.1f}" + "".join(f"{cell:>26}" for cell in cells))


if __name__ == "__main__":
    main()
