"""How long does it take to estimate, read and query an n-gram model?

The time of `sgdec lm` as a whole process; then, in this process, the time in which the predictor reads its file, and
computes rows over the whole vocabulary for the histories of beam 5 x 64 sentences. Medians with the range in
brackets.

    python benchmarks/language_model.py --text TEXT --tokenizer FILE.spm [--order 5] [--runs 3]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from sgdec_predictors.ngram import NGram

from sgdec.context import Context
from sgdec.protocol import Source

ROWS = 320


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--order", type=int, default=5)
    parser.add_argument("--vocab-size", type=int, default=8_000)
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "lm.arpa")
        command = [str(Path(sys.executable).parent / "sgdec"), "lm", "--input", given.text]
        command += ["--tokenizer", given.tokenizer, "--order", str(given.order), "--output", str(path)]
        measure("estimate", given.runs, lambda: subprocess.run(command, check=True, capture_output=True))
        context = Context(vocab_size=given.vocab_size)
        measure("read", given.runs, lambda: NGram(str(path), context=context))
        lm = NGram(str(path), context=context)
        generator = np.random.default_rng(1)
        states = lm.initialize_batch([Source(i, ()) for i in range(ROWS)])
        for _ in range(given.order):
            scores = np.asarray(lm.predict_batch(states).values)
            tokens = (scores + generator.gumbel(size=scores.shape)).argmax(axis=1)  # drawn from the model
            states = lm.consume_batch(states, [token if token > 2 else 3 for token in tokens.tolist()])
        measure(f"{ROWS} rows", 5 * given.runs, lambda: lm.predict_batch(states))


def measure(what: str, runs: int, work: Callable[[], object]) -> None:
    seconds = []
    for _ in range(runs):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    print(f"{what:<10} {statistics.median(seconds):.4f} s   ({min(seconds):.4f} - {max(seconds):.4f})", flush=True)


if __name__ == "__main__":
    main()
