"""Folders of corpora whose results are written at once, without workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from sgdec.corpus.engine import Task
from sgdec.corpus.leases import Leases
from sgdec.corpus.manifest import Chunk, ChunkTable, Input, Manifest, write_manifest
from sgdec.corpus.results import ChunkResult, Failure, publish_result
from sgdec.corpus.stores import FolderStore


def write_corpus(
    place: str | Path, chunks: Sequence[int] = (2, 2, 1), done: Sequence[int] = (0, 1, 2), *, failing: bool = True
) -> FolderStore:
    """A corpus with chunks of these numbers of lines, some of them done.

    ``failing``: whether the first line of chunk 1 has failed.
    """
    store = FolderStore(str(place))
    firsts = [1 + sum(chunks[:number]) for number in range(len(chunks))]
    listed = [Chunk(0, first, count, 0, 0, 0, first) for first, count in zip(firsts, chunks, strict=True)]
    source = Input("in.txt", "/in.txt", 0, 0, "", sum(chunks))
    table = ChunkTable.of(listed)
    manifest = Manifest([], "/", {}, "text", False, max(chunks), [source], sum(chunks), table)
    write_manifest(store, manifest)
    leases = Leases(store)
    for number in done:
        chunk = listed[number]
        failure = Failure(chunk.id, "in.txt", chunk.line, "in.txt, line 3: no output")
        failed = (failure,) if number == 1 and failing else ()
        rows = b"x\n" * chunk.lines
        result = ChunkResult(chunk.lines, rows, {}, failed, 10.0 - number, "1.1", manifest.run, chunk.id)
        receipt = publish_result(store, Task(number), result)
        assert receipt is not None
        leases.settle(number, asdict(receipt))
    return store
