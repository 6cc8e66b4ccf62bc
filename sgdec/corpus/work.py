"""The work of one process: it loads the models once, and works on the lines of one task after the other."""

from __future__ import annotations

import io
import logging
import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sgdec.collector import collector_spared
from sgdec.corpus.checking import lines_of
from sgdec.corpus.engine import Hello, Job, Receipt, Task
from sgdec.corpus.manifest import Manifest, read_manifest
from sgdec.corpus.operations import operation
from sgdec.corpus.results import ChunkResult, Failure, as_utf8, publish_result, receipt_of
from sgdec.corpus.stores import open_store
from sgdec.corpus.versions import patterns_in, refuse_changed_meanwhile, versions_now
from sgdec.errors import SgdecError, UsageError
from sgdec.library import LoadedRun, prepare
from sgdec.plugins.host import Host
from sgdec.search.blame import told
from sgdec.settings import Settings


class Worker:
    """A loaded run that decodes or scores the lines of tasks."""

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
        self._operation = operation(job, self._run)
        self._patterns = patterns_in(job.options)
        self._manifest: Manifest | None = None

    @property
    def hello(self) -> Hello:
        """The signature of the run as it is here."""
        settings = self._run.settings
        signature = self._operation.signature()
        if settings.deterministic:
            signature |= {"threads": str(settings.threads), "processor": processor()}
        notes = list(self._warnings)
        if self._operation.caveat is not None:
            notes.append(self._operation.caveat)
        return Hello(signature, socket.gethostname(), tuple(notes))

    def work(self, task: Task, advanced: Callable[[int], None]) -> Receipt | None:
        """Work on the lines of a task and publish their result; None if another result was first.

        ``advanced`` is called with the number of lines that are done, in whatever order. Raises SgdecError if the
        input has changed or the store fails.
        """
        if self._manifest is None:
            self._manifest = self._read_manifest()
        result = self._result(self._manifest, task, advanced)
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

    def _result(self, manifest: Manifest, task: Task, advanced: Callable[[int], None]) -> ChunkResult:
        begun = time.monotonic()
        failed: dict[int, Failure] = {}
        chunk, ids = manifest.chunks[task.chunk], lines_of(manifest, task)
        rows = io.StringIO()
        path = manifest.inputs[chunk.file].path
        versions = versions_now(self._patterns, ids)
        with tempfile.TemporaryDirectory() as folder, collector_spared():
            for outcome in self._operation.outcomes(manifest, task, rows, folder, advanced):
                id, error = outcome.source.id, outcome.error
                if error is not None and id not in failed:  # of an n-best list, several entries can fail
                    reason = told(error, self._operation.decoder)
                    failed[id] = Failure(id, path, chunk.line + id - chunk.id, reason)
            files = {file.name: file.read_bytes() for file in sorted(Path(folder).iterdir())}
        refuse_changed_meanwhile(versions, f"{task} was {manifest.command}d")
        taken = round(time.monotonic() - begun, 3)
        return ChunkResult(
            len(ids), as_utf8(rows.getvalue()), files, tuple(failed.values()), taken, self.name, manifest.run,
            ids.start, versions,
        )  # fmt: skip


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
