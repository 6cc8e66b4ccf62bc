"""How much of its speed does decoding keep beside other processes, and what does it cost to look for free cores?

Three cases: GNMT many at once and one at a time (beam 5), and a Transformer one at a time (greedy). Each is decoded
by new processes, in turn: with ``--threads auto``, with one thread, and with one thread for each core. Waiting
threads spin as long as GNU's OpenMP has it by default, as long as ``--spins`` says, or not at all (passive). Half
of the runs are alone, half beside processes that only count. Outputs are as long as their sources, whatever the
models have learned. All have to give the same outputs and scores. Prints the median of output tokens/s with the
range, and its ratio to one thread in the same circumstances.

    python benchmarks/threads.py --gnmt WORK/a/best --transformer WORK/t/best --input DATA/test_2016_flickr.en.gz
        [--busy 1] [--rounds 5] [--sentences 64] [--spins 1000 10000]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from common import signature

from sgdec.io.sources import open_input

CASES: dict[str, tuple[str, str, int, float]] = {
    "GNMT, 64 at once": ("gnmt", "beam", 64, 1.0),
    "GNMT, one at a time": ("gnmt", "beam", 1, 0.25),
    "Transformer, one at a time": ("transformer", "greedy", 1, 0.25),
}
"""Model, decoder, sentences at once, and the share of the sentences that are decoded."""

CHILD = """
import json, sys, time
import sgdec
model, decoder, batch_size, threads, file = json.loads(sys.argv[1])
sentences = open(file, encoding="utf-8").read().splitlines()
options = {"beam": {"size": 5}} if decoder == "beam" else {}
options |= {"nmt": {"model": model}, "wc": {"weight": -20.0}}  # all outputs are as long as their sources
run = sgdec.load("nmt,wc", decoder, batch_size=batch_size, threads=threads, max_length_factor=1, **options)
list(run.decode(sentences[:8]))
started = time.perf_counter()
best = [result.best for result in run.decode(sentences)]
seconds = time.perf_counter() - started
import torch
tokens = sum(len(each.tokens) + 1 for each in best)
print(json.dumps([tokens / seconds, torch.get_num_threads(), [[each.tokens, each.score] for each in best]]))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--gnmt", required=True)
    parser.add_argument("--transformer", required=True)
    parser.add_argument("--input", required=True)
    parser.add_argument("--busy", type=int, default=1, help="processes that only count")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sentences", type=int, default=64)
    parser.add_argument("--spins", nargs="*", default=[])
    given = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    ways: dict[str, tuple[Any, dict[str, str]]] = {
        "auto": ("auto", {}),
        "1 thread": (1, {}),
        f"{cores} threads": (cores, {"GOMP_SPINCOUNT": "300000"}),
        **{f"{cores} threads, {spins} spins": (cores, {"GOMP_SPINCOUNT": spins}) for spins in given.spins},
        f"{cores} threads, passive": (cores, {"OMP_WAIT_POLICY": "PASSIVE"}),
    }
    with open_input(given.input) as file:
        sentences = [line.decode() for line, _ in zip(file, range(given.sentences), strict=False)]
    rates: dict[tuple[str, str, int], list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for round_number in range(given.rounds):
            for name, (model, decoder, batch_size, share) in CASES.items():
                text = Path(folder) / "text"
                text.write_text("".join(sentences[: max(4, round(share * len(sentences)))]), encoding="utf-8")
                expected = None
                for busy in (0, given.busy):
                    for way, (threads, variables) in ways.items():
                        with counting(busy):
                            rate, used, found = decode(
                                [getattr(given, model), decoder, batch_size, threads, str(text)], variables
                            )
                        expected = expected or found
                        assert found == expected, f"{name}, {way}: other outputs or scores"
                        rates.setdefault((name, way, busy), []).append(rate)
                        told = f"{name}, {way}, {busy} busy: {rate:.0f} ({used} threads)"
                        print(round_number + 1, told, flush=True)
    print(f"\n{'case':<28}{'threads':<26}{'busy':>5}{'tokens/s':>10}{'(range)':>16}{'of 1 thread':>13}")
    for (name, way, busy), several in rates.items():
        median, one = statistics.median(several), statistics.median(rates[name, "1 thread", busy])
        spread = f"{min(several):,.0f}-{max(several):,.0f}"
        print(f"{name:<28}{way:<26}{busy:>5}{median:>10,.0f}{spread:>16}{median / one:>13.2f}")
    print(signature(**vars(given)))


def decode(call: Sequence[Any], variables: dict[str, str]) -> tuple[float, int, Any]:
    """The output tokens/s, the number of threads at the end, and the best hypotheses, of a new process."""
    own = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    environment = {name: value for name, value in os.environ.items() if name not in own} | variables
    command = [sys.executable, "-c", CHILD, json.dumps(call)]
    printed = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    rate, threads, found = json.loads(printed)
    return rate, threads, found


@contextmanager
def counting(number: int) -> Iterator[None]:
    """Context manager: this number of processes only count."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
