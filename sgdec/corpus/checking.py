"""Results as they may be used: of this run, of the lines that they should have, as they were published.

Somebody can touch the folder of a corpus between two starts: remove, swap, damage or restore files, and change what
lines have read. A start and the status look at all results, and the merge refuses to write what it cannot trust.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

from sgdec.corpus.engine import Receipt, Task
from sgdec.corpus.leases import Leases, chunks_in, place_of
from sgdec.corpus.manifest import MANIFEST, Manifest, read_manifest
from sgdec.corpus.results import AGAIN, PARTS, ChunkResult, chunks_with, name_of, read_result, results_of_some
from sgdec.corpus.rows import Layout, rows_by_line
from sgdec.corpus.stores import Store
from sgdec.corpus.versions import changed, gone
from sgdec.errors import SgdecError, UsageError

THREADS = 8
"""Results that are read at a time, because storage can be slow."""
MANY = 1000
"""Results that are handed to threads together."""


def lines_of(manifest: Manifest, task: Task) -> range:
    """The numbers of the lines of a task among the lines of all inputs."""
    chunk = manifest.chunks[task.chunk]
    first = chunk.id + task.first
    return range(first, first + (chunk.lines if task.lines is None else task.lines))


def usable_result(store: Store, manifest: Manifest, task: Task) -> tuple[ChunkResult, Receipt] | None:
    """The result of a task; None if there is none.

    Raises SgdecError if it is damaged, of another run or of other lines, or has too few or too many rows.
    """
    ids = lines_of(manifest, task)
    found = read_result(store, task, len(ids))
    if found is None:
        return None
    result, _ = found
    wrong = _wrong(result, manifest, ids)
    if wrong:
        raise SgdecError(f"{store}/{name_of(task)}: {wrong}. Restore the right one; or remove it, and start again.")
    return found


def _wrong(result: ChunkResult, manifest: Manifest, ids: range) -> str:
    """The reason why a result cannot be used; empty if it can."""
    if result.run != manifest.run:
        return f"the result of another run ({result.run[:12] or 'of an older sgdec'}; this is {manifest.run[:12]})"
    if result.ids != ids:
        return f"the result of lines {_span(result.ids)}; expected that of lines {_span(ids)}"
    try:
        rows_by_line(manifest.layout, result.rows, ids)
    except ValueError as error:
        return f"{error}; expected those of {len(ids)} lines"
    lattices = len(ids) if manifest.layout is Layout.FILES else 0
    return "" if len(result.files) == lattices else f"{len(result.files)} lattices; expected {lattices}"


def _span(ids: range) -> str:
    return f"{ids.start:,} to {ids.stop - 1:,}"


@dataclass(frozen=True)
class Checked:
    """The result of a chunk."""

    result: ChunkResult
    """Lines that succeeded later are in it."""
    receipt: Receipt
    recorded: bool
    """Whether there is a record of it."""
    gone: int
    """Files that its lines have read and that are no longer there, so that they could not be compared."""


class Examined(NamedTuple):
    """A chunk that is done, without its outputs."""

    chunk: int
    failed: int
    recorded: bool
    gone: int
    unusable: str
    """The reason why its result cannot be used; empty if it can."""


class Results:
    """All results of a corpus."""

    def __init__(self, store: Store, manifest: Manifest, folder: str | None = None) -> None:
        """``folder``: the working directory to which patterns refer; by default the one of the first start."""
        self._store, self._manifest = store, manifest
        self._folder = manifest.folder if folder is None else folder
        self._leases = Leases(store)
        self._again = frozenset(chunks_with(store, AGAIN))

    def done(self) -> list[int]:
        """The chunks that have a result."""
        return [chunk for chunk in chunks_in(self._store, "results") if chunk < len(self._manifest.chunks)]

    def checked(self, chunk: int) -> Checked | None:
        """The result of a chunk; None if there is none. Raises SgdecError if it cannot be used."""
        found = usable_result(self._store, self._manifest, Task(chunk))
        if found is None:
            return None
        result, receipt = found
        record = f"leases/{place_of(chunk)}"
        noted = (self._leases.record(chunk) or {}).get("sha256")
        if isinstance(noted, str) and noted != receipt.sha256:
            raise SgdecError(
                f"{self._store}/{name_of(Task(chunk))}: not the file that its record names (sha256 "
                f"{receipt.sha256[:12]}; {record} has {noted[:12]}). Restore both; or remove it, and start `sgdec "
                "corpus` again."
            )
        lost = {failure.id for failure in result.failed}
        again = {id: each for id, each in self._mended(chunk).items() if id in lost} if lost else {}
        result = self._with_lines_of(result, {id: other for id, (_, other) in again.items()})
        read = [version for version in result.versions if version.id not in lost or version.id in again]
        for other in changed(read, self._folder):
            task = again[other.id][0] if other.id in again else Task(chunk)
            raise SgdecError(
                f"{os.path.join(self._folder, other.path)} changed since {task} was {self._manifest.command}d. "
                f"Restore it; or remove {self._store}/{name_of(task)}, and start `sgdec corpus` again; or begin "
                "another folder."
            )
        return Checked(result, receipt, isinstance(noted, str), gone(read, self._folder))

    def settle(self, chunk: int, receipt: Receipt) -> None:
        """Write the record of a result whose starter died before it could."""
        self._leases.settle(chunk, asdict(receipt))

    def examine(self, chunks: Sequence[int]) -> Iterator[Examined]:
        """Look at the results of these chunks, several at a time."""
        with ThreadPoolExecutor(THREADS) as pool:
            for begin in range(0, len(chunks), MANY):
                yield from pool.map(self._examined, chunks[begin : begin + MANY])

    def unusable_parts(self, done: Container[int]) -> Iterator[str]:
        """The reasons why parts of chunks that are not done cannot be used."""
        known = range(len(self._manifest.chunks))
        for chunk in chunks_with(self._store, PARTS):
            for task in results_of_some(self._store, PARTS, chunk) if chunk in known and chunk not in done else ():
                if task.first + (task.lines or 0) <= self._manifest.chunks[chunk].lines:  # others do not count
                    try:
                        usable_result(self._store, self._manifest, task)
                    except SgdecError as error:
                        yield str(error)

    def _examined(self, chunk: int) -> Examined:
        try:
            found = self.checked(chunk)
        except SgdecError as error:
            return Examined(chunk, 0, True, 0, str(error))
        if found is None:
            name = name_of(Task(chunk))
            why = "the folder lists it, and there is no such file. Restore it; or remove the link, and start again."
            return Examined(chunk, 0, True, 0, f"{self._store}/{name}: {why}")
        return Examined(chunk, len(found.result.failed), found.recorded, found.gone, "")

    def failed(self, chunk: int) -> int:
        """The failed lines of a chunk that is done, by its record if it has one.

        Raises SgdecError if it is the record of another run.
        """
        record = self._leases.record(chunk) or {}
        failed = record.get("failed")
        if record.get("run") != self._manifest.run or not isinstance(failed, int):
            found = self.checked(chunk)
            return 0 if found is None else len(found.result.failed)
        return failed - len(self._mended(chunk)) if failed and chunk in self._again else failed

    def _with_lines_of(self, result: ChunkResult, again: Mapping[int, ChunkResult]) -> ChunkResult:
        """A result in which some lines, by their numbers, are those of other results."""
        if not again:
            return result
        rows = dict(zip(result.ids, self._rows(result), strict=True))
        files, versions = dict(result.files), [each for each in result.versions if each.id not in again]
        for id, other in again.items():
            rows[id] = self._rows(other)[id - other.id]
            files |= {name: content for name, content in other.files.items() if name == f"{id}.fst"}
            versions += [version for version in other.versions if version.id == id]
        failed = tuple(failure for failure in result.failed if failure.id not in again)
        return replace(result, rows=b"".join(rows.values()), files=files, failed=failed, versions=tuple(versions))

    def _rows(self, result: ChunkResult) -> list[bytes]:
        return rows_by_line(self._manifest.layout, result.rows, result.ids)

    def _mended(self, chunk: int) -> dict[int, tuple[Task, ChunkResult]]:
        """By the number of each line that had failed and succeeded later, the task and the result that have it."""
        found: dict[int, tuple[Task, ChunkResult]] = {}
        for task in results_of_some(self._store, AGAIN, chunk) if chunk in self._again else ():
            result, _ = usable_result(self._store, self._manifest, task) or (None, None)
            if result is not None:
                lost = {failure.id for failure in result.failed}
                found = {id: (task, result) for id in result.ids if id not in lost} | found
        return found


def refuse_results_without_manifest(store: Store) -> None:
    """Raises UsageError if a folder without a manifest has results or leases: of whichever run they are."""
    kinds = ("results", "leases")
    found = any(next(chunks_in(store, kind), None) is not None for kind in kinds) or any(
        results_of_some(store, kind, chunk) for kind in (PARTS, AGAIN) for chunk in chunks_with(store, kind)
    )
    if found and read_manifest(store) is None:  # another starter may have written it meanwhile
        raise UsageError(
            f"{store}: it has results or leases and no {MANIFEST}, which says of which run they are. Restore it, or "
            "give another folder."
        )


def refuse_unusable(store: Store, examined: Sequence[Examined], parts: Sequence[str]) -> None:
    """Raises SgdecError for the first result that cannot be used, and says how many there are."""
    wrong = [*(each.unusable for each in examined if each.unusable), *parts]
    if wrong:
        more = f" {len(wrong) - 1:,} more: see `sgdec corpus-status {store}`." if len(wrong) > 1 else ""
        raise SgdecError(wrong[0] + more)
