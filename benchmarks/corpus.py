"""What does `sgdec corpus` cost beside the decoding, by engine? Does the memory of its starter stay flat?

The predictor is free: it allows the source as the only output, so that most of what remains is our own work. All
times are from the first task that is handed out to the last one that is done, without the start of workers.

    python benchmarks/corpus.py chunks [--engines local ray] [--lines 2000]
        The same lines in chunks of one and of 200, with one worker: the difference by chunk is the cost of a chunk
        (lease, task, reading, one result that is on the disk before it counts, record).

    python benchmarks/corpus.py lines [--engines local ray] [--lines 1000000] [--chunk 2000] [--workers 2]
        Lines per second, and the resident memory of the starter after a tenth of the lines, half of them, and at the
        end. The merged output is compared with the input. Each engine has a process of its own.

`ray` starts a cluster of this machine for each run. Folders are in --folder, whose disk counts.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import sgdec
from sgdec import BatchPredictor, Scores, Source
from sgdec.context import EOS
from sgdec.corpus.engine import Done, Engine, Event, Job, Limits, Task
from sgdec.corpus.manifest import Manifest, read_manifest
from sgdec.corpus.merging import merge
from sgdec.corpus.starter import CorpusProgress
from sgdec.corpus.starting import Plan, start
from sgdec.corpus.stores import FolderStore
from sgdec.protocol import Candidates, State

LENGTH = 8


class Copy(BatchPredictor):
    """The state is the rest of the source."""

    def initialize_batch(self, sources: Sequence[Source]) -> list[State]:
        return [(*source.tokens, EOS) for source in sources]

    def predict_batch(
        self, states: Sequence[State], candidates: Sequence[Candidates | None] | None = None
    ) -> Scores:
        return Scores.stack([Scores.sparse([state[0]], [0.0]) for state in states])

    def consume_batch(self, states: Sequence[State], tokens: Sequence[int]) -> list[State]:
        return [state[1:] for state in states]


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[BatchPredictor]]:
    return {"copy": Copy}


class Timed(Engine):
    """An engine, and when its first task was submitted and its last one done."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.begun = self.ended = 0.0

    def start(self, job: Job, workers: int, limits: Limits) -> None:
        self._engine.start(job, workers, limits)

    def wanted(self) -> int:
        return self._engine.wanted()

    def submit(self, task: Task) -> None:
        self.begun = self.begun or time.monotonic()
        self._engine.submit(task)

    def events(self, seconds: float) -> list[Event]:
        found = self._engine.events(seconds)
        if any(isinstance(event, Done) for event in found):
            self.ended = time.monotonic()
        return found

    def close(self) -> None:
        self._engine.close()


def run(engine: str, input: Path, output: Path, chunk: int, workers: int, shown: Any = None) -> float:
    """Decode a file of token ids with ``copy``; the seconds from the first task to the last."""
    from sgdec.engines.local import Local
    from sgdec.engines.ray import Ray

    timed = Timed({"local": Local, "ray": Ray}[engine]())
    job = Job(
        str(output), os.getcwd(), "", "copy", "greedy", {}, {}, plugin_files=(os.path.abspath(__file__),),
        input_format="ids", output_format="ids",
    )  # fmt: skip
    plan = Plan([str(input)], job, [], chunk, workers, timed, Limits())
    ended = start(plan, shown or (lambda manifest, progress: None))
    assert ended.complete and not ended.progress.failed and not ended.progress.deaths
    return timed.ended - timed.begun


def write_input(path: Path, lines: int) -> None:
    with open(path, "w") as file:
        for number in range(lines):
            file.write(" ".join(str(3 + (number * 7 + at * 13) % 1000) for at in range(LENGTH)) + "\n")


def resident() -> float:
    """The resident memory of this process in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def chunks(given: argparse.Namespace) -> None:
    with TemporaryDirectory(dir=given.folder) as folder:
        input = Path(folder, "in.ids")
        write_input(input, given.lines)
        many, few = given.lines, -(-given.lines // 200)
        costs: dict[str, list[float]] = {engine: [] for engine in given.engines}
        for repetition in range(given.runs):
            for engine in given.engines:
                place = f"{engine}{repetition}"
                single = run(engine, input, Path(folder, f"{place}-1"), 1, 1)
                large = run(engine, input, Path(folder, f"{place}-200"), 200, 1)
                costs[engine].append((single - large) / (many - few) * 1000)
    for engine, found in costs.items():
        spread = f"({min(found):.2f} - {max(found):.2f})"
        print(f"{engine:<6} {statistics.median(found):6.2f} ms a chunk {spread}, {len(found)} runs")


def lines(given: argparse.Namespace) -> None:
    if len(given.engines) > 1:
        for engine in given.engines:
            subprocess.run([sys.executable, __file__, *sys.argv[1:], "--engines", engine], check=True)
        sys.exit()
    (engine,) = given.engines
    with TemporaryDirectory(dir=given.folder) as folder:
        input, output = Path(folder, "in.ids"), Path(folder, "d")
        write_input(input, given.lines)
        memory: dict[float, float] = {}

        def shown(manifest: Manifest, progress: CorpusProgress) -> None:
            for share in (0.1, 0.5):
                if progress.lines >= share * manifest.lines:
                    memory.setdefault(share, resident())

        seconds = run(engine, input, output, given.chunk, given.workers, shown)
        memory[1.0] = resident()
        store = FolderStore(str(output))
        manifest = read_manifest(store)
        assert manifest is not None
        begun = time.monotonic()
        with open(Path(folder, "out"), "wb") as out:
            assert merge(store, manifest, out, print) == 0
        merging = time.monotonic() - begun
        with open(input, "rb") as left, open(Path(folder, "out"), "rb") as right:
            assert all(a == b for a, b in zip(left, right, strict=True))
    at = ", ".join(f"{mib:.1f} MiB at {share:.0%}" for share, mib in memory.items())
    print(f"{engine:<6} {given.lines / seconds:,.0f} lines/s by {given.workers} workers; the starter has {at}")
    print(f"{'':<6} merged in {merging:.1f} s, equal to the input")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for work, size in ((chunks, 2000), (lines, 1_000_000)):
        command = commands.add_parser(work.__name__)
        command.add_argument("--engines", nargs="+", default=["local", "ray"], choices=["local", "ray"])
        command.add_argument("--lines", type=int, default=size)
        command.add_argument("--folder", help="where the inputs and outputs are; default: the one of temporary files")
        command.set_defaults(work=work)
    commands.choices["chunks"].add_argument("--runs", type=int, default=3)
    commands.choices["lines"].add_argument("--chunk", type=int, default=2000)
    commands.choices["lines"].add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    given.work(given)
    print("signature: " + "|".join(f"{name}:{getattr(x, '__name__', x)}" for name, x in vars(given).items()))


if __name__ == "__main__":
    main()
