"""How fast does `sgdec train` train, compared with Marian and with the peak speed of the processor?

Both sides train GNMT's shape, 2+2 LSTM layers x 512 with a vocabulary of 8,000 (Marian: type ``s2s`` with LSTM
cells), on the same parallel text with the same SentencePiece model: whole runs of a few dozen updates with dropout,
label smoothing, clipping and Adam, about 64 pairs per update, alternately. Target tokens/s are as each side reports
them (Marian's words/s), without the first updates. `pymarian` is searched on the PATH, unless given; without it only
sgdec runs.

The model costs about 110 MFLOP per target token, forward and backward; the processor's GFLOP/s are those of one large
fp32 matrix product. Run it on an idle machine:

    python benchmarks/training_peer.py --train train.en train.de --tokenizer tok.spm [--marian pymarian]
        [--threads 2] [--repeats 3] [--precision fp32 bf16]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from sgdec.text.lines import read_lines

MFLOP_PER_TOKEN = 110
WARM_UP, UPDATES = 50, 100
"""The number of updates left out, and of all updates: the log of sgdec has one row per 50 updates."""
MARIAN_UPDATES, MARIAN_EVERY = 20, 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--train", nargs=2, required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--marian", default=shutil.which("pymarian"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--precision", nargs="+", default=["fp32"])
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(args.threads)

    with tempfile.TemporaryDirectory() as folder:
        texts = []
        for name, path in zip(("source", "target"), args.train, strict=True):
            texts.append(str(Path(folder, name)))
            Path(texts[-1]).write_text("".join(f"{line}\n" for line in read_lines(path)))
        sides: dict[str, Callable[[], float]] = {
            f"sgdec {precision}": partial(ours, texts, args, precision, folder) for precision in args.precision
        }
        if args.marian:
            sides["marian fp32"] = partial(marian, texts, args, folder)
        speeds: dict[str, list[float]] = {name: [] for name in sides}
        peaks = []
        for _ in range(args.repeats):
            peaks.append(peak(args.threads))
            for name, run in sides.items():
                speeds[name].append(run())
    for name, found in speeds.items():
        speed = statistics.median(found)
        print(
            f"{name}: {speed:,.0f} target tokens/s [{min(found):,.0f} to {max(found):,.0f}], "
            f"{speed * MFLOP_PER_TOKEN / 1000:.0f} GFLOP/s"
        )
    if args.marian:
        ratio = statistics.median(speeds["sgdec fp32"]) / statistics.median(speeds["marian fp32"])
        print(f"sgdec fp32 / marian fp32: {ratio:.2f}")
    product = f"{statistics.median(peaks):.0f} GFLOP/s"
    print(f"one matrix product: {product}; torch {torch.__version__}, {args.threads} threads")


def ours(texts: list[str], args: argparse.Namespace, precision: str, folder: str) -> float:
    """Target tokens/s of a run of `sgdec train`."""
    output = Path(folder, "ours")
    shutil.rmtree(output, ignore_errors=True)
    held_out = [str(Path(folder, name)) for name in ("held-out-source", "held-out-target")]
    for text, path in zip(texts, held_out, strict=True):  # one validation, at the end, of a few lines
        Path(path).write_text("".join(Path(text).read_text().splitlines(keepends=True)[:10]))
    command = [sys.executable, "-m", "sgdec.cli", "train", "--quiet", "--model", "gnmt", "--gnmt.layers", "2"]
    command += ["--gnmt.width", "512", "--gnmt.dropout", "0.2", "--label-smoothing", "0.1", "--batch-tokens", "1024"]
    command += ["--max-steps", str(UPDATES), "--bleu", "0", "--precision", precision, "--threads", str(args.threads)]
    command += ["--train", *texts, "--valid", *held_out, "--tokenizer", args.tokenizer, "--output", str(output)]
    subprocess.run(command, check=True)
    rows = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    speeds = [float(row["tokens_per_second"]) for row in rows if row["step"] > WARM_UP and "loss" in row]
    return statistics.median(speeds)


def marian(texts: list[str], args: argparse.Namespace, folder: str) -> float:
    """Words/s of a run of Marian; its words are target tokens."""
    model = Path(folder, "marian", "model.npz")
    shutil.rmtree(model.parent, ignore_errors=True)
    model.parent.mkdir()
    command = [args.marian, "train", "--type", "s2s", "-m", str(model), "-t", *texts]
    command += ["-v", args.tokenizer, args.tokenizer, "--dim-vocabs", "8000", "8000"]
    command += ["--cpu-threads", str(args.threads), "--enc-cell", "lstm", "--dec-cell", "lstm", "--enc-depth", "2"]
    command += ["--dec-depth", "2", "--dim-emb", "512", "--dim-rnn", "512"]
    command += ["--mini-batch", "64", "--maxi-batch", "100"]
    command += ["--after-batches", str(MARIAN_UPDATES), "--disp-freq", str(MARIAN_EVERY), "--label-smoothing", "0.1"]
    command += ["--dropout-rnn", "0.2", "--learn-rate", "0.001", "--clip-norm", "5", "--workspace", "2000"]
    log = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    speeds = [float(speed.replace(",", "")) for speed in re.findall(r"([\d.,]+) words/s", log)]
    return statistics.median(speeds[1:])


def peak(threads: int, size: int = 2048, clock: Callable[[], float] = time.perf_counter) -> float:
    """GFLOP/s of a matrix product."""
    torch.set_num_threads(threads)
    left, right = torch.rand(size, size), torch.rand(size, size)
    seconds = []
    for _ in range(8):
        started = clock()
        left @ right
        seconds.append(clock() - started)
    return 2 * size**3 / min(seconds) / 1e9


if __name__ == "__main__":
    main()
