"""What do limits on token sequences lose, and what do they cost: `bytes` beside genlm-bytes?

Both read causal models of transformers byte by byte, in fp32 with one thread: the bytes of lines of a text, and the
end of each. Both compute the row of each prefix. All limits are tried in turn, a few lines with the one side, then
the same lines with the other. One line is read at a time, as their interface does; sgdec then reads all lines
together.

- K of genlm-bytes limits pairs of complete tokens and the bytes with which the next one begins. A pair has tokens
  that end here, which cost a row of the model, and longer ones. ``width`` K keeps K elements of the first kind and
  2 K of the second. So each side asks for at most K rows per byte.
- ``share`` is their ``prune_threshold`` and our ``min_share``. Token healing is off.
- Lost: lines of which all sequences were dropped, so that their probability is 0.
- Excess: bits per byte beyond those with ``--reference`` sequences, of lines that neither side loses. First those of
  the probability of the lines, which is at most the exact one. Then those of rows that add up to 1 again, as theirs
  do; these can be below the exact ones.
- Cost: rows of the model, and CPU time, per byte; medians over parts of the text.

genlm-bytes needs an environment of its own: ``python -m venv peer``, ``peer/bin/pip install genlm-bytes==0.2.0``.

    python benchmarks/peer_genlm_bytes.py --peer peer/bin/python --model FOLDER --text TEXT [--lines 40]
        [--widths 1,2,4,8,16] [--shares 0,1e-4] [--reference 64]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
import transformers
from other_tokens import Keyless
from sgdec_predictors.bytes import Bytes
from sgdec_predictors.hf import HfPredictor

from sgdec import EOS, Source
from sgdec.collector import collector_spared
from sgdec.context import Context
from sgdec.files import read_lines
from sgdec.vocabularies import ByteVocabulary


class Reading(NamedTuple):
    """Some lines, read by one side."""

    totals: list[float]
    """The logs of their probabilities."""
    of_rows: list[float]
    """The sums of the logs of their bytes' probabilities in rows that add up to 1."""
    rows: int
    """The rows of the model."""
    cpu: float
    """The CPU time in seconds."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", required=True, help="Python of an environment with genlm-bytes")
    parser.add_argument("--model", required=True, help="folder of a causal model, which begins texts with its <s>")
    parser.add_argument("--text", required=True)
    parser.add_argument("--lines", type=int, default=40)
    parser.add_argument("--part", type=int, default=8, help="lines of a part")
    parser.add_argument("--widths", default="1,2,4,8,16")
    parser.add_argument("--shares", default="0")
    parser.add_argument("--reference", type=int, default=64)
    given = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    lines = list(read_lines(given.text))[: given.lines]
    parts = [lines[first : first + given.part] for first in range(0, len(lines), given.part)]
    model = HfPredictor(given.model, source=False, context=Context())
    peer = Peer(given.peer, given.model)
    require_equal(model, peer, lines[0][:6])
    best = read(model, given.reference, 0.0, lines, together=True)
    bits = -sum(best.totals) / math.log(2) / size(lines)
    print(f"{len(lines)} lines, {size(lines)} bytes with ends; {bits:.6f} bits per byte at width {given.reference}")
    for share in map(float, given.shares.split(",")):
        for width in map(int, given.widths.split(",")):
            both = [(peer.read(width, share, part), read(model, width, share, part)) for part in parts]
            theirs, ours = zip(*both, strict=True)
            together = read(model, width, share, lines, together=True)
            report(f"width {width}, share {share:g}", lines, parts, best, theirs, ours, together)


class Peer:
    """genlm-bytes in its own process."""

    def __init__(self, python: str, folder: str) -> None:
        worker = str(Path(__file__).with_name("peer_genlm_bytes_worker.py"))
        self._process = subprocess.Popen(
            [python, "-W", "ignore", worker, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        )  # fmt: skip
        while self._read() != "ready":
            pass

    def read(self, width: int, share: float, lines: Sequence[str]) -> Reading:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"width": width, "share": share, "texts": lines}) + "\n")
        self._process.stdin.flush()
        found = json.loads(self._read())
        return Reading(*(found[name] for name in Reading._fields))

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            sys.exit("the process of genlm-bytes has ended")
        return line.strip()


def read(
    model: HfPredictor, width: int, share: float, lines: Sequence[str], *, together: bool = False
) -> Reading:
    counted = Keyless(model)
    predictor = Bytes(counted, width=width, min_share=share)
    totals, of_rows = [], []
    began = time.process_time()
    with collector_spared():
        for some in [lines] if together else [[line] for line in lines]:
            found = scores(predictor, some)
            totals += found[0]
            of_rows += found[1]
    return Reading(totals, of_rows, counted.rows, time.process_time() - began)


def scores(predictor: Bytes, lines: Sequence[str]) -> tuple[list[float], list[float]]:
    """The totals of lines, and those of rows that add up to 1; the row of each prefix is computed."""
    own = ByteVocabulary()
    tokens = [(*own.encode(line), EOS) for line in lines]
    states = predictor.initialize_batch([Source(number, ()) for number in range(1, len(lines) + 1)])
    totals, of_rows = np.zeros(len(lines)), np.zeros(len(lines))
    for place in range(max(map(len, tokens))):
        going = [i for i, each in enumerate(tokens) if len(each) > place and totals[i] > -math.inf]
        if not going:
            break
        values = np.asarray(predictor.predict_batch([states[i] for i in going]).values)
        here = values[range(len(going)), [tokens[i][place] for i in going]]
        totals[going] += here
        of_rows[going] += here - np.logaddexp.reduce(values, axis=1)
        longer = [i for i in going if len(tokens[i]) > place + 1 and totals[i] > -math.inf]
        after = predictor.consume_batch([states[i] for i in longer], [tokens[i][place] for i in longer])
        for i, state in zip(longer, after, strict=True):
            states[i] = state
    return totals.tolist(), of_rows.tolist()


def size(lines: Iterable[str]) -> int:
    """The number of bytes, with the ends."""
    return sum(len(line.encode()) + 1 for line in lines)


def require_equal(model: HfPredictor, peer: Peer, text: str) -> None:
    """Without limits both give a text the same probability."""
    (own,), (other,) = read(model, 0, 0.0, [text]).totals, peer.read(1 << len(text), 0.0, [text]).totals
    if abs(own - other) > 1e-3:
        sys.exit(f"the log-probability of {text!r} is {own} here, and {other} there")


def report(
    limits: str,
    lines: Sequence[str],
    parts: Sequence[Sequence[str]],
    best: Reading,
    theirs: Sequence[Reading],
    ours: Sequence[Reading],
    together: Reading,
) -> None:
    sides = {"genlm-bytes": theirs, "sgdec": ours}
    totals = {name: [total for part in side for total in part.totals] for name, side in sides.items()}
    of_rows = {name: [total for part in side for total in part.of_rows] for name, side in sides.items()}
    found = [i for i in range(len(lines)) if all(totals[name][i] > -math.inf for name in sides)]
    unit = math.log(2) * size(lines[i] for i in found) or math.nan
    print(limits)
    for name, side in sides.items():
        lost = sum(total == -math.inf for total in totals[name])
        excess, normalised = (
            sum(best.totals[i] - each[name][i] for i in found) / unit for each in (totals, of_rows)
        )
        rows = sum(part.rows for part in side) / size(lines)
        times = [1e3 * part.cpu / size(text) for part, text in zip(side, parts, strict=True)]
        print(
            f"  {name:12} {lost} lost, excess {excess:.6f}, of rows {normalised:.6f}, {rows:.2f} rows, "
            f"{statistics.median(times):.2f} ms ({min(times):.2f} to {max(times):.2f})"
        )
    ratios = [own.cpu / other.cpu for own, other in zip(ours, theirs, strict=True)]
    at_once = 1e3 * together.cpu / size(lines)
    print(f"  sgdec / genlm-bytes {statistics.median(ratios):.2f}; all lines together {at_once:.2f} ms", flush=True)


if __name__ == "__main__":
    main()
