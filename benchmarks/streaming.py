"""What does training text cost in memory and time, held in memory and streamed from shards on disk?

Makes a corpus of N line pairs (the given pairs, repeated with their words in another order each time) in a folder
that is removed afterwards. Three ways, each in a separate process: all in memory; prepared and streamed; streamed
from what was prepared. Each process opens the text and goes through the batches of one epoch. Reports the peak of
resident memory beyond that of the imports, and lines per second of CPU time; asserts that all ways read the same
number of target tokens.

    python benchmarks/streaming.py SRC TGT TOKENIZER --lines 100000 1000000 [--shard-tokens 5000000]
        [--ways memory prepare again]
"""

from __future__ import annotations

import argparse
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WAYS = ("memory", "prepare", "again")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("tokenizer")
    parser.add_argument("--lines", type=int, nargs="+", default=[1_000_000])
    parser.add_argument("--shard-tokens", type=int, default=5_000_000)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS, help="the way memory takes 1.4 KiB per line")
    parser.add_argument("--measure", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        measure(given)
        return
    titles = ("opened: lines/s", "epoch: lines/s", "memory, MiB")
    print(f"{'lines':>10} {'way':>8} {'tokens':>12}", *(f"{title:>15}" for title in titles))
    for lines in given.lines:
        folder = tempfile.mkdtemp()
        try:
            paths = write_corpus(Path(folder), (given.source, given.target), lines)
            tokens = set()
            for way in given.ways:
                options = ["--measure", way, "--folder", folder, "--lines", str(lines)]
                options += ["--shard-tokens", str(given.shard_tokens)]
                command = [sys.executable, __file__, *paths, given.tokenizer, *options]
                row = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
                print(row, end="", flush=True)
                tokens.add(row.split()[2])
            assert len(tokens) == 1, tokens
        finally:
            shutil.rmtree(folder)


def write_corpus(folder: Path, paths: tuple[str, str], lines: int) -> list[str]:
    """The pairs of the text, repeated with their words in another order each time."""
    from sgdec.text.lines import read_lines

    pairs = list(zip(*map(read_lines, paths), strict=True))
    draw = random.Random(1)
    made = [folder / "source", folder / "target"]
    with open(made[0], "w") as source, open(made[1], "w") as target:
        for n in range(lines):
            for file, line in zip((source, target), pairs[n % len(pairs)], strict=True):
                words = line.split()
                if n >= len(pairs):
                    draw.shuffle(words)
                file.write(" ".join(words) + "\n")
    return list(map(str, made))


def measure(given: argparse.Namespace) -> None:
    from sgdec.text.vocabulary import load_vocabulary
    from sgdec.training.data.reading import LengthLimits
    from sgdec.training.data.stream import open_text
    from sgdec.training.log import QUIET

    vocabulary = load_vocabulary(given.tokenizer)
    before, started = peak(), time.process_time()
    text = open_text(
        [given.source, given.target],
        vocabulary,
        vocabulary,
        LengthLimits(250),
        run=Path(given.folder) / "run",
        shard_tokens=0 if given.measure == "memory" else given.shard_tokens,
        log=QUIET,
    )
    opened = time.process_time()
    tokens = sum(int(text.batch(examples).mask.sum()) for examples in text.batches(4096, order=(1, 0)))
    iterated = time.process_time()
    lines = given.lines[0]
    print(
        f"{lines:>10} {given.measure:>8} {tokens:>12} {lines / (opened - started):>15,.0f} "
        f"{lines / (iterated - opened):>15,.0f} {peak() - before:>15,.0f}"
    )


def peak() -> float:
    """The peak of resident memory so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
