"""The costs of the bookkeeping of a corpus: measured on a folder, or those of slow storage as assumed.

They are the inputs of `corpus_model.py`. All times are in seconds.
"""

from __future__ import annotations

import os
import queue
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from sgdec.corpus.checking import lines_of, usable_result
from sgdec.corpus.engine import Receipt, Task
from sgdec.corpus.leases import Leases, chunks_in
from sgdec.corpus.manifest import Chunk, ChunkTable, Input, Manifest, read_manifest, survey, write_manifest
from sgdec.corpus.merging import merge
from sgdec.corpus.results import ChunkResult, publish_result
from sgdec.corpus.stores import FolderStore


class Operations(NamedTuple):
    """Those of a folder, for one chunk."""

    count: int
    syncs: int = 0
    """The number that wait until data is on the disk."""


CLAIM = Operations(8, 1)
"""A starter: look for a lease, make the folder (2), create, sync, link, remove; look for a result."""
SETTLE = Operations(6, 1)
"""A starter: make the folder (2), create, sync, rename, remove."""
PUBLISH = Operations(8, 1)
"""A worker: read the input; as for a lease."""
SKIP = Operations(3)
"""A starter finds a chunk taken: look, read the lease, read the pulse of its owner."""
RESCAN = Operations(2)
"""A starter finds it done later: look, read the record."""
MERGE = Operations(2)
"""Read the result and its record."""


@dataclass(frozen=True)
class Costs:
    """The costs of work and of storage.

    The defaults of the storage are assumed. So are those of line, load and bytes, which depend on the model. The rest
    was measured (AMD EPYC, two cores).
    """

    line: float = 0.1
    """Decoding a line on a worker of speed 1."""
    load: float = 30.0
    """From the start of a worker until it has loaded its models."""
    operation: float = 1e-3
    """One operation of the storage, if it is not busy."""
    sync: float = 7e-3
    """One that waits until data is on the disk."""
    operations: float = 20_000.0
    """The most that the storage does in a second, for all together."""
    message: float = 0.2e-3
    """The starter's time for the messages about a chunk."""
    manifest: float = 0.2e-6
    """Reading the manifest, a chunk."""
    manifest_bytes: float = 56.0
    """The memory of the manifest, a chunk, in each starter and worker."""
    merge_chunk: float = 0.3e-3
    """Merging, a chunk, without the storage's operations."""
    merge_byte: float = 6e-9
    survey_byte: float = 3e-9
    bytes: float = 100.0
    """The bytes of a line, of the input and of the output."""

    def seconds(self, operations: Operations, times: float = 1.0) -> float:
        """Without waiting for others."""
        return times * ((operations.count - operations.syncs) * self.operation + operations.syncs * self.sync)


FAST = Costs()
SLOW = Costs(operation=0.02, sync=0.02, operations=2000.0)
"""A network file system under load."""


def measure(chunks: int = 300, line: int = 100, lines: int = 1000) -> Costs:
    """The costs in a temporary folder of this machine (``TMPDIR``)."""
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder, "in.txt")
        text.write_bytes((b"x" * (line - 1) + b"\n") * lines * chunks)
        store = FolderStore(str(Path(folder, "d")))
        survey_time, (inputs, rows) = _timed(lambda: survey([str(text)], lines, store))
        manifest = Manifest([], "/", {}, "text", False, lines, inputs, lines * chunks, rows)
        write_manifest(store, manifest)
        leases = Leases(store)
        half = os.urandom(line // 2 * lines).replace(b"\n", b"x")
        rows = b"".join(half[at : at + line // 2 - 1] * 2 + b"x\n" for at in range(0, len(half), line // 2))

        def bookkeeping() -> None:
            for chunk in range(chunks):
                leases.claim(chunk)
                usable_result(store, manifest, Task(chunk))
                leases.settle(chunk, {"lines": lines})
                store.remove(f"leases/{chunk // 1000:06}/{chunk:09}")

        def publish() -> None:
            for chunk in range(chunks):
                leases.settle(chunk, asdict(_published(store, manifest, chunk, rows)))

        booked, _ = _timed(bookkeeping)
        published, _ = _timed(publish)
        merged, _ = _timed(lambda: merge(store, manifest, BytesIO(), lambda failure: None))
        listed, _ = _timed(lambda: list(chunks_in(store, "results")))
        small = _merge_of_small(Path(folder, "e"), chunks)
        per_byte = max(merged - small, 0.0) / (line * lines * chunks)
        reading, memory = _manifest(Path(folder, "m"))
        looked, _ = _timed(lambda: [leases.record(chunk) for chunk in range(chunks)])
        operation = looked / chunks
        synced = booked / chunks - (CLAIM.count + SETTLE.count - 2) * operation
        print(f"claim, look and settle: {1e3 * booked / chunks:.2f} ms a chunk; publish and settle: "
              f"{1e3 * published / chunks:.2f}; list: {1e3 * listed / chunks:.4f}")  # fmt: skip
        return Costs(
            operation=operation, sync=max(synced / 2, 0.0), operations=1 / operation, message=_message(),
            manifest=reading, manifest_bytes=memory, merge_byte=per_byte, bytes=line,
            merge_chunk=max(small / chunks - MERGE.count * operation, 0.0),
            survey_byte=survey_time / text.stat().st_size,
        )  # fmt: skip


def report(costs: Costs) -> None:
    for name, value in asdict(costs).items():
        print(f"{name:<16}{value:.3g}")


def _merge_of_small(place: Path, chunks: int) -> float:
    """Merging results of one short line."""
    store = FolderStore(str(place))
    rows = ChunkTable.of(Chunk(0, n + 1, 1, 0, 0, 0, n + 1) for n in range(chunks))
    manifest = Manifest([], "/", {}, "text", False, 1, [Input("", "", 0, 0, "", chunks)], chunks, rows)
    leases = Leases(store)
    for chunk in range(chunks):
        leases.settle(chunk, asdict(_published(store, manifest, chunk, b"x\n")))
    return _timed(lambda: merge(store, manifest, BytesIO(), lambda failure: None))[0]


def _published(store: FolderStore, manifest: Manifest, chunk: int, rows: bytes) -> Receipt:
    ids = lines_of(manifest, Task(chunk))
    receipt = publish_result(store, Task(chunk), ChunkResult(len(ids), rows, run=manifest.run, id=ids.start))
    assert receipt is not None
    return receipt


def _manifest(place: Path, chunks: int = 100_000) -> tuple[float, float]:
    """Seconds and bytes a chunk, to read a manifest and to keep it."""
    store = FolderStore(str(place))
    rows = ChunkTable.of(Chunk(0, n + 1, 1, 10**9 + n, 10**9 + n + 1, 10**8 + n, n + 1) for n in range(chunks))
    source = Input("in.txt", "/in.txt", 2 * 10**9, 0, "", chunks)
    write_manifest(store, Manifest([], "/", {}, "text", False, 1, [source], chunks, rows))
    seconds, _ = _timed(lambda: read_manifest(store))
    tracemalloc.start()
    kept = read_manifest(store)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert kept is not None
    return seconds / chunks, held / chunks


def _message(messages: int = 2000) -> float:
    """The time from a task to the answer of a local worker that does nothing, by its own protocol."""
    import json
    import subprocess
    import sys

    echo = "import sys\nfor line in sys.stdin: print(line, end='', flush=True)"
    answers: queue.Queue[Task] = queue.Queue()
    with subprocess.Popen([sys.executable, "-c", echo], stdin=-1, stdout=-1, text=True) as process:
        assert process.stdin is not None and process.stdout is not None

        def ask() -> None:
            assert process.stdin is not None and process.stdout is not None
            for chunk in range(messages):
                process.stdin.write(json.dumps(Task(chunk)) + "\n")
                process.stdin.flush()
                answers.put(Task(*json.loads(process.stdout.readline())))

        seconds, _ = _timed(ask)
        process.stdin.close()
    return seconds / messages


def _timed(work: Callable[[], object]) -> tuple[float, object]:
    begun = time.perf_counter()
    result = work()
    return time.perf_counter() - begun, result
