"""The work of one process: it loads the models once, and decodes the lines of one task after the other."""

from __future__ import annotations

import io
import os
import socket
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from sgdec.collector import collector_spared
from sgdec.corpus.engine import Hello, Job, Receipt, Task
from sgdec.corpus.inputs import read_range
from sgdec.corpus.manifest import Chunk, Manifest, read_manifest
from sgdec.corpus.results import Failure, Result, as_utf8, name_of, name_of_part, publish_result
from sgdec.corpus.stores import open_store
from sgdec.errors import SgdecError, UsageError
from sgdec.io.limits import bounded_lines
from sgdec.io.results import make_writer
from sgdec.library import LoadedRun, prepare
from sgdec.plugins.host import Host
from sgdec.protocol import Source
from sgdec.search.blame import told
from sgdec.search.outcome import Unreadable
from sgdec.settings import Settings


class Worker:
    """A loaded run that decodes tasks."""

    def __init__(self, job: Job, name: str) -> None:
        """Raises UsageError for wrong options and for places that this machine does not see."""
        self.name = name
        self._job = job
        try:
            os.chdir(job.folder)
        except OSError as error:
            raise UsageError(
                f"worker {name}: {job.folder}: {error.strerror}. Start in a folder that all machines see under this "
                "path."
            ) from None
        self._store = open_store(job.store)
        if self._store.read(job.token) is None:
            raise UsageError(
                f"worker {name} does not see {job.store}: its file {job.token} is missing there. Give a folder that "
                "all machines see under this path."
            )
        host = Host(job.plugin_files)
        self._run: LoadedRun = prepare(
            job.predictors, job.decoder, {key: dict(value) for key, value in job.options.items()},
            Settings.of(job.settings), host,
        )  # fmt: skip
        if self._run.settings.deterministic and (clock := self._run.parts.clock) is not None:
            raise UsageError(
                f"--deterministic: {clock} ends searches by the clock, so outputs would depend on the machine. Bound "
                "the search by its size instead."
            )
        self._reader = self._run.reader("ids" if job.input_format == "ids" else "text")
        self._manifest: Manifest | None = None

    @property
    def hello(self) -> Hello:
        """The signature of the run as it is here."""
        run, settings = self._run.parts, self._run.settings
        signature = {**run.signature, **settings.shaping(), "input_format": self._job.input_format}
        if settings.deterministic:
            signature |= {"threads": str(settings.threads), "processor": processor()}
        caveat = self._run.caveat
        return Hello(signature, socket.gethostname(), () if caveat is None else (f"{self._job.decoder}: {caveat}",))

    def work(self, task: Task, advanced: Callable[[int], None]) -> Receipt | None:
        """Decode the lines of a task and publish their result; None if another result was first.

        ``advanced`` is called with the number of lines that are done, in whatever order. Raises SgdecError if the
        input has changed or the store fails.
        """
        if self._manifest is None:
            self._manifest = read_manifest(self._store)
        if self._manifest is None:
            raise SgdecError(f"{self._store}: its manifest is missing.")
        chunk = self._manifest.chunks[task.chunk]
        result = self._decoded(chunk, task, advanced)
        part = task.lines is not None
        name = name_of_part(task.chunk, task.first, task.lines or 0) if part else name_of(task.chunk)
        return publish_result(self._store, name, result)

    def _decoded(self, chunk: Chunk, task: Task, advanced: Callable[[int], None]) -> Result:
        begun = time.monotonic()
        failed: list[Failure] = []
        lines = chunk.lines if task.lines is None else task.lines
        rows = io.StringIO()
        assert self._manifest is not None
        path = self._manifest.inputs[chunk.file].path
        with tempfile.TemporaryDirectory() as folder, collector_spared():
            run, output = self._run.parts, os.path.join(folder, "{id}.fst")
            writer = make_writer(
                self._job.output_format, output, rows, run.vocabularies.target, run.constellation.names,
                ledger=self._job.ledger,
            )  # fmt: skip
            sentences = self._sentences(chunk, task.first, lines)
            for outcome in self._run.scheduler().run(sentences, advanced):
                writer.write(self._run.respelled(outcome))
                if outcome.error is not None:
                    line = chunk.line + outcome.source.id - chunk.id
                    failed.append(Failure(outcome.source.id, path, line, told(outcome.error, self._job.decoder)))
            files = {file.name: file.read_bytes() for file in sorted(Path(folder).iterdir())}
        taken = round(time.monotonic() - begun, 3)
        return Result(lines, as_utf8(rows.getvalue()), files, tuple(failed), taken, self.name)

    def _sentences(self, chunk: Chunk, first: int, lines: int) -> Iterator[Source | Unreadable]:
        assert self._manifest is not None
        read = self._manifest.inputs[chunk.file]
        for number, line in enumerate(bounded_lines(io.BytesIO(_content(read.place, read.path, chunk)))):
            if first <= number < first + lines:
                place = f"{read.path}, line {chunk.line + number}"
                yield self._reader.sentence(chunk.id + number, line, place)


def _content(place: str, path: str, chunk: Chunk) -> bytes:
    """The bytes of a chunk. Raises SgdecError if they are not those of the manifest."""
    data = read_range(place, chunk.begin, chunk.end)
    if zlib.crc32(data) != chunk.crc:
        raise SgdecError(
            f"input {path}: lines {chunk.line} to {chunk.line + chunk.lines - 1} have changed since the folder was "
            "begun. Restore them, or begin another folder."
        )
    return data


def processor() -> str:
    """The kind of processor, on which the last bits of sums depend.

    >>> isinstance(processor(), str)
    True
    """
    found: dict[str, str] = {}
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                name, _, value = line.partition(":")
                found.setdefault(name.strip(), value.strip())
    except OSError:
        import platform

        return platform.processor() or platform.machine()
    names: tuple[str, ...] = ("vendor_id", "cpu family", "model", "CPU implementer", "CPU part")
    return "-".join(found[name] for name in names if name in found)
