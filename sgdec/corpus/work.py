"""The work of one process: it loads the models once, and decodes the lines of one task after the other."""

from __future__ import annotations

import io
import logging
import os
import socket
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sgdec.collector import collector_spared
from sgdec.corpus.checking import lines_of
from sgdec.corpus.engine import Hello, Job, Receipt, Task
from sgdec.corpus.inputs import absolute, read_range
from sgdec.corpus.manifest import Chunk, Manifest, read_manifest
from sgdec.corpus.results import ChunkResult, Failure, as_utf8, publish_result, receipt_of
from sgdec.corpus.stores import open_store
from sgdec.corpus.versions import patterns_in, refuse_changed_meanwhile, versions_now
from sgdec.errors import SgdecError, UsageError
from sgdec.io.limits import bounded_lines
from sgdec.io.results import make_writer
from sgdec.library import LoadedRun, prepare
from sgdec.plugins.host import Host
from sgdec.protocol import Source
from sgdec.search.blame import told
from sgdec.search.outcome import Unreadable
from sgdec.settings import Settings
from sgdec.text.lines import text_lines


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
        with _warnings() as self._warnings:
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
        self._patterns = patterns_in(job.options)
        self._manifest: Manifest | None = None

    @property
    def hello(self) -> Hello:
        """The signature of the run as it is here."""
        run, settings = self._run.parts, self._run.settings
        signature = {**run.signature, **settings.shaping(), "input_format": self._job.input_format}
        if settings.deterministic:
            signature |= {"threads": str(settings.threads), "processor": processor()}
        notes = list(self._warnings)
        if self._run.caveat is not None:
            notes.append(f"{self._job.decoder}: {self._run.caveat}")
        return Hello(signature, socket.gethostname(), tuple(notes))

    def work(self, task: Task, advanced: Callable[[int], None]) -> Receipt | None:
        """Decode the lines of a task and publish their result; None if another result was first.

        ``advanced`` is called with the number of lines that are done, in whatever order. Raises SgdecError if the
        input has changed or the store fails.
        """
        if self._manifest is None:
            self._manifest = self._read_manifest()
        result = self._decoded(self._manifest, task, advanced)
        if task.again and len(result.failed) == result.lines:  # nothing to add to the chunk's result
            return receipt_of(result, b"")
        return publish_result(self._store, task, result)

    def _read_manifest(self) -> Manifest:
        """The manifest, which has to be the one with which this start began: the folder can have been replaced."""
        found = read_manifest(self._store)
        run = self._store.read(token_of_run(self._job.token))
        if found is None or run != found.run.encode():
            raise SgdecError(f"{self._store}: its manifest was removed or replaced after this start. Start again.")
        return found

    def _decoded(self, manifest: Manifest, task: Task, advanced: Callable[[int], None]) -> ChunkResult:
        begun = time.monotonic()
        failed: list[Failure] = []
        chunk, ids = manifest.chunks[task.chunk], lines_of(manifest, task)
        rows = io.StringIO()
        path = manifest.inputs[chunk.file].path
        versions = versions_now(self._patterns, ids)
        with tempfile.TemporaryDirectory() as folder, collector_spared():
            run, output = self._run.parts, os.path.join(folder, "{id}.fst")
            writer = make_writer(
                self._job.output_format, output, rows, run.vocabularies.target, run.constellation.names,
                ledger=self._job.ledger,
            )  # fmt: skip
            sentences = self._sentences(manifest, chunk, task.first, len(ids))
            for outcome in self._run.scheduler().run(sentences, advanced):
                writer.write(self._run.respelled(outcome))
                if outcome.error is not None:
                    line = chunk.line + outcome.source.id - chunk.id
                    failed.append(Failure(outcome.source.id, path, line, told(outcome.error, self._job.decoder)))
            files = {file.name: file.read_bytes() for file in sorted(Path(folder).iterdir())}
        refuse_changed_meanwhile(versions, str(task))
        taken = round(time.monotonic() - begun, 3)
        return ChunkResult(
            len(ids), as_utf8(rows.getvalue()), files, tuple(failed), taken, self.name, manifest.run, ids.start,
            versions,
        )  # fmt: skip

    def _sentences(
        self, manifest: Manifest, chunk: Chunk, first: int, lines: int
    ) -> Iterator[Source | Unreadable]:
        read = manifest.inputs[chunk.file]
        content = io.BytesIO(_content(read.place, read.path, chunk))
        for number, line in enumerate(bounded_lines(content) if chunk.begin else text_lines(content, read.path)):
            if first <= number < first + lines:
                place = f"{read.path}, line {chunk.line + number}"
                yield self._reader.sentence(chunk.id + number, line, place)


class _Warnings(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


@contextmanager
def _warnings() -> Iterator[list[str]]:
    """The warnings of the block, which are not shown here: the starter shows those of one worker."""
    log, handler = logging.getLogger("sgdec"), _Warnings()
    before = log.handlers, log.propagate
    log.handlers, log.propagate = [handler], False
    try:
        yield handler.texts
    finally:
        log.handlers, log.propagate = before


def token_of_run(token: str) -> str:
    """The name of the file that has the hash of the run as soon as it is known (`sgdec.corpus.engine.Job.token`)."""
    return f"{token}.run"


def _content(place: str, path: str, chunk: Chunk) -> bytes:
    """The bytes of a chunk. Raises SgdecError if they are not those of the manifest."""
    data = read_range(place, chunk.begin, chunk.end)
    if zlib.crc32(data) != chunk.crc:
        copy = "" if absolute(path) == place else f" in its unpacked copy {place}"
        remedy = "Remove it, and start again" if copy else "Restore them, or begin another folder"
        raise SgdecError(
            f"input {path}: lines {chunk.line} to {chunk.line + chunk.lines - 1} have changed{copy} since the folder "
            f"was begun. {remedy}."
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
