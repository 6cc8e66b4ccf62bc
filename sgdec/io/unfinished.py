"""The output of a long run: it is written to a partial file until the run is complete, with notes for resuming.

    out.txt                  the output of an earlier run, until this one is complete
    out.txt.partial          the rows of this run, a sentence at a time
    out.txt.partial.jsonl    its notes. First line: the run's settings. Then a line per sentence, once its rows
                             are written: {"sentence": 17, "end": 3051, "crc": 91283652, "failed": false}

``end`` is the size of the rows up to here and ``crc`` their CRC-32, so a row that is cut short, changed or not from
this run is found in any format, without parsing rows. Outputs with one file per sentence have only notes. The writing
process holds a lock on the notes, which ends with the process.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import takewhile
from typing import Any, Protocol

from sgdec.errors import SgdecError, UsageError
from sgdec.io import patterns
from sgdec.io.descriptors import let_move
from sgdec.io.writing import claim, open_own, permissions, put_in_place, reason, refuse_unwritable, restrict

log = logging.getLogger(__name__)

FREE = ("batch_size", "window")
"""The settings of a signature that may change when a run is resumed: they only change which sentences share
arithmetic."""
FREE_UNLESS_DETERMINISTIC = ("max_rows", "threads")
"""Settings that may also change, unless the run is deterministic: the last bits depend on them."""


@dataclass(frozen=True)
class Note:
    """A sentence whose rows are complete."""

    sentence: int
    end: int = 0
    crc: int = 0
    failed: bool = False


class Sink(Protocol):
    """A destination of text."""

    def write(self, text: str, /) -> object: ...
    def flush(self) -> object: ...


class UnfinishedRows:
    """Text that is written a sentence at a time; `note` says when a sentence is complete.

    This class is for standard output, pipes and devices, which cannot be resumed: it drops the notes.
    """

    complete = False
    """Whether there is nothing to do."""
    done = 0
    """The last sentence that an earlier run completed."""
    noted = 0
    """The number of sentences that it completed."""
    failed = 0
    """The number of its sentences that failed."""

    def __init__(self, stream: Sink) -> None:
        self._stream = stream

    def write(self, text: str, /) -> None:
        self._stream.write(text)

    def flush(self) -> None:
        """Pass all text to the operating system. Raises OSError if that fails."""
        self._stream.flush()

    def note(self, sentence: int, *, failed: bool = False) -> None:
        """Note that the rows of this sentence are written."""


class NotedRows(UnfinishedRows):
    """The rows of an output that a later run can resume."""

    def __init__(self, output: str, about: Mapping[str, Any], notes: io.FileIO) -> None:
        """``notes``: the file of the notes, already locked."""
        super().__init__(io.StringIO())
        self.output, self.about = output, about
        pattern = patterns.is_pattern(output)
        self.target = "" if pattern else os.path.realpath(output)
        self.partial = "" if pattern else beside(output)[0]
        self._notes = notes
        self._rows: io.FileIO | None = None
        self._begun = False
        self._last = Note(0)
        self._size = self._crc = 0
        self._waiting: list[str] = []

    def begin(self, *, resume: bool, overwrite: bool) -> None:
        """Find the first sentence to process. Raises UsageError for an unfinished run that may be neither resumed nor
        overwritten."""
        header, notes = _read(self._notes)
        begun = os.path.exists(self.partial) if self.partial else bool(notes)
        rows = begun and (not self.partial or os.path.getsize(self.partial) > 0)
        if rows and header is None and not overwrite:
            raise UsageError(
                f"{self.partial}: in the way, and without the notes of the run that wrote it. Move it, or write over "
                "it with --overwrite."
            )
        if rows and notes and not (resume or overwrite):
            raise UsageError(
                f"--output {self.output}: {len(notes)} sentences of an unfinished run are there already. Continue "
                "with --resume, or begin again with --overwrite."
            )
        if resume and rows and notes:
            self._go_on(header or {}, notes)
            log.info(f"{self.output}: continues after sentence {self.done}.")
        elif resume and not begun and self.target and os.path.exists(self.target):
            self.complete = True
            self.failed = sum(note.failed for note in notes)  # some, if it was killed between its last two steps
            log.info(f"{self.output}: complete already; nothing is done. To make it again, leave --resume out.")
        else:
            if resume:
                log.info(f"{self.output}: nothing to resume; begins with the first sentence.")
            self._start()

    def write(self, text: str, /) -> None:
        self._waiting.append(text)

    def flush(self) -> None:
        data = "".join(self._waiting).encode("utf-8", "backslashreplace")
        self._waiting = []
        assert self._rows is not None, "begin comes first"
        _write_all(self._rows, data)
        self._size += len(data)
        self._crc = zlib.crc32(data, self._crc)

    def note(self, sentence: int, *, failed: bool = False) -> None:
        self._last = Note(sentence, self._size, self._crc, failed)
        _write_all(self._notes, (json.dumps(asdict(self._last)) + "\n").encode())

    @property
    def hint(self) -> str:
        """The advice that is added to an error."""
        if not self._last.sentence:
            return ""
        where = f" in {self.partial}" if self.partial else ""
        if self.about.get("input") is None:
            return f"Sentences up to {self._last.sentence} are{where}; standard input cannot be resumed."
        return f"Sentences up to {self._last.sentence} are{where}; continue with --resume."

    def end(self, *, complete: bool) -> None:
        """Rename complete rows to the output; keep incomplete rows, if there are any, for a later run."""
        if complete and self._begun and self._rows is not None:
            self.flush()
            put_in_place(self._rows, self.partial, self.target)
        if self._rows is not None:
            self._rows.close()
        if self._begun and not complete and not self._last.sentence and self.partial:
            with contextlib.suppress(OSError):
                os.unlink(self.partial)
        if complete or self._notes.closed or self._nothing_noted():
            let_move(self._notes)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(beside(self.output)[-1])

    def _nothing_noted(self) -> bool:
        return not os.fstat(self._notes.fileno()).st_size or (self._begun and not self._last.sentence)

    def _start(self) -> None:
        self._begun = True
        if self.partial:  # first: rows without notes belong to no run, notes without rows are empty
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.partial)
            self._rows = open_own(self.partial, os.O_CREAT | os.O_EXCL, permissions(self.target))
        _cut(self._notes, 0)
        _write_all(self._notes, (json.dumps(self.about) + "\n").encode())

    def _go_on(self, header: Mapping[str, Any], notes: list[Note]) -> None:
        _refuse_other(header, self.about, self.output)
        if self.partial:
            self._rows = open_own(self.partial)
            restrict(self._rows, permissions(self.target))
            notes = _written(self._rows, notes)
            if not notes:
                raise SgdecError(
                    f"{self.partial}: not what the run wrote that left it. Begin again with --overwrite."
                )
        self._last = notes[-1]
        self._size, self._crc = self._last.end, self._last.crc
        self.done, self.noted = self._last.sentence, len(notes)
        self.failed = sum(note.failed for note in notes)
        if self._rows is not None:
            _cut(self._rows, self._size)
        _cut(self._notes, _length_of(self._notes, len(notes)))
        self._begun = True


def beside(output: str) -> tuple[str, ...]:
    """The additional files of an unfinished output; the last one has the notes. A pattern has only notes.

    >>> beside("/tmp/out.txt"), beside("/tmp/lattices/{id}.fst")
    (('/tmp/out.txt.partial', '/tmp/out.txt.partial.jsonl'), ('/tmp/lattices/id.fst.partial.jsonl',))
    """
    if not patterns.is_pattern(output):
        target = os.path.realpath(output)
        return f"{target}.partial", f"{target}.partial.jsonl"
    before, _, _ = output.partition(patterns.ID)
    folder = os.path.realpath(os.path.dirname(before) or ".")
    name = os.path.relpath(os.path.realpath(output), folder).replace(patterns.ID, "id").replace(os.sep, "-")
    return (os.path.join(folder, f"{name}.partial.jsonl"),)


@contextmanager
def open_noted(
    output: str, about: Mapping[str, Any], *, resume: bool, overwrite: bool
) -> Iterator[NotedRows]:
    """The rows of an output that is a file or a pattern; see `NotedRows`.

    ``about`` is JSON that describes the run: its ``signature``, and its ``input``, None if that cannot be read again.
    Raises UsageError if there is an unfinished run with other settings, or one that may be neither resumed nor
    overwritten, and if the output cannot be written. Raises SgdecError if another process writes the same output, and
    for errors during the run.
    """
    target, noted = os.path.realpath(output), beside(output)[-1]
    try:
        if not patterns.is_pattern(output):
            refuse_unwritable(target)
        elif folder := os.path.dirname(noted):
            os.makedirs(folder, exist_ok=True)
        notes = claim(noted, permissions(target))
    except OSError as error:
        why = reason(error, target)
        raise UsageError(f"--output {output}: {why}; expected a file in a folder that exists.") from None
    if notes is None:
        raise SgdecError(f"--output {output}: another process is writing there. Wait for it, or write elsewhere.")
    rows, complete = NotedRows(output, about, notes), False
    try:
        restrict(notes, permissions(target))
        rows.begin(resume=resume, overwrite=overwrite)
        yield rows
        rows.end(complete=True)
        complete = True
    except OSError as error:
        raise SgdecError(f"--output {output}: {reason(error, target)}. {rows.hint}".rstrip()) from None
    except UsageError:
        raise
    except SgdecError as error:
        raise SgdecError(f"{error} {rows.hint}".rstrip()) from error
    except BaseException:
        if rows.hint:
            log.info(rows.hint)
        raise
    finally:
        if not complete:
            rows.end(complete=False)
        notes.close()


def _read(file: io.FileIO) -> tuple[dict[str, Any] | None, list[Note]]:
    """The run's settings and its notes, up to the first that is cut short or damaged."""
    first, *rest = _content(file).split(b"\n")[:-1] or [b""]
    header, notes = _header(first), [Note(0)]
    for line in rest if header else []:
        try:
            note = Note(**(_object(line) or {}))
        except TypeError:
            break
        kinds = [type(value) for value in (note.sentence, note.end, note.crc, note.failed)]
        if kinds != [int, int, int, bool] or note.sentence <= notes[-1].sentence or note.end < notes[-1].end:
            break
        notes.append(note)
    return header, notes[1:]


def _header(line: bytes) -> dict[str, Any] | None:
    value = _object(line) or {}
    inputs = value.get("input") or []
    files = isinstance(inputs, list) and all(
        isinstance(file, dict) and isinstance(file.get("path"), str) and "sha256" in file for file in inputs
    )
    return value if files and isinstance(value.get("signature"), dict) else None


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _length_of(file: io.FileIO, notes: int) -> int:
    """The number of bytes of the first line and the first ``notes`` notes."""
    return sum(len(line) + 1 for line in _content(file).split(b"\n")[: 1 + notes])


def _content(file: io.FileIO) -> bytes:
    file.seek(0)
    return file.readall()


def _cut(file: io.FileIO, length: int) -> None:
    """Shorten a file to this length, where writing continues."""
    os.ftruncate(file.fileno(), length)
    file.seek(length)


def _written(raw: io.FileIO, notes: list[Note]) -> list[Note]:
    """The notes whose rows are unchanged in the file. After a system crash some rows can be missing."""
    crc, size = 0, os.fstat(raw.fileno()).st_size

    def agrees(note: Note, before: int) -> bool:
        nonlocal crc
        if note.end > size:
            return False
        rows = file.read(note.end - before)
        crc = zlib.crc32(rows, crc)
        return crc == note.crc

    with open(raw.fileno(), "rb", closefd=False) as file:
        file.seek(0)
        ends = [0, *(note.end for note in notes)]
        return [note for note, _ in takewhile(lambda pair: agrees(*pair), zip(notes, ends, strict=False))]


def _refuse_other(before: Mapping[str, Any], now: Mapping[str, Any], output: str) -> None:
    """Raises UsageError that names the difference if the settings of this run differ from those of the unfinished
    run."""
    signatures = (before.get("signature", {}), now.get("signature", {}))
    free = FREE if "deterministic" in signatures[1] else (*FREE, *FREE_UNLESS_DETERMINISTIC)
    for then, here in (signatures, (before, now)):
        for name in dict.fromkeys([*then, *here]):
            if name not in (*free, "signature", "input") and then.get(name) != here.get(name):
                raise UsageError(
                    f"--resume: {output} was begun with {name} {then.get(name, '(none)')}, and this is "
                    f"{here.get(name, '(none)')}. Give the same, or begin again with --overwrite."
                )
    if [file["sha256"] for file in before.get("input") or []] != [file["sha256"] for file in now["input"]]:
        names = " and ".join(file["path"] for file in before.get("input") or []) or "standard input"
        raise UsageError(
            f"--resume: {output} was begun with another input, {names} as it was then. Give the same, or begin again "
            "with --overwrite."
        )


def _write_all(file: io.FileIO, data: bytes) -> None:
    while data:
        data = data[os.write(file.fileno(), data) :]
